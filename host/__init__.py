"""What a process needs from the machine that it runs on: word to the service manager, wake-ups, and database files.

Nothing here knows of streams, policies or privacy; device and gateway use it alike, so it needs no numpy.
"""
