"""A board's trust, run by this interpreter, beside the agent's: both have to say the same of every document."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from firmware_sim.build import Burnt, build, enrolled
from fugu.contract.compiler import compile_for_boards
from fugu.contract.envelope import Envelope
from fugu.contract.errors import TrustError
from fugu.contract.fleet_documents import Enrolment, PolicyDocument
from fugu.contract.pins import pins_of
from fugu.contract.policy import Policy
from fugu.contract.trust import Trust
from fugu.core.judge import judge
from fugu.core.trust import RefusedError, TrustState
from tests.support.board_modules import verified
from tests.support.signing import NOW, Keys, policy_document


def burnt_image(
    folder: Path, policies: list[Policy], enrolment: Enrolment, unit: Fraction = Fraction(1)
) -> SimpleNamespace:
    """An image, and what is burnt into it."""
    build(policies, folder, enrolled(Burnt(), enrolment, policies), unit)
    values: dict[str, Any] = {}
    exec((folder / "image.py").read_text(), values)
    return SimpleNamespace(**values)


def board_document(*policies: Policy, **fields: Any) -> PolicyDocument:
    """A document for the device `watch`, for boards too; of policies that say its version."""
    document = policy_document(*policies, **fields)
    return compile_for_boards(document, {})


class Two:
    """An agent and a board with the same enrolment, which are sent the same."""

    def __init__(self, folder: Path, keys: Keys, *policies: Policy, ceiling: float = 5.0) -> None:
        pins = {policy.stream: pins_of(policy) for policy in policies}
        enrolment = keys.enrolment(ceiling=ceiling, pins=pins)
        self.agent = Trust(enrolment)
        self.image = burnt_image(folder, list(policies), enrolment)
        self.trusted = TrustState(self.image.ROOT)

    def judge(self, kind: str, payload: bytes, now: int = NOW) -> str:
        """Why both refuse it; empty if it is accepted, or changes nothing."""
        agent, board, updated, policies = "", "", None, None
        try:
            if kind == "root":
                self.agent.follow_roots(payload)
            else:
                self.agent.judge(payload, kind, now)  # type: ignore[arg-type]
        except TrustError as error:
            agent = error.reason
        try:
            updated, policies = judge(kind, payload, self.image, self.trusted, now, verified, lambda: None)
        except RefusedError as error:
            board = error.reason
        assert board == agent
        if updated is not None:
            self.trusted = updated
        state, trusted = self.agent.state, self.trusted
        assert (trusted.version, trusted.time, trusted.stopped) == (state.version, state.time, state.stopped)
        assert trusted.root == Envelope.decode(state.root).payload
        assert trusted.version == 0 or trusted.digest.hex() == state.digest
        if policies is not None:
            assert {policy.version for policy in policies} <= {state.version}
        return board
