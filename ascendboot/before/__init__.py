"""What is looked at before a job is started, check by check."""
