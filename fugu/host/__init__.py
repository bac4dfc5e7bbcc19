"""What a process needs from its machine; it knows of no streams, policies or privacy, and needs no numpy."""
