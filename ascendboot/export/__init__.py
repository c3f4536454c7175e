"""Jobs of an inventory as other systems describe them, and the way back."""
