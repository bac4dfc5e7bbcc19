"""What a process needs from the machine that it runs on: the service manager, wake-ups, database and CSV files.

Nothing here knows of streams, policies or privacy; device and gateway use it alike, so it needs no numpy.
"""
