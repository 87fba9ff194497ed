"""What several rules ask a record: gradients and their scale, steps and loops, casts, copies, layers."""
