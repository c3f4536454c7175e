"""The collective check: all ranks meet once before a job."""
