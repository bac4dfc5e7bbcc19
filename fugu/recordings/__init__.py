"""The one reader of recordings: forms become tables of text, and tables become readings on a clock.

It asks where two readings are possible, and never guesses; it prints nothing.
"""
