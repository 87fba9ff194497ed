"""Misaligned and badly tiled widths, and the gains of changing them."""
