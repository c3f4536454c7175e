"""The one seam to machines."""
