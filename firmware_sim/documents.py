"""Policy documents for boards: the compiled policies beside those that they were made from."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from firmware_sim.board_code import board_module
from firmware_sim.compiled_policy import FirmwareError, compile_policy
from fugu.contract.fleet_documents import PolicyDocument

__all__ = ["check_compiled", "units", "with_compiled"]

_SOMEBODY = "device"
"""Whom the compiled policies of a document for several devices name; each puts its own name there."""


def with_compiled(document: PolicyDocument, unit: Mapping[str, Fraction]) -> PolicyDocument:
    """The same document, for boards too.

    Args:
        unit: by stream, what a reading of 1 stands for, as the images were built with; 1 if nothing is said.

    Raises:
        FirmwareError: a board does not do what a policy says, or no policy is of such a stream.
    """
    policies = document.for_device(document.to.device or _SOMEBODY)
    if unknown := set(unit) - {policy.stream for policy in policies}:
        raise FirmwareError(f"a unit of stream {min(unknown)}, of which there is no policy")
    compiled = [compile_policy(policy, unit.get(policy.stream, Fraction(1))) for policy in policies]
    return document.model_copy(update={"compiled": tuple(data.hex() for data in compiled)})


def units(document: PolicyDocument) -> dict[str, Fraction]:
    """By stream, the unit that a document was compiled with.

    Raises:
        FirmwareError: a compiled policy is none.
    """
    read = board_module("compiled").read_policy
    try:
        policies = [read(bytes.fromhex(data)) for data in document.compiled]
    except Exception as error:
        raise FirmwareError(f"a compiled policy of the document is none: {error}") from None
    return {policy.stream: Fraction(*policy.unit) for policy in policies}


def check_compiled(document: PolicyDocument) -> None:
    """Refuse a document whose compiled policies say something else than its policies.

    Raises:
        FirmwareError: they do.
    """
    if document.compiled and with_compiled(document, units(document)) != document:
        raise FirmwareError("the compiled policies of the document are not those of its policies")
