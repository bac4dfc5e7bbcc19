"""Files, databases, clocks, processes and terminals; knows of no streams, policies or privacy, and needs no numpy."""
