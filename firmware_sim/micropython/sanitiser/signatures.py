"""Signatures of documents; what checks them is in memory only meanwhile."""

from fugu.core.loading import release


def all_match(checks: list, on_progress) -> bool:
    """Verify signatures: of each the public key, the message in parts, and the signature."""
    from sanitiser.ed25519 import verify

    try:
        return all(verify(public, message, signature, on_progress) for public, message, signature in checks)
    finally:
        verify = None
        release("sanitiser.ed25519")
