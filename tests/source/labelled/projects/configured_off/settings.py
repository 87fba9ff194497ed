"""Constants of the project."""

PER_STEP = 20
MIXED = False
