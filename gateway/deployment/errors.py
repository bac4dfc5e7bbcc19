"""What can be wrong with a deployment."""

from __future__ import annotations

from contract.errors import FuguError

__all__ = ["DeploymentError", "InvalidNameError"]


class DeploymentError(FuguError):
    """There is no such account, it may not be what was asked for, or files of a deployment are missing or wrong."""


class InvalidNameError(DeploymentError):
    """A text cannot be the name, the address or the path that it is given as."""
