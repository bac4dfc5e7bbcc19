"""Findings about a running gateway, declared once; the monitor that makes them, as alarms and numbers."""
