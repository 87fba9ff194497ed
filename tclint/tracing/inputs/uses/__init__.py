"""What the source of a forward does with each of its arguments."""
