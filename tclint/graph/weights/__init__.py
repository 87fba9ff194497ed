"""Where each weight's entries stand once dims have grown, and what runs of the padded model have shown."""
