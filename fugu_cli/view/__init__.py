"""Tables, sentences, pictures and documents for JSON; nothing here decides anything."""
