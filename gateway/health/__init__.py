"""Findings about a running gateway, declared once; the monitor that makes them, and says them as alarms and numbers."""
