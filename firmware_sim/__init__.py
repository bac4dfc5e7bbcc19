"""Simulated devices: the agent or a board with recordings or simulated chains as sensors, and simulated homes."""
