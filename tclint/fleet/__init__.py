"""Many models and many shapes in one run: sweeps over the arguments of a model."""
