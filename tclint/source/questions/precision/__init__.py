"""Questions about precision: regions of autocast, scalers, weights and switches."""
