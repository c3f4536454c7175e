"""From a job request to a plan: ranks, command lines, environment, scripts."""
