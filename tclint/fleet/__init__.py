"""Many models and many shapes in one run: sweeps over arguments, and targets in bulk."""
