"""Questions about a program that several rules ask: gradients, steps, loops, casts, copies, layers."""
