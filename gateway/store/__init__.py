"""Tables in a file (SQLite) or in a schema of a server (PostgreSQL), by the same words: they outlive a gateway."""
