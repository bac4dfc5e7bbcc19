"""Images with an enrolment, and documents for them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from firmware_sim.build import Burnt, build, enrol
from fugu.contract.fleet_documents import Enrolment, PolicyDocument, compile_for_boards
from fugu.contract.policy import Policy
from tests.support.signing import policy_document


def burnt_image(
    folder: Path, policies: list[Policy], enrolment: Enrolment, unit: Fraction = Fraction(1)
) -> SimpleNamespace:
    """An image, and what is burnt into it."""
    build(policies, folder, enrol(Burnt(), enrolment, policies), unit)
    values: dict[str, Any] = {}
    exec((folder / "image.py").read_text(), values)
    return SimpleNamespace(**values)


def board_document(*policies: Policy, **fields: Any) -> PolicyDocument:
    """A document for the device `watch`, for boards too; of policies that say its version."""
    document = policy_document(*policies, **fields)
    return compile_for_boards(document, {})
