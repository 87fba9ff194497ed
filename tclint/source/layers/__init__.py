"""Layers and models as source shows them."""
