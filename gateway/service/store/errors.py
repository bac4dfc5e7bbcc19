"""What a store refuses with."""

from __future__ import annotations

from fugu.contract.errors import FuguError

__all__ = ["StoreError"]


class StoreError(FuguError):
    """The store cannot be opened, or is not one of this version."""
