"""One module per group of verbs: flags in, hand over, exit code out."""
