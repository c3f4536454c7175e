"""One module per tool: its output as text in, values out; strict."""
