"""The command line `fugu`: it may import every other package, and nothing imports it."""
