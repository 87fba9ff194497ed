"""Saved weights padded to a plan: state dicts, safetensors and torch files, optimizer states."""
