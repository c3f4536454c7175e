"""One module per verb or group of verbs."""
