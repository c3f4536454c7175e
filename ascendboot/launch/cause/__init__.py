"""The first cause of a job's failure: clues of all ranks and nodes, merged into one verdict.

Imported only once a job has failed: a start has no use for it.
"""
