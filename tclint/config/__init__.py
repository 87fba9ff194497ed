"""One table of settings, and the files that hold them."""
