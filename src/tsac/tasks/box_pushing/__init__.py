"""Our own Box-Pushing, from the measurements of the original environment."""
