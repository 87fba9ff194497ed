"""The version of tclint."""

__version__ = "0.1.0"
