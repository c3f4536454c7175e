"""One module per launcher."""
