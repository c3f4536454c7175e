"""One module per family of tools: output as text in, values out; strict."""
