"""Plans over networks: the paper's example, the real loss of every mechanism's noise, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fugu.planning.errors import PlanningError
from fugu.planning.network_plan import NetworkPlan, NetworkSpec, plan_network, read_network
from fugu.privacy.bayes_net import SumDistributions
from fugu.privacy.wasserstein import infinity_wasserstein
from fugu_cli.demo.evaluation import RECORDINGS

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "mqm.json").read_text())["3_flu"]
FLU = RECORDINGS / "flu.toml"
COIN = {"name": "a", "table": [0.5, 0.5]}


def written(folder: Path, document: Any) -> Path:
    path = folder / "network.json"
    path.write_text(json.dumps(document))
    return path


def scales(plan: NetworkPlan) -> dict[str, float]:
    return {each.mechanism: each.scale for each in plan.noises}


def lost(spec: NetworkSpec, scale: float) -> float:
    """Loss of Laplace noise on the sum about a secret: every outcome, a fine grid of answers."""
    assert spec.nodes is not None
    joint = spec.network.joint
    outcomes = np.array(list(product(*map(range, joint.shape))))
    sums = sum(np.array([float(add) for add in node.adds])[outcomes[:, axis]] for axis, node in enumerate(spec.nodes))
    answers = np.unique(np.concatenate([sums, np.linspace(sums.min() - 9 * scale, sums.max() + 9 * scale, 301)]))
    density = joint.ravel()[:, None] * np.exp(-np.abs(sums[:, None] - answers[None, :]) / scale)
    worst = 0.0
    for axis, node in enumerate(spec.nodes):
        for pair in spec.secrets.get(node.name, ()):
            at = [outcomes[:, axis] == x for x in pair]
            mass = [joint.ravel()[each].sum() for each in at]
            if min(mass) > 0:
                first, second = (density[each].sum(axis=0) / m for each, m in zip(at, mass, strict=True))
                worst = max(worst, float(np.abs(np.log(first / second)).max()))
    return worst


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_the_flu_clique_of_the_paper(epsilon: float) -> None:
    spec = replace(read_network(FLU), epsilon=epsilon)
    infected = spec.network.joint.ravel(), np.array(list(product((0, 1), repeat=4))).sum(axis=1)
    assert [infected[0][infected[1] == ill].sum() for ill in range(5)] == pytest.approx([0.1, 0.15, 0.5, 0.15, 0.1])
    plan = plan_network(spec)
    by_mechanism = scales(plan)
    assert by_mechanism["wasserstein"] == pytest.approx(GOLDEN["W"] / epsilon, rel=2e-9)
    assert by_mechanism["exact"] == pytest.approx(GOLDEN["exact_laplace_scale"][f"{epsilon:g}"], rel=1e-8)
    assert by_mechanism["group"] == pytest.approx(4 / epsilon)
    assert plan.least_noise.mechanism == "exact"
    for each in plan.noises:
        assert (lost(spec, each.scale) <= epsilon) == each.protects, each.mechanism


def random_document(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    variables: list[dict[str, Any]] = []
    sizes: list[int] = []
    for i in range(5):
        parents = [j for j in range(i) if rng.random() < 0.5][:3]
        size = int(rng.integers(2, 4))
        table = rng.dirichlet(np.full(size, (1.0, 60.0)[seed % 2]), [sizes[j] for j in parents])
        if seed % 5 == 4 and i == 1:
            table = np.zeros_like(table)
            table[..., 0] = 1.0
        variables.append({"name": f"v{i}", "parents": [f"v{j}" for j in parents], "table": table.tolist()})
        sizes.append(size)
    weights = {
        f"v{i}": [round(float(w), 1) for w in rng.uniform(-2, 2, size)] for i, size in enumerate(sizes) if i != 3
    }
    secrets: Any = "all" if seed % 3 else {"v0": [["0", "1"]], "v3": [["1", "0"]]}
    return {
        "epsilon": float(rng.choice([0.4, 1.5, 4.0])),
        "variables": variables,
        "query": {"weights": weights},
        "secrets": secrets,
    }


@pytest.mark.parametrize("seed", range(8))
def test_noise_of_any_network_really_gives_epsilon(seed: int, tmp_path: Path) -> None:
    spec = read_network(written(tmp_path, random_document(seed)))
    plan = plan_network(spec)
    by_mechanism = scales(plan)
    for each in plan.noises:
        if each.protects:
            assert lost(spec, each.scale) <= spec.epsilon * (1 + 1e-12), each.mechanism
            assert by_mechanism["exact"] <= each.scale * (1 + 1e-8)
    assert lost(spec, by_mechanism["exact"] * 0.999) > spec.epsilon
    assert by_mechanism["mqm"] <= by_mechanism["group"] * (1 + 1e-8)
    assert [each.scale for each in plan.noises] == sorted(by_mechanism.values())


@pytest.mark.parametrize("epsilon", [1.9, 3.7, 6.3])
def test_noise_whose_loss_is_the_whole_spread_is_found(epsilon: float, tmp_path: Path) -> None:
    """One coin needs 1 / epsilon exactly, where rounding may put the loss on either side."""
    document = {"epsilon": epsilon, "variables": [COIN], "query": {"weights": [0, 1]}}
    assert scales(plan_network(read_network(written(tmp_path, document))))["exact"] == pytest.approx(1.0 / epsilon)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_distances_are_those_of_the_joint_distribution(seed: int, tmp_path: Path) -> None:
    spec = read_network(written(tmp_path, random_document(seed)))
    assert spec.nodes is not None
    places = {node.name: axis for axis, node in enumerate(spec.nodes)}
    outcomes = list(product(*map(range, spec.network.joint.shape)))
    joint = []
    for outcome in outcomes:
        weight = Fraction(1)
        for node, x in zip(spec.nodes, outcome, strict=True):
            row = 0
            for parent in node.parents:
                row = row * spec.network.joint.shape[places[parent]] + outcome[places[parent]]
            weight *= node.rows[row][x]
        joint.append((outcome, weight))
    assert [float(weight) for _, weight in joint] == pytest.approx(spec.network.joint.ravel())
    answers = [(sum(n.adds[x] for n, x in zip(spec.nodes, o, strict=True)), o, weight) for o, weight in joint]
    distances = [
        infinity_wasserstein(*([(y, w) for y, o, w in answers if o[places[name]] == x] for x in pair))
        for name, pairs in spec.secrets.items()
        for pair in pairs
        if all(any(w and o[places[name]] == x for _, o, w in answers) for x in pair)
    ]
    assert SumDistributions.of(spec.nodes).largest_distance(spec.secrets).distance == max(distances)


def test_a_query_that_is_only_lipschitz_has_no_distributions(tmp_path: Path) -> None:
    document = {"epsilon": 1, "variables": [COIN, {**COIN, "name": "b"}], "query": {"lipschitz": 2.5}}
    plan = plan_network(read_network(written(tmp_path, document)))
    assert scales(plan) == pytest.approx({"mqm": 2.5, "group": 2.5, "entry": 2.5})
    assert set(plan.refused) == {"exact", "wasserstein"}
    assert "weights" in plan.refused["exact"]


def test_a_whole_blanket_separates_where_two_nodes_cannot(tmp_path: Path) -> None:
    noisy = [[0.6, 0.4], [0.4, 0.6]]
    sensors = [{"name": f"s{i}", "parents": ["a"], "table": noisy} for i in range(4)]
    document = {"epsilon": 2.5, "variables": [COIN, *sensors], "query": {"weights": [0, 1]}, "secrets": ["a"]}
    plan = plan_network(read_network(written(tmp_path, document)))
    (mqm,) = (each for each in plan.noises if each.mechanism == "mqm")
    assert mqm.scale == pytest.approx(1 / (2.5 - 4 * np.log(1.5)))
    assert "quilt s0, s1, s2, s3" in mqm.reason


@pytest.mark.long
def test_more_outcomes_than_can_be_added_up(tmp_path: Path) -> None:
    coins = [{**COIN, "name": f"c{i}"} for i in range(17)]
    plan = plan_network(
        read_network(written(tmp_path, {"epsilon": 1, "variables": coins, "query": {"weights": [0, 1]}}))
    )
    assert plan.least_noise.scale == pytest.approx(1.0)
    assert "131072 outcomes are too many" in plan.refused["wasserstein"]


CHILD = {"name": "b", "parents": ["a"], "table": [[0.5, 0.5], [0.1, 0.9]]}
GOOD: dict[str, Any] = {"epsilon": 1, "variables": [COIN, CHILD], "query": {"weights": [0, 1]}}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "an object with the keys"),
        ({**GOOD, "colour": 1}, "unknown key 'colour'"),
        ({**GOOD, "epsilon": 0}, "epsilon must be a number above 0"),
        ({**GOOD, "epsilon": "1"}, "epsilon must be a number"),
        ({**GOOD, "epsilon": float("nan")}, "epsilon must be a number"),
        ({**GOOD, "variables": []}, "variables must be a list"),
        ({**GOOD, "variables": [CHILD, COIN]}, "no variable 'a' before it"),
        ({**GOOD, "variables": [COIN, COIN]}, "two variables are called 'a'"),
        ({**GOOD, "variables": [{"table": [1]}]}, "needs a name"),
        ({**GOOD, "variables": [{**COIN, "table": [0.5, 0.6]}]}, "sum to 1"),
        ({**GOOD, "variables": [{**COIN, "table": [1.5, -0.5]}]}, "sum to 1"),
        ({**GOOD, "variables": [{**COIN, "table": ["1/0", 1]}]}, "a fraction such as"),
        ({**GOOD, "variables": [{**COIN, "table": ["1e999999999", 1]}]}, "a fraction such as"),
        ({**GOOD, "variables": [{**COIN, "table": [True, 0]}]}, "must be a number"),
        ({**GOOD, "variables": [{**COIN, "table": 3}]}, "rows of probabilities"),
        ({**GOOD, "variables": [{**COIN, "values": ["x"]}]}, "must be 2 different names"),
        ({**GOOD, "variables": [COIN, {**CHILD, "table": [0.5, 0.5]}]}, "rows of probabilities"),
        ({**GOOD, "variables": [COIN, {**CHILD, "table": [[0.5, 0.5]]}]}, "needs 2 rows"),
        ({**GOOD, "variables": [COIN, {**CHILD, "parents": ["a", "a"]}]}, "named twice"),
        ({**GOOD, "variables": [{**COIN, "name": f"c{i}"} for i in range(21)]}, "joint states"),
        ({**GOOD, "query": {"weights": [0, 1, 2]}}, "needs 2 weights"),
        ({**GOOD, "query": {"weights": [1, 1]}}, "nothing to release"),
        ({**GOOD, "query": {"weights": {"z": [0, 1]}}}, "no variable 'z'"),
        ({**GOOD, "query": {"lipschitz": -1}}, "above 0"),
        ({**GOOD, "query": "count"}, "query must be"),
        ({**GOOD, "secrets": []}, "secrets must be"),
        ({**GOOD, "secrets": ["z"]}, "no variable 'z'"),
        ({**GOOD, "secrets": {"a": [["0", "0"]]}}, "pairs of two of its values"),
        ({**GOOD, "secrets": {"a": [["0", 1]]}}, "pairs of two of its values"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(document: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(PlanningError, match=reason) as caught:
        read_network(written(tmp_path, document))
    assert "\n" not in str(caught.value)


def test_a_network_without_a_secret(tmp_path: Path) -> None:
    sure = {"epsilon": 1, "variables": [{"name": "a", "table": [1, 0]}], "query": {"weights": [0, 1]}}
    with pytest.raises(PlanningError, match="no secret has two values"):
        plan_network(read_network(written(tmp_path, sure)))
