"""From kernels to times: one module per class of kernel."""
