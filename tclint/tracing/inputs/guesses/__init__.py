"""Inputs that nobody gave: stated by the model or its project, told by its layers, or customary."""
