"""Questions about data: batches, arrays, constants, their sizes and their ways to the GPU."""
