"""Pins of an enrolment, from the policies that its owner has seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contract.fleet_documents import Address
from contract.pins import MeasuredPins, SymbolPins, pins_of
from gateway.fleet.signing import make_document, policies_of, read_bodies

__all__ = ["read_pins"]


def read_pins(files: Sequence[Path], fleet: str) -> dict[str, SymbolPins | MeasuredPins]:
    """Pin what some policies say of their streams.

    Args:
        files: policies in their JSON form, with or without fleet, device and version; each has its own stream.
        fleet: of the device.

    Raises:
        FuguError: a file cannot be read or is for another fleet, its guarantee is false, or two are for one stream.
    """
    everyone = Address(everyone=True)
    policies = policies_of(make_document(fleet, 1, everyone, read_bodies(files, fleet, everyone)))
    return {policy.stream: pins_of(policy) for policy in policies}
