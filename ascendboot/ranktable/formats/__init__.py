"""The generations of rank tables: one module each with model, rules, reading and writing."""
