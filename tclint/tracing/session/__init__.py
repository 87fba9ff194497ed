"""One trace: a model built without memory, run on its inputs, and left as it was."""
