"""The helper of a group of homes: a small program that is run by somebody whom the homes' site does not control.

It adds up masks, which are random numbers to it, of one set of homes for each window, once. It keeps no readings, no
counts and no database; the keys that open masks are in the memory of one process only.
"""
