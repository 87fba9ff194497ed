"""Every patch of torch: what it replaces, why, and how it is undone."""
