"""A policy from its file."""

from __future__ import annotations

from pathlib import Path

from fugu.contract.errors import PolicyError
from fugu.contract.policies import AnyPolicy, read_policy

__all__ = ["load_policy"]


def load_policy(path: str | Path) -> AnyPolicy:
    """Read a policy file.

    Returns:
        A `Policy` of symbols and windows, or a `MeasurePolicy` of points.

    Raises:
        PolicyError: it is no policy; names the file and the first field that is wrong.
        OSError: it cannot be read.
    """
    try:
        return read_policy(Path(path).read_bytes())
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from None
