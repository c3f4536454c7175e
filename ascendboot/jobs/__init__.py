"""Running jobs: start, output, status, stop, report, diagnosis."""
