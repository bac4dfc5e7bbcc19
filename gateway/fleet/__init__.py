"""The fleet: its keys and roots, signed documents, a registry of devices in one SQLite file, and rollouts."""
