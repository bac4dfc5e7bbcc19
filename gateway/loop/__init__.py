"""One round after another: what has piled up is stored in one transaction, then parts that are due work a little."""
