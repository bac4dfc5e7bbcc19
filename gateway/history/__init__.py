"""Months of what many devices have published: exported, smoothed as a whole, and learned from. It costs no privacy."""
