"""Errata: printed words of a paper, its assumptions, and a counterexample that meets these and violates the claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from papers.facts import Key, printed
from papers.rows import Found, Row, Setting

__all__ = ["Erratum"]


class Erratum(NamedTuple):
    """A printed claim that is false under the paper's own assumptions.

    Attributes:
        printed: keys of what is printed.
        assumes: by the key of each assumption of the paper, whether the counterexample meets it.
        rows: the counterexample, beside the claim; at least one row differs.
    """

    printed: tuple[Key, ...]
    assumes: Mapping[Key, Callable[[], bool]]
    rows: Callable[[Setting], Iterable[Row]]

    @property
    def title(self) -> str:
        """The first line of what computes the rows."""
        return (self.rows.__doc__ or "").partition("\n")[0]

    def find(self, setting: Setting) -> Found:
        """Check the counterexample against each assumption, then compare it with the claim.

        Raises:
            ValueError: an assumption is not met, or the claim is not violated: this is no erratum.
        """
        for key, holds in self.assumes.items():
            if not holds():
                raise ValueError(f"the counterexample does not meet {', '.join(key)}: {printed(key)}")
        rows = tuple(self.rows(setting))
        if not any(row.status == "differs" for row in rows):
            raise ValueError(f"the counterexample does not violate {'; '.join(map(printed, self.printed))}")
        notes = [f"Printed, {item}: {printed((paper, item, what))}" for paper, item, what in self.printed]
        notes += [f"Assumed and met, {item}: {printed((paper, item, what))}" for paper, item, what in self.assumes]
        return Found(rows, notes=notes)
