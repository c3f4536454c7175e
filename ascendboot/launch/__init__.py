"""Starting jobs: the plan of a launch, its start, what it says, its end."""
