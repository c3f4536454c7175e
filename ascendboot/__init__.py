"""ascendboot turns plain Atlas servers into a training cluster and runs jobs on it."""

__version__ = "0.1.0"
