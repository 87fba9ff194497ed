"""What a training script given beside a model says about how the model runs."""
