"""Rules on convolutions and what stands around them."""
