"""The one reader of recordings: forms become tables of text, and tables become readings on a clock.

Where a file can be read in two ways, it asks and never guesses. It prints nothing.
"""
