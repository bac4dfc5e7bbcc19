"""Needs of a process on its machine; knows of no streams, policies or privacy, and needs no numpy."""
