"""Seeded faults of the product, and what kills them."""
