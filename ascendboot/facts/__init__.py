"""Questions to the nodes: what is asked, and what the answers mean."""
