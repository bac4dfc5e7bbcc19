"""Frames become durable symbols: parsed, put in order, kept in the journal, sealed, and forgotten when they are old."""
