"""Check promises without trusting the device or the planner; `exact` is the second certificate."""
