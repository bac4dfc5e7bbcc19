"""`fugu plan measure`: the example of the paper, schedules, fitted grids, policies, and what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.measure_table import StaircaseNoise
from fugu.contract.measurement import ConstraintSets
from fugu.contract.noise_table import NoiseTable
from fugu.planning import measure_planner
from tests.support.classifiers import classifier_of
from tests.support.command import Done, Fugu
from tests.support.measured import measure_policy

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "dphmm.json").read_text())
SIX: dict[str, Any] = {
    "coordinates": [[1, 0], [2, 1], [3, 0], [0, 1], [4, 2], [1, 2]],
    "transition": [[1 / 6] * 6] * 6,
    "graph": {"edges": [[1, 2], [3, 4], [3, 5], [4, 5]]},
    "epsilon": 1,
}
HEADER: dict[str, Any] = {"fleet": "home", "device": "phone-1", "stream": "place", "period": 60}


class Planner:
    """Plans specifications that are written as objects."""

    def __init__(self, fugu: Fugu, folder: Path) -> None:
        self._fugu, self.folder = fugu, folder

    def run(self, spec: Any, *words: object) -> Done:
        file = self.folder / "spec.json"
        file.write_text(spec if isinstance(spec, str) else json.dumps(spec))
        return self._fugu("plan", "measure", file, *words)

    def document(self, spec: Any, *words: object) -> Any:
        done = self.run(spec, *words, "--json")
        assert done.code == 0, done.err
        return done.json()

    def policy(self, spec: Any, *words: object) -> MeasurePolicy:
        file = self.folder / "policy.json"
        done = self.run({**HEADER, **spec}, "-o", file, *words)
        assert done.code == 0, done.err
        return MeasurePolicy.from_json(file.read_bytes())


@pytest.fixture(autouse=True)
def _short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecast from short simulations, unless they are what is tested."""
    if "known" not in request.node.name and "following" not in request.node.name:
        monkeypatch.setattr(measure_planner, "_MOST_DRAWS", measure_planner._LEAST_DRAWS)


@pytest.fixture
def planner(fugu: Fugu, tmp_path: Path) -> Planner:
    return Planner(fugu, tmp_path)


@pytest.mark.long
def test_the_example_of_the_paper(planner: Planner) -> None:
    document = planner.document(SIX)
    golden = GOLDEN["paper"]["ex5.1"]
    assert document["hull"] == golden["verts_ccw"] == [[-4, -1], [1, -1], [3, 0], [4, 1], [-1, 1], [-3, 0]]
    assert document["area"] == 11
    assert document["degree_of_protection"] == [4, 6, 3, 5, 4, 4]
    assert document["knorm_rmse_at_epsilon_1"] == pytest.approx(6.55050310350975, abs=1e-9)
    assert (document["exposed"], document["added_edges"], document["capped"]) == ([], [], False)
    assert (document["factor"], document["epsilon_tick"]) == (2, 1)
    assert document["epsilon_any"] == pytest.approx(2)
    # neighbouring ticks are independent here, so the stream reveals what one point does
    assert document["epsilon_stream"] == pytest.approx(2)
    assert document["rmse"].keys() == {"staircase", "optimal"}
    assert document["rmse"]["optimal"]["released"] < document["rmse"]["staircase"]["released"]


@pytest.mark.long
def test_an_attacker_names_few_states_after_a_point(planner: Planner) -> None:
    """The states of example 10.8, of a path and of a clique: no more than epsilon 1 allows."""
    distribution = [0, 0, 0, 1 / 3, 1 / 3, 1 / 3]
    for edges in ([[3, 5], [5, 4]], [[3, 5], [5, 4], [3, 4]]):
        spec = {**SIX, "initial": distribution, "transition": [distribution] * 6, "graph": {"edges": edges}}
        attack = planner.document(spec, "--quick")["attack"]
        assert attack["guess"] == pytest.approx(1 / 3)
        assert 1 / 3 < attack["named"] < (math.e**2 if len(edges) == 2 else math.e) / (2 + math.e)
    assert "After one point an attacker names the state rightly" in planner.run(spec, "--quick").out


@pytest.mark.long
@pytest.mark.parametrize("objective", ["nearest", "area", "error"])
def test_exposed_states_are_named_and_edges_added(planner: Planner, objective: str) -> None:
    """Example 6.1, under the constraint that an initial distribution gives: s3, s4, s5 and s6 possible."""
    distribution = [0, 0, 0.25, 0.25, 0.25, 0.25]
    stay = np.eye(6).tolist()
    spec = {**SIX, "initial": distribution, "transition": stay, "graph": {"edges": [[3, 4], [3, 5], [4, 5]]}}
    document = planner.document({**spec, "objective": objective})
    assert document["exposed"] == [2]
    assert document["possible"] == [2, 3, 4, 5]
    ((state, added),) = document["added_edges"]
    errors = {3: 7.348469228349534, 4: 6.855654600401044, 5: 7.0710678118654755}
    assert state == 2
    assert document["knorm_rmse_at_epsilon_1"] == pytest.approx(errors[added], abs=1e-9)
    assert added == {"nearest": 4, "area": 3, "error": 4}[objective]
    assert document["degree_of_protection"][:2] == [0, 0]


@pytest.mark.long
def test_errors_of_a_grid_are_the_known_ones(planner: Planner) -> None:
    golden = GOLDEN["mechanisms_6x6"]["6|G_util r=1.5 (8-nbr)|1.0"]
    cells = [(x, y) for y in range(6) for x in range(6)]
    near = np.array([[max(abs(x - a), abs(y - b)) <= 1 for a, b in cells] for x, y in cells], dtype=float)
    distribution = (
        near.sum(axis=1) / near.sum()
    )  # that of a walk over all cells around, which the numbers were made with
    spec = {"grid": "6x6", "transition": [distribution.tolist()] * 36, "graph": {"radius": 1.5}, "epsilon": 1}
    document = planner.document(spec)
    rmse = document["rmse"]
    assert rmse["staircase"]["released"] == pytest.approx(golden["stair_clamp"], abs=1e-6)
    assert rmse["staircase"]["single"] == pytest.approx(golden["stair_remap"], abs=1e-6)
    for errors in rmse.values():  # the walk has no memory, so following it gains nothing
        assert errors["estimate"] == pytest.approx(errors["single"], abs=0.05)
    assert golden["lp_edges_raw"] - 1e-6 <= rmse["optimal"]["released"] <= rmse["staircase"]["released"]


@pytest.mark.long
def test_following_the_walk_makes_estimates_better(planner: Planner) -> None:
    cells = [(x, y) for y in range(6) for x in range(6)]
    near = np.array([[max(abs(x - a), abs(y - b)) <= 1 for a, b in cells] for x, y in cells], dtype=float)
    walk = (near / near.sum(axis=1, keepdims=True)).tolist()
    rmse = planner.document({"grid": "6x6", "transition": walk, "graph": {"radius": 1.5}, "epsilon": 1}, "--quick")[
        "rmse"
    ]
    golden = GOLDEN["filter_rmse"]["6|uniform k9|8nbr|1.0"]
    assert rmse["staircase"]["estimate"] == pytest.approx(golden["stair_clamp"][0], abs=0.05)
    assert rmse["staircase"]["estimate"] < rmse["staircase"]["single"] - 0.2


@pytest.mark.long
def test_toml_and_json_say_the_same(fugu: Fugu, planner: Planner, tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text('grid = "3x2"\nepsilon = 1\ngraph = { radius = 1 }\nnames = ["a", "b", "c", "d", "e", "f"]\n')
    same = {"grid": "3x2", "epsilon": 1, "graph": {"radius": 1}, "names": list("abcdef")}
    document = fugu("plan", "measure", file, "--json").json()
    assert document == planner.document(same)
    assert document["degree_of_protection"] == [3, 4, 3, 3, 4, 3]


@pytest.mark.long
def test_a_grid_walks_at_random_by_default(planner: Planner) -> None:
    policy = planner.policy({"grid": "3x2", "epsilon": 1, "graph": {"radius": 1}})
    assert policy.coordinates == ((0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1))
    assert [state for state, _ in policy.transition[1]] == [0, 1, 2, 4]
    assert {p for _, p in policy.transition[1]} == {0.25}


@pytest.mark.long
@pytest.mark.parametrize(
    ("graph", "edges"),
    [
        ({"complete": True}, 15),
        ({"categories": ["a", "a", "b", "b", "b", 7]}, 4),
        ({"radius": math.sqrt(2)}, 11),
        ({"transition": True}, 13),
        ({"edges": [[0, 1], [5, 0]]}, 2),
    ],
)
def test_every_kind_of_graph(planner: Planner, graph: Any, edges: int) -> None:
    spec = {"grid": "3x2", "epsilon": 1, "graph": graph}
    assert planner.document(spec, "--quick")["edges"] == edges
    policy = planner.policy(spec, "--quick")
    assert sum(others.bit_count() for others in policy.measurement.neighbours) == 2 * edges


@pytest.mark.long
def test_real_coordinates_are_put_on_the_lattice(planner: Planner) -> None:
    walk = [[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]]
    spec = {"coordinates": [36.4, 37.1, 39.0], "resolution": 0.5, "unit": "C", "transition": walk}
    done = planner.run({**spec, "graph": {"complete": True}, "epsilon": 2})
    assert "Root-mean-square error, C" in done.out
    document = planner.document({**spec, "graph": {"complete": True}, "epsilon": 2})
    assert document["hull"] == [[-5], [5]]  # 73, 74 and 78 half degrees
    assert (document["area"], document["resolution"], document["unit"]) == (10, [0.5], "C")


@pytest.mark.long
def test_sets_that_grow_from_a_known_start(planner: Planner) -> None:
    corner = {"grid": "4x4", "graph": {"radius": 1}, "epsilon": 1, "initial": [1, *[0] * 15], "resolution": 100}
    document = planner.document(corner, "--quick")
    assert (document["run_in"], document["period"], document["different_sets"]) == (6, 1, 7)
    assert [len(each["possible"]) for each in document["sets"]] == [1, 3, 6, 10, 13, 15, 16]
    assert [each["repeats"] for each in document["sets"]] == [False] * 6 + [True]
    assert [each["fallback"] for each in document["sets"]] == [True] + [False] * 6
    assert document["sets"][0]["exposed"] == [0]
    assert {key: document[key] for key in document["sets"][-1]} == document["sets"][-1]
    shown = planner.run(corner, "--quick").out
    assert "from tick 6 on  16 of 16 states" in shown
    assert "comes back for ever" in shown
    policy = planner.policy(corner, "--quick")
    sets = ConstraintSets(policy.measurement).all_sets()
    assert [table.constraint for table in policy.measure_tables] == [0, sets[6], *sets[1:6]]
    assert [table.first for table in policy.measure_tables] == [0, 6, 1, 2, 3, 4, 5]
    for tick, possible in enumerate(sets[1:], start=1):
        assert sum(table.covers(tick, possible) for table in policy.measure_tables) == 2  # its own, and the fallback


@pytest.mark.long
def test_sets_that_come_in_turn(planner: Planner) -> None:
    turn = [[0, 0, 1, 0, 0], [0, 0, 0.5, 0.5, 0], [0.5, 0.5, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0.5, 0, 0, 0, 0.5]]
    spec = {"coordinates": [0, 3, 0, 7, 1], "transition": turn, "graph": {"complete": True}, "epsilon": 1}
    document = planner.document({**spec, "initial": [1, 0, 0, 0, 0]})
    assert (document["run_in"], document["period"]) == (2, 2)
    assert document["possible"] == [2, 3]  # the worse of {0, 1} and {2, 3}
    assert document["hull"] == [[-7], [7]]
    assert "2 sets in turn, of 2 to 2 states" in planner.run({**spec, "initial": [1, 0, 0, 0, 0]}).out


@pytest.mark.long
def test_a_flat_hull_is_widened(planner: Planner) -> None:
    parts = {"coordinates": [[0, 0], [1, 0], [0, 9], [1, 9]], "transition": [[0.25] * 4] * 4, "epsilon": 1}
    document = planner.document({**parts, "graph": {"categories": [0, 0, 1, 1]}})
    assert (document["capped"], document["factor"], document["added_edges"]) == (True, 4, [])
    assert "flat" in document["notes"][0]


@pytest.mark.long
def test_a_stream_that_reveals_more_than_a_point_says_so(planner: Planner) -> None:
    sticky = {"coordinates": [0, 1], "transition": [[0.9, 0.1], [0.1, 0.9]], "graph": {"complete": True}, "epsilon": 1}
    document = planner.document({**sticky, "initial": "stationary"})
    assert document["epsilon_stream"] == pytest.approx(4.49, abs=0.02)
    assert (document["adversary"], document["start"]) == ("ignorant", "stationary")
    assert "neighbouring ticks tell of one another" in document["notes"][0]
    informed = planner.document({**sticky, "initial": "stationary"}, "--adversary", "informed")
    assert informed["epsilon_stream"] >= document["epsilon_stream"] - 1e-9
    frozen = planner.document({**sticky, "transition": [[1, 0], [0, 1]]})
    assert frozen["epsilon_stream"] is None
    assert frozen["epsilon_stream_reason"]


@pytest.mark.long
def test_a_walk_from_any_start_has_a_bound(planner: Planner) -> None:
    spec = {"grid": "2x2", "graph": {"complete": True}, "epsilon": 0.5}
    anyhow, stationary = planner.document(spec), planner.document({**spec, "initial": "stationary"})
    assert stationary["epsilon_stream"] < anyhow["epsilon_stream"] < 1.5 * stationary["epsilon_stream"]
    assert "any start" in anyhow["bound"]


@pytest.mark.long
def test_every_epsilon_of_a_plan_is_one_that_its_policys_check_derives(fugu: Fugu, planner: Planner) -> None:
    lazy = [[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]]
    pair = {"coordinates": [0, 1], "transition": [[0.9, 0.1], [0.3, 0.7]], "graph": {"complete": True}, "epsilon": 0.5}
    few = {"coordinates": [0, 1, 3], "transition": lazy, "graph": {"radius": 2}, "epsilon": 0.3}
    grid = {"grid": "2x2", "graph": {"radius": 1}, "epsilon": 0.4}
    for spec, adversaries in (
        (pair, ("ignorant", "informed")),
        (few, ("informed",)),
        ({**few, "delta": 0.1}, ("ignorant",)),
        ({**grid, "initial": [1, 0, 0, 0]}, ("informed",)),
        ({**grid, "initial": "stationary", "mechanism": "optimal"}, ("ignorant",)),
    ):
        file = planner.folder / "checked.json"
        for adversary in adversaries:
            words = ("--adversary", adversary, "-o", file)
            planned = planner.document({**HEADER, **spec}, *words)
            checked = fugu("check", "policy", file, "--json").json()
            for key in ("epsilon_stream", "adversary", "start", "epsilon_tick", "stretches"):
                assert checked[key] == planned[key], key
            assert planned["epsilon_stream"] is not None
            assert checked["factor"] * checked["epsilon_tick"] == pytest.approx(planned["epsilon_any"], rel=1e-9)
            assert [each["ticks"] for each in checked["stretches"]] == [1, 11, 61, 481, 14 * 61]
            shown = f"{planned['epsilon_stream']:.10g}"
            assert float(shown) == planned["epsilon_stream"]
        assert shown in fugu("check", "policy", file).out


@pytest.mark.long
@pytest.mark.parametrize(
    ("edit", "start"),
    [
        ({"epsilon": 0.01}, "any"),
        ({"epsilon": 1.8}, "any"),
        ({"adversary": "universal"}, "any"),
        ({"start": "given"}, "stationary"),
        ({"start": "any"}, [0.5, 0.5]),
    ],
)
def test_an_edited_epsilon_of_a_stream_is_not_verified(
    fugu: Fugu, planner: Planner, edit: dict[str, Any], start: Any
) -> None:
    steps = [[0.95, 0.05], [0.5, 0.5]]
    spec = {"coordinates": [0, 1], "transition": steps, "graph": {"complete": True}, "epsilon": 0.5, "initial": start}
    document = json.loads(planner.policy(spec).to_json())
    file = planner.folder / "policy.json"
    assert fugu("check", "policy", file).code == 0
    document["initial"] = [0.5, 0.5]
    file.write_text(json.dumps(document | {"stream_loss": document["stream_loss"] | edit}))
    done = fugu("check", "policy", file)
    assert "not verified" in done.refusal()


@pytest.mark.long
def test_many_states_get_staircases(planner: Planner) -> None:
    spec = {"grid": "12x12", "graph": {"radius": 1.5}, "epsilon": 1}
    document = planner.document(spec, "--quick")
    assert document["degree_of_protection"][0] == 4
    assert document["rmse"]["optimal"] == {"raw": None, "released": None, "single": None, "estimate": None}
    assert document["rmse_missing"]["optimal"] == "left out by --quick"
    assert document["rmse"]["staircase"]["estimate"] < document["rmse"]["staircase"]["released"]
    policy = planner.policy(spec, "--quick")
    assert all(isinstance(table.noise, StaircaseNoise) for table in policy.measure_tables)
    assert policy.stream_loss.epsilon is None


@pytest.mark.long
def test_too_much_for_a_device_is_planned_but_makes_no_policy(planner: Planner) -> None:
    points = [[x, y, z] for x in range(5) for y in range(5) for z in range(5)]
    spec = {"coordinates": points, "transition": [[1 / 125] * 125] * 125, "graph": {"radius": 1}, "epsilon": 1}
    document = planner.document(spec, "--quick")
    assert document["rmse"]["staircase"]["estimate"] is None
    done = planner.run({**HEADER, **spec}, "--quick", "-o", planner.folder / "p.json")
    assert "no device can draw such noise" in done.refusal()
    assert not (planner.folder / "p.json").exists()


@pytest.mark.long
def test_a_delta_set_is_an_example(planner: Planner) -> None:
    spec = {**SIX, "initial": [0.4, 0.3, 0.15, 0.1, 0.04, 0.01], "delta": 0.05}
    document = planner.document(spec, "--quick")
    assert document["delta_set"]["likely"] == [0, 1, 2, 3]
    assert document["possible"] == [0, 1, 2, 3, 4, 5]
    policy = planner.policy(spec)
    assert (policy.delta, policy.objective) == (0.05, "error")
    # Any table that a device accepts may come, so the stream is accounted for with the promise itself. State s1 has no
    # edge, and so counts with the factor. Ticks are independent here.
    assert policy.stream_loss.epsilon == pytest.approx(policy.factor)


@pytest.mark.long
def test_a_policy_survives_the_check_of_a_device(planner: Planner) -> None:
    header = {"fleet": "f", "device": "d", "stream": "place", "period": 2, "latency": 17, "valid_until": 2_000_000_000}
    kind = {"kind": "thresholds", "edges": [1, 2, 3, 4, 5]}
    policy = planner.policy({**SIX, **header, "discretiser": kind, "epoch": 1_700_000_000.5, "version": 3})
    policy.verify(1.0)
    assert (policy.fleet, policy.stream, policy.version, policy.frame_ticks) == ("f", "place", 3, 8)
    assert (policy.clock.epoch_us, policy.clock.period_us) == (1_700_000_000_500_000, 2_000_000)
    assert policy.valid_until == 2_000_000_000
    assert (policy.epsilon, policy.factor, policy.graph.model_dump()["edges"][0]) == (1.0, 2, (1, 2))
    assert policy.discretiser.states == ("s0", "s1", "s2", "s3", "s4", "s5")
    assert policy.stream_loss.epsilon == pytest.approx(2)
    assert all(isinstance(table.noise, NoiseTable) for table in policy.measure_tables)


@pytest.mark.long
def test_the_optimal_table_can_be_the_policys(planner: Planner) -> None:
    policy = planner.policy({**SIX, "mechanism": "optimal"})
    assert len(policy.measure_tables[1].noise.points) <= 6
    categories = policy.discretiser.model_dump()["categories"]
    assert categories == {f"s{state}": state for state in range(6)}


@pytest.mark.long
def test_from_traces_to_a_policy_with_cells(fugu: Fugu, planner: Planner, tmp_path: Path) -> None:
    generator = np.random.default_rng(7)
    walk = np.array([52.5, 13.4]) + 0.01 * np.sin(np.cumsum(generator.normal(0, 0.2, size=(4000, 2)), axis=0))
    lines = [f"{latitude!r},{longitude!r}" for latitude, longitude in walk.tolist()]
    rows = "\n".join(f"{60 * tick},{line}" for tick, line in enumerate(lines))
    (tmp_path / "walk.csv").write_text(f"t,lat,lon\n{rows}\n")
    words = ("plan", "model", tmp_path / "walk.csv", "--grid", "--cell", 600, "-o", tmp_path / "model.json")
    assert fugu(*words).code == 0
    model = json.loads((tmp_path / "model.json").read_text())
    spec = {"transition": "model.json", "graph": {"radius": 1.5}, "epsilon": 1}
    document = planner.document(spec, "--quick")
    assert document["names"] == model["names"]
    assert (document["unit"], document["resolution"]) == ("m", [model["resolution"]] * 2)
    assert "leaks" in document["notes"][-1]
    policy = planner.policy(spec, "--quick")
    assert policy.clock.period_us == 60_000_000
    assert policy.discretiser.kind == "cells"
    device = classifier_of(policy.discretiser.model_dump(mode="json"))
    seen = np.bincount([device.observe(tick, line) for tick, line in enumerate(lines)], minlength=len(model["names"]))
    assert np.all(seen >= model["visits"])
    measured = planner.document({**spec, "coordinates": list(range(len(model["names"])))}, "--quick")
    assert (measured["unit"], measured["resolution"]) == ("", [1])


@pytest.mark.long
def test_a_chain_of_pairs_is_fitted_planned_and_checked(fugu: Fugu, planner: Planner, tmp_path: Path) -> None:
    """A walk round three by three cells that seldom turns back: what comes next depends on where it came from."""
    ring = [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2), (0, 1)]
    generator, place, way, step = np.random.default_rng(3), 0, 1, 500 / 111_320
    with (tmp_path / "walk.csv").open("w") as file:
        print("t,lat,lon", file=file)
        for tick in range(6000):
            way = -way if generator.random() < 0.1 else way
            place = (place + way * (generator.random() < 0.6)) % 8
            x, y = ring[place]
            print(f"{60 * tick},{(y + 0.5) * step!r},{(x + 0.5) * step!r}", file=file)
    words = ("plan", "model", tmp_path / "walk.csv", "--grid", "--order", "2", "-o", tmp_path / "pairs.json")
    assert "24 pairs of a cell before and a cell now that come back, of 8 cells" in fugu(*words).out
    model = json.loads((tmp_path / "pairs.json").read_text())
    shows, before = np.array(model["shows"]), np.array(model["before"])
    transition = np.array(model["transition"])
    assert np.all((transition == 0.0) | (shows[:, None] == before[None, :])), "a pair is followed by one that goes on"
    turning = transition[(before[:, None] == shows[None, :]) & (before != shows)[:, None] & (transition > 0.0)]
    assert turning == pytest.approx(np.full(16, 0.06), abs=0.05)
    spec = {"transition": "pairs.json", "graph": {"transition": True}, "epsilon": 0.5, "initial": "stationary"}
    document = planner.document(spec, "--quick")
    assert document["states"] == 8
    assert any("24 states; what is promised is about the 8" in note for note in document["notes"])
    fixed = planner.policy({**spec, "initial": [1.0] + [0.0] * 23}, "--quick")
    reach, states = ConstraintSets(fixed.measurement), {0}
    for tick in range(30):
        possible = {int(shows[state]) for state in states}
        assert {x for x in range(8) if reach.set_at(tick) >> x & 1} == possible
        states = {int(after) for state in states for after in np.flatnonzero(transition[state])}
    assert all(fixed.measurement.neighbours), "from any pair there are ways on"
    policy = planner.policy(spec, "--adversary", "ignorant")
    assert (len(policy.shows), len(policy.coordinates), policy.stream_loss.start) == (24, 8, "stationary")
    checked = fugu("check", "policy", tmp_path / "policy.json", "--ceiling", "1")
    assert checked.code == 0, checked.err
    assert policy.stream_loss.epsilon > 0.5
    refused = planner.document(spec, "--adversary", "universal")
    assert "ignorant adversary only" in refused["epsilon_stream_reason"]


@pytest.mark.long
def test_steps_that_change_make_other_sets_and_other_tables(planner: Planner, fugu: Fugu, tmp_path: Path) -> None:
    """At night everybody goes home, by day nobody knows where they are; each set has its table, the device agrees."""
    home = [[1.0, 0.0, 0.0, 0.0]] * 4
    (tmp_path / "night.json").write_text(json.dumps({"transition": [[0.5, 0.5, 0.0, 0.0]] * 2 + home[:2]}))
    spec: dict[str, Any] = {
        "grid": "4x1",
        "graph": {"radius": 1},
        "epsilon": 1,
        "cycle": 12,
        "changes": [{"tick": 8, "transition": "night.json"}],
    }
    document = planner.document(spec, "--quick")
    assert document["epsilon_stream"] is None
    assert any("change 1 times in each cycle of 12" in note for note in document["notes"])
    policy = planner.policy(spec)
    reach, states = ConstraintSets(policy.measurement), {0, 1, 2, 3}
    seen = set()
    for tick in range(60):
        possible = sum(1 << x for x in states)
        seen.add(possible)
        assert reach.set_at(tick) == possible
        assert any(table.covers(tick, possible) for table in policy.measure_tables[1:])
        rows = policy.matrices[tick % 12 >= 8]
        states = {y for x in states for y in range(4) if rows[x][y] > 0.0}
    assert seen == {0b11, 0b111, 0b1111}
    sets = [reach.set_at(tick) for tick in range(120)]
    repeats_from = json.loads(fugu("check", "policy", tmp_path / "policy.json", "--json").out)["repeats_from"]
    assert sets[repeats_from:-12] == sets[repeats_from + 12 :]
    checked = fugu("check", "policy", tmp_path / "policy.json", "--ceiling", "1")
    assert f"the sets repeat from tick {repeats_from} on" in checked.out
    claims = policy.model_dump(mode="json") | {"stream_loss": {"epsilon": 9.0, "adversary": "ignorant", "start": "any"}}
    (tmp_path / "claims.json").write_text(json.dumps(claims))
    checked = fugu("check", "policy", tmp_path / "claims.json", "--ceiling", "1")
    assert "not computed for steps that change with time" in checked.out + checked.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shows": [0, 1, 2, 3, 4]}, "shows must name all of the 6 states"),
        ({"shows": "pairs"}, "shows must be a list of states"),
        ({"shows": [0, 1, 2, 3, 4, 5, 5]}, "transition is 6 x 6 for 7 states"),
        ({"cycle": 0}, "cycle must be a number of ticks"),
        ({"changes": [{"tick": 1, "transition": SIX["transition"]}]}, "above 0 and below 1"),
        ({"cycle": 9, "changes": [{"tick": 0, "transition": SIX["transition"]}]}, "changes must be a list"),
        ({"cycle": 9, "changes": [{"tick": 3}]}, "changes must be a list"),
        ({"cycle": 9, "changes": [{"tick": 3, "transition": [[1.0]]}]}, "transition is 1 x 1 for 6 states"),
        (
            {"cycle": 9, "changes": [{"tick": 3, "transition": SIX["transition"]}], "initial": "stationary"},
            "no stationary distribution",
        ),
    ],
)
def test_chains_that_are_none_are_refused(planner: Planner, change: dict[str, Any], message: str) -> None:
    assert message in planner.run({**SIX, **change}).refusal()


@pytest.mark.long
def test_for_people_and_as_a_picture(planner: Planner, tmp_path: Path) -> None:
    done = planner.run({**SIX, "names": ["home", "shop", "work", "gym", "pub", "park"]}, "--svg", tmp_path / "a.svg")
    assert (done.code, done.err) == (0, "")
    for piece in (
        "6 states measured in 2 dimensions; policy graph: edges, 4 pairs",
        "(-4, -1) (1, -1) (3, 0) (4, 1) (-1, 1) (-3, 0)",
        "home: 4  shop: 6  work: 3  gym: 5  pub: 4  park: 4",
        "factor 2",
        "all points, about one tick",
    ):
        assert piece in done.out
    picture = (tmp_path / "a.svg").read_text()
    assert picture.startswith("<svg ")
    assert "pub" in picture


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": 1}, "unknown key 'colour'; known are coordinates, grid, "),
        ({"graph": None}, "graph must be one of"),
        ({"graph": {}}, "graph must be one of"),
        ({"graph": {"radius": 1, "complete": True}}, "graph must be one of"),
        ({"graph": {"round": 1}}, "graph: unknown kind 'round'"),
        ({"graph": {"complete": False}}, "graph: complete must be true"),
        ({"graph": {"radius": "1"}}, "graph: radius must be a finite number"),
        ({"graph": {"radius": -1}}, "graph: a radius is at least 0 and finite"),
        ({"graph": {"radius": 1e9}}, "graph: the radius is beyond all coordinates"),
        ({"graph": {"categories": ["a"]}}, "graph: 1 categories for 6 states"),
        ({"graph": {"categories": [[]] * 6}}, "graph: categories must be a list of labels"),
        ({"graph": {"edges": [[0, 6]]}}, "graph: edge (0, 6) does not join two different states of 0..5"),
        ({"graph": {"edges": [[0, "b"]]}}, "graph: edges must be pairs of states"),
        ({"epsilon": 0}, "epsilon must be above 0 and at most 20, got 0"),
        ({"epsilon": 21}, "epsilon must be above 0 and at most 20, got 21"),
        ({"epsilon": True}, "epsilon must be a finite number"),
        ({"epsilon": 10**400}, "epsilon must be a finite number"),
        ({"coordinates": [[1, 0.5]] * 6}, "coordinates must be whole numbers"),
        ({"coordinates": [[1, 2, 3, 4]] * 6}, "measurements are points in 1 to 3 dimensions"),
        ({"coordinates": [[1, 2]] * 6}, "all states measure the same"),
        ({"coordinates": [[1, 2], [3]]}, "coordinates must be a point for each state, of finite numbers"),
        ({"coordinates": [[1, 10**400]] * 6}, "coordinates must be a point for each state, of finite numbers"),
        ({"coordinates": "all"}, "coordinates must be a point for each state, of finite numbers"),
        ({"grid": "10x10"}, "give either coordinates"),
        ({"coordinates": [[1, 2], [3, 4]]}, "transition is 6 x 6 for 2 states"),
        ({"transition": [[1, 2], [3]]}, "transition must be a matrix with a row for each state"),
        ({"transition": None}, "transition is missing"),
        ({"transition": [[0.2] * 6] * 6}, "transition row 0 sums to 1.2, not to 1"),
        ({"transition": [[2, -1, 0, 0, 0, 0]] * 6}, "transition holds a negative probability"),
        ({"initial": [0.5, 0.5]}, "initial must be 6 probabilities that sum to 1"),
        ({"initial": [0.5] * 6}, "initial must be 6 probabilities that sum to 1"),
        ({"names": ["a"] * 6}, "names must be 6 different ones"),
        ({"names": "abcdef"}, "names must be a list of texts"),
        ({"names": ["a", "b", "c", "d", "e", "f\x1b[31m"]}, "names must be printable"),
        ({"resolution": 0}, "resolution must be above 0, got 0"),
        ({"resolution": [1, 2, 3]}, "3 resolutions for coordinates in 2 dimensions"),
        ({"objective": "best"}, "objective must be one of error, nearest, area"),
        ({"mechanism": "laplace"}, "mechanism must be one of staircase, optimal"),
        ({"delta": 1}, "delta must be above 0 and at most 0.999, got 1"),
        ({"unit": 5}, "unit must be a text"),
        ({"cells": 5}, "cells must be the origin and step of a grid"),
    ],
)  # fmt: skip
def test_specifications_that_are_refused(planner: Planner, change: dict[str, Any], message: str) -> None:
    line = planner.run({**SIX, **change}).refusal()
    assert line.startswith(f"fugu: {planner.folder / 'spec.json'}: {message}")


@pytest.mark.parametrize("size", ["10", "0x5", "1x1", "100x100", "3 by 2", 5])
def test_grids_that_are_refused(planner: Planner, size: Any) -> None:
    line = planner.run({"grid": size, "graph": {"complete": True}, "epsilon": 1}).refusal()
    assert 'grid must be "COLUMNSxROWS"' in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "a specification is an object"),
        ("{}", "graph is missing: give {"),
        ('{"graph": {"complete": true}}', "epsilon is missing"),
    ],
)
def test_files_that_are_no_specification(planner: Planner, text: str, message: str) -> None:
    done = planner.run(text)
    assert message in done.refusal()


def test_models_that_are_refused(planner: Planner, fugu: Fugu, tmp_path: Path) -> None:
    spec = {"transition": "model.json", "graph": {"complete": True}, "epsilon": 1}
    assert "model.json: No such file or directory" in planner.run(spec).err
    for text in ("{", "[]", "{}"):
        (tmp_path / "model.json").write_text(text)
        assert "model.json" in planner.run(spec).refusal()
    (tmp_path / "a.toml").write_text("graph = complete\n")
    assert "a.toml is not TOML" in fugu("plan", "measure", tmp_path / "a.toml").err


@pytest.mark.long
@pytest.mark.parametrize(
    ("header", "adversary", "code", "message"),
    [
        ({}, "ignorant", 2, "a policy needs fleet, device, stream, period in "),
        ({**HEADER, "fleet": "ho me"}, "ignorant", 1, "fleet: must be of the form"),
        ({**HEADER, "period": 0}, "ignorant", 1, "epoch, period and latency must be seconds from 0 to 253402300799"),
        ({**HEADER, "latency": 0}, "ignorant", 1, "epoch, period and latency must be seconds from 0 to 253402300799"),
        ({**HEADER, "latency": 10**400}, "ignorant", 1, "epoch, period and latency must be seconds from 0 to"),
        (HEADER, "kind", 2, "adversary must be one of ignorant, informed, universal"),
    ],
)
def test_policies_that_cannot_be_written(
    planner: Planner, header: dict[str, Any], adversary: str, code: int, message: str
) -> None:
    done = planner.run({**SIX, **header}, "-o", planner.folder / "p.json", "--adversary", adversary)
    assert done.refusal(code).startswith(f"fugu: {message}")
    assert not (planner.folder / "p.json").exists()


@pytest.mark.long
def test_states_without_a_way_on_are_refused_by_their_row(planner: Planner) -> None:
    broken = [*SIX["transition"][:5], [0] * 6]
    rounded = [[round(1 / 6, 6)] * 6] * 6
    assert planner.run({**SIX, "transition": rounded}).code == 0
    assert "transition row 5 sums to 0" in planner.run({**SIX, "transition": broken}).err


def test_help_names_every_key(fugu: Fugu) -> None:
    shown = fugu("plan", "measure", "--help").out
    for key in ("coordinates", "grid", "transition", "graph", "epsilon", "initial", "delta", "discretiser", "example"):
        assert key in shown


def test_a_policy_is_checked_and_shown(fugu: Fugu, planner: Planner, tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(measure_policy(3, start=0).to_json())
    shown = fugu("check", "policy", str(file), "--ceiling", "1")
    assert shown.code == 0, shown.err
    assert "9 states, 12 pairs joined by the policy graph" in shown.out
    assert "fallback: 9 points, for any set of possible states, from tick 0" in shown.out
    assert "possible states from tick 0 on: 1, 3, 6, 8, 9; the sets repeat from tick 4 on" in shown.out
    document = json.loads(fugu("check", "policy", str(file), "--json").out)
    assert document["sets"] == [1, 3, 6, 8, 9]
    assert [table["possible_states"] for table in document["tables"]] == [None, 9]
    refused = fugu("check", "policy", str(file), "--ceiling", "0.9")
    assert "above this device's ceiling for measurements 0.9" in refused.refusal()
