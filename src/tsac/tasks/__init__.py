"""The tasks of the paper by name."""
