"""The way from stored frames to reports: estimates of symbols, windows and points."""
