"""Facts against facts and against the inventory: findings with level, nodes and remedy; pure."""
