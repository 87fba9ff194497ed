"""A traced model without torch: its operators, its coupled dims, and the kernels that they lower to."""
