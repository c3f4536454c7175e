"""Diagnosis of any log, of a job of ascendboot or not."""
