"""Months of published frames of many devices: exported, smoothed as a whole, and learned from, at no privacy cost."""
