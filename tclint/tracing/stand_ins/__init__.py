"""Modules in place of packages that are not installed: kernel libraries with the same shapes and work that is
known, and others as long as a model uses nothing of them."""
