"""Pure functions on scores."""
