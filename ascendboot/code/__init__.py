"""The training code: read on the operator's side, sent to the nodes, taken back."""
