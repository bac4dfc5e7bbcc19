"""The type that holds a raw reading, and cannot be printed, logged, pickled or compared by accident."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["Reading"]


class Reading:
    """A raw sensor value on its way to the discretiser; whoever wants the value must say so with `reveal`."""

    __slots__ = ("_value",)

    def __init__(self, value: float | str) -> None:
        """Wrap a number or a category."""
        self._value = value

    def reveal(self) -> float | str:
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
