"""Rules on convolutions and the layers around them."""
