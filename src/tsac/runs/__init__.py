"""One run: one algorithm, one task, one seed, in one folder."""
