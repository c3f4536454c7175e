"""The one way to machines."""
