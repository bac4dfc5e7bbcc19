"""The command line: commands parse and call, view shows, demo is the demo."""
