"""Whether the nodes are ready for a job, checked just before it starts."""
