"""The kinds of streams: symbols, points and windows."""
