"""Supervision of a job: when a generation of ranks stops, and which nodes run the next one."""
