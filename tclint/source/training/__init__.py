"""What several rules ask about training code: loaders, scalers, switches, loops."""
