"""Reads from a training script, given beside a model, how the model runs."""
