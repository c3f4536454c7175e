"""The practice cluster: servers made of namespaces on this machine, with stand-in NPUs."""
