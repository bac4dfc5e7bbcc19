"""Losses of stretches in 24 digits, computed apart from the product: device, board and second certificate agree."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from fugu.audit.exact import recompute
from fugu.contract.chains import BoundedChains
from fugu.contract.compiler import compile_board_policy
from fugu.contract.guarantee import Guarantee
from fugu.contract.policy import Policy
from fugu.contract.windows import Window
from fugu.core.compiled import read_policy
from fugu.core.guarantee import check
from tests.support.scenes import policy

GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "golden" / "stretches.json").read_text())


def promised(row: dict[str, Any], epsilon: float) -> Policy:
    fields = {name: row[name] for name in ("length", "stride", "scale")}
    chains = BoundedChains(states=2, odds_ratio=float(row["odds_ratio"]))
    update = {
        "table": None,
        "frame_ticks": 1,
        "windows": (Window(name="w", states=(1,), **fields),),
        "guarantee": Guarantee(epsilon=epsilon, adversary="universal", stretch_ticks=row["ticks"]),
    }
    return policy(chains=chains).model_copy(update=update)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"{row['odds_ratio']}-{row['scale']}-{row['ticks']}")
def test_all_certificates_agree_with_the_golden_losses_and_refuse_less(row: dict[str, Any]) -> None:
    exact = Fraction(row["epsilon"])
    draft = promised(row, float(exact) * (1 + 1e-12))
    bound = draft.bound(draft.verify())
    assert (
        exact * (1 - Fraction(1, 10**20)) <= Fraction(bound.epsilon(row["ticks"])) <= exact * (1 + Fraction(1, 10**14))
    )
    assert Fraction(bound.floor(row["ticks"])) == pytest.approx(Fraction(row["floor"]), rel=1e-15)
    on_board = math.log(Fraction(check(read_policy(compile_board_policy(draft))), 1 << 128))
    assert on_board == pytest.approx(float(exact), rel=1e-12)
    (claim,) = recompute(json.loads(draft.to_json()))
    assert exact * (1 - Fraction(1, 10**20)) <= claim.loss <= exact * (1 + Fraction(1, 10**12))
    draft = promised(row, float(exact) * (1 - 1e-11))
    with pytest.raises(Exception, match="of its guarantee"):
        draft.verify()
    with pytest.raises(Exception, match="loses more than is claimed"):
        check(read_policy(compile_board_policy(draft)))
    (claim,) = recompute(json.loads(draft.to_json()))
    assert claim.loss > claim.stated
