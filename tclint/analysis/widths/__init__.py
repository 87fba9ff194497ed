"""Misaligned and badly tiled widths, and what changing them gains."""
