"""From what was stored to what is told of it: estimates of symbols, of windows and of points."""
