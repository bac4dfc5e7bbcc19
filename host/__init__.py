"""What a process needs from the machine that it runs on: word to the service manager, and wake-ups.

Nothing here knows of streams, policies or privacy; device and gateway use it alike, so it needs no numpy.
"""
