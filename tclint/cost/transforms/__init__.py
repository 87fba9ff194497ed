"""A graph as it runs in a precision, a layout or under torch.compile."""
