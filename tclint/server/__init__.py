"""The language server: what editors show of a run."""
