"""Where each weight's entries stand once dims have grown, and whether the model still computes the same."""
