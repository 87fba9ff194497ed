"""Training practice that several rules ask about: loaders, scalers, switches, loops."""
