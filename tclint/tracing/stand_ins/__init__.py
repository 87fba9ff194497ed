"""Modules in place of kernel libraries that are not installed: same shapes, and work that is known."""
