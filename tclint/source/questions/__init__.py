"""What several rules ask a record: gradients and their scale, steps and their loops, casts, copies, layers."""
