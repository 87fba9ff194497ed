"""Builds the models that configuration files name, as those files train them."""
