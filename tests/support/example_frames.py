"""One frame of a kind, whose bytes are in the golden files."""

from __future__ import annotations

from contract.frames import Estimate, SymbolFrame
from contract.release_frames import ReleaseFrame

SYMBOL_FRAME = SymbolFrame(7, 99, 104, bytes([0, 1, 3, 1, 2]), 2, bits=2, shift=64)
ESTIMATE = Estimate(8, 96, ((0.25, 0.75), (0.5, 0.5)), bytes([1, 0]), 105, (0.125, 0.875), 64, 65)
RELEASE_FRAME = ReleaseFrame(
    name="active",
    stream="hr",
    audience="public",
    query="histogram",
    states=("low", "high"),
    devices=3,
    first=7200,
    length=3600,
    observed=10790,
    values=(0.1 + 0.2, -4.5),
    standard_errors=(1.5, 2.5),
    low=(-3.0, -9.0),
    high=(4.0, 1.0),
    confidence=0.95,
    epsilon=0.1,
    adversary="universal",
    mechanism="mqm-exact",
    noise="discrete-laplace",
    scale="41/2",
    charge=0.0487654321,
    entry=12,
)
