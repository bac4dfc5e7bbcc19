"""The type that holds a raw reading, and cannot be printed, logged, pickled or compared by accident."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["Reading"]


class Reading:
    """A raw sensor value on its way to the discretiser; whoever needs the value calls `reveal`."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        """Wrap whatever a sensor gave: a number, a category, or anything else."""
        self._value = value

    def reveal(self) -> Any:
        """The raw value; for the discretiser only."""
        return self._value

    def __repr__(self) -> str:
        """Never the value."""
        return "<reading>"

    def __format__(self, spec: str) -> str:
        """Never the value."""
        return "<reading>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise TypeError("a reading does not leave the process")
