"""Rank tables of every generation: read, judged, written, converted, compared and shown; pure."""
