"""The only package that prints."""
