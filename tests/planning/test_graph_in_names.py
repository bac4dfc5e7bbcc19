"""Policy graphs from a requirement in names: what is joined, by enumeration, and what the planned noise then tells."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.library.measure_words import measure_result
from fugu.places.tables import noise_loss
from fugu.planning.errors import PlanningError
from fugu.planning.measure_planner import make_measure_plan
from fugu.planning.measure_spec import MeasureSpec, read_spec

ROOMS = ["kitchen", "bath", "hall", "office", "bed"]
PLACES = [[0, 0], [4, 0], [2, 2], [0, 4], [4, 4]]


def spec(folder: Path, graph: dict[str, Any]) -> MeasureSpec:
    """The rooms, between which every step is possible."""
    document = {"names": ROOMS, "coordinates": PLACES, "transition": np.full((5, 5), 0.2).tolist(), "epsilon": 1.0}
    (folder / "home.json").write_text(json.dumps(document))
    return read_spec(folder / "home.json", graph)


def test_apart_joins_exactly_the_pairs_of_a_group_and_of_the_rest(tmp_path: Path) -> None:
    for size in (2, 3, 5):
        for group in combinations(ROOMS, size):
            edges = {
                (ROOMS[a], ROOMS[b]) for a, b in np.argwhere(np.triu(spec(tmp_path, {"apart": [list(group)]}).graph))
            }
            assert edges == {pair for pair in combinations(ROOMS, 2) if len({room in group for room in pair}) == 1}


def test_hidden_joins_exactly_the_pairs_that_have_such_a_state(tmp_path: Path) -> None:
    for size in (1, 2, 4, 5):
        for some in combinations(ROOMS, size):
            edges = {
                (ROOMS[a], ROOMS[b]) for a, b in np.argwhere(np.triu(spec(tmp_path, {"hidden": list(some)}).graph))
            }
            assert edges == {pair for pair in combinations(ROOMS, 2) if set(pair) & set(some)}


@pytest.mark.parametrize("graph", [{"apart": [["kitchen", "bath"]]}, {"hidden": ["hall"]}])
def test_the_noise_hides_what_the_answer_says_and_tells_the_rest_up_to_what_it_says(
    tmp_path: Path, graph: dict[str, Any]
) -> None:
    plan = make_measure_plan(spec(tmp_path, graph), "ignorant", quick=True)
    (noise,) = (planned.noise for planned in plan.sets)
    assert noise is not None
    loss = np.maximum(noise_loss(noise, plan.spec.values), noise_loss(noise, plan.spec.values).T)
    joined = plan.spec.graph
    others = ~joined & ~np.eye(5, dtype=np.bool_)
    assert loss[joined].max() <= 1.0 + 1e-6
    assert loss[others].max() <= plan.epsilon_any + 1e-6
    hidden, factor_note = measure_result(plan).document["notes"][:2]
    assert f"factor of up to {math.e:.3g}" in hidden
    assert f"factor of up to {math.exp(plan.epsilon_any):.3g}" in factor_note
    if "apart" in graph:
        assert loss[others].max() > 1.5, "nothing is promised between groups, and it is told"
        assert "(kitchen, bath; hall, office, bed)" in hidden


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ({"apart": [["kitchen"]]}, "kitchen would be alone"),
        ({"apart": [["kitchen", "bath", "hall", "office"]]}, "bed would be alone"),
        ({"apart": [["kitchen", "bath"], ["bath", "hall"]]}, "names bath twice"),
        ({"apart": []}, "give either apart"),
        ({"hidden": "kitchen"}, "give either apart"),
        ({"hidden": ["cellar"]}, "no state is called 'cellar'; names are kitchen"),
        ({"apart": [["kitchen", "bath"]], "hidden": ["hall"]}, "give either apart"),
    ],
)
def test_what_is_no_requirement_is_refused_in_a_line(tmp_path: Path, graph: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanningError, match=words):
        spec(tmp_path, graph)
