"""Secrets of the papers beside one reading: sequences, against close adversaries, in random fields, and of beliefs.

DPHMM theorems 7.1 and 7.2; MQM theorem 2.4, definition 4.1 and algorithm 2 on undirected graphs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from fugu.chains.arrays import Floats
from fugu.contract.measure_policy import MeasurePolicy
from fugu.contract.policies import read_policy
from fugu.places.composition import accepted_loss
from fugu.places.graphs import complete, lattice
from fugu.places.hull import graph_hull
from fugu.places.tables import build_table, table_loss
from fugu.planning.errors import PlanningError
from fugu.privacy.accountant import ChainAccountant
from fugu.privacy.bayes_net import BayesNet, BayesNode
from fugu.privacy.chain_class import MarkovChain
from papers.composition import joint_epsilon, joint_loss, sequence_epsilon, stacked, trajectory_loss
from papers.dphmm import GRAPH, VALUES, chosen
from papers.quilts import model_distance
from papers.rows import Found, Row, Setting, at_most
from papers.window_releases import NoisyCount, answer_distributions, noisy, worst_ratio

__all__ = ["Field", "adversaries", "beliefs", "field", "fields", "sequences"]

_BETWEEN = ((1, 2, 3, 2), (4, 3, 5, 4))


def sequences(setting: Setting) -> Found:
    """Theorems 7.1 and 7.2: what points tell between two whole sequences (--between, --policy), and several queries."""
    first, second = setting.between or _BETWEEN
    if setting.policy is None:
        hull = graph_hull(VALUES, GRAPH)
        loss = table_loss(build_table(hull, VALUES, chosen(), 1.0).weights)
        epsilon, factor, about = 1.0, math.ceil(hull.largest_gauge(VALUES)), "example 5.1, epsilon 1"
    else:
        policy = read_policy(setting.policy.read_bytes())
        if not isinstance(policy, MeasurePolicy):
            raise PlanningError(f"{setting.policy}: releases no points; give a policy of measured states")
        loss = accepted_loss(policy.measurement)
        epsilon, factor, about = policy.epsilon, policy.factor, f"{setting.policy.name}, epsilon {policy.epsilon:g}"
    if len(first) != len(second) or not all(0 <= state < len(loss) for state in (*first, *second)):
        raise PlanningError(f"sequences between which points may tell are as long, of states 0 to {len(loss) - 1}")
    words = " and ".join(" ".join(map(str, states)) for states in (first, second))
    lost = trajectory_loss([loss] * len(first), first, second)
    bound = sequence_epsilon([epsilon] * len(first), [factor] * len(first))
    rows = [at_most(f"{about}: what {len(first)} points tell between states {words}", lost, bound)]
    for ticks in range(1, len(first)):
        lost = trajectory_loss([loss] * ticks, first[:ticks], second[:ticks])
        rows.append(Row(f"{about}: what the first {ticks} of them tell", lost))
    note = (
        "States count from 0. What is told between two sequences is exact for the example's table, and for a policy "
        "the most that any table does which a device accepts. The bound is theorem 7.2: epsilon times theorem 6.3's "
        "factor, added up over ticks. No bound of sequences stays below a limit: one tick after another is told."
    )
    return Found([*rows, *_queries()], notes=[note])


def _queries() -> Iterable[Row]:
    """Theorem 7.1 where it holds: two queries that protect the same pairs."""
    queries, graph = (lattice([0, 1, 2, 3]), lattice([0, 2, 1, 3])), complete(4)
    hulls = [graph_hull(values, graph) for values in queries]
    tables = [
        build_table(hull, values, np.ones(4, dtype=np.bool_), 1.0) for hull, values in zip(hulls, queries, strict=True)
    ]
    both, bound = (
        float(joint_loss([table_loss(table.weights) for table in tables]).max()),
        joint_epsilon([graph] * 2, [1, 1]),
    )
    yield at_most("two queries, all pairs protected, epsilon 1 each: both together", both, bound)
    values = stacked(*queries)
    single = build_table(graph_hull(values, graph), values, np.ones(4, dtype=np.bool_), 2.0)
    yield Row("the same as one stacked query at epsilon 2", float(table_loss(single.weights).max()))


_CHAINS = ([[0.9, 0.1], [0.4, 0.6]], [[0.91, 0.09], [0.4, 0.6]])


def adversaries(setting: Setting) -> Found:
    """Theorem 2.4: noise for one chain, an adversary who believes another (--chains FILE), and its Delta."""
    assumed, actual = (MarkovChain.stationary(chain) for chain in _given(setting.chains) or _CHAINS)
    rate = ChainAccountant((assumed,)).allowance(1.0)
    together = 1.0 / ChainAccountant((assumed, actual)).allowance(1.0)
    rows = []
    for ticks in (2, 4, 8):
        delta = model_distance(assumed, actual, ticks)
        counts = [NoisyCount(1, ticks, (assumed.states - 1,), 1.0 / rate)]
        secrets = answer_distributions(actual, counts)
        lost = max(worst_ratio(noisy(secret.distributions, counts)) for secret in secrets)
        about = f"a count of {ticks} ticks, noise for epsilon 1 under the assumed chain"
        rows.append(at_most(f"{about}: lost to who believes the other", lost, 1.0 + 2.0 * delta))
    rows += [Row(f"Delta of {ticks} ticks", model_distance(assumed, actual, ticks)) for ticks in (2, 10, 100)]
    endless_loss = ChainAccountant((actual,)).loss(rate).epsilon
    rows.append(Row("endless stream: lost to who believes the other, by the accountant", endless_loss))
    rows.append(Row("scale of a count for epsilon 1: the assumed chain", 1.0 / rate))
    rows.append(Row("the same: a class of both chains", together))
    note = (
        "Delta grows with the length, so its bound is useless for a stream. A class of both chains costs the noise of "
        "the worse one. Counted are ticks in the last state."
    )
    return Found(rows, notes=[note])


def _given(file: Path | None) -> tuple[list[list[float]], list[list[float]]] | None:
    """The transition matrices of a file, the assumed one and the adversary's.

    Raises:
        PlanningError: they are not there.
    """
    if file is None:
        return None
    try:
        document = json.loads(file.read_text())
        return document["assumed"], document["actual"]
    except (ValueError, KeyError, TypeError):
        raise PlanningError(f'{file}: needs {{"assumed": a transition matrix, "actual": another}}, as JSON') from None


@dataclass(frozen=True, eq=False)
class Field(BayesNet):
    """A Markov random field: a positive distribution that an undirected graph describes.

    A quilt needs nothing of a network but this: given it, what lies beyond is independent of the secret. In a positive
    field that is so whenever the quilt separates the two in the graph (the global Markov property). So definition 4.1
    and algorithm 2 carry over, with separation in the graph for d-separation.
    """

    neighbours: tuple[frozenset[str], ...] = ()

    def connected_nodes(self, node: str, observed: Iterable[str]) -> frozenset[str]:
        """The variables that the given ones do not separate from one: itself among them, none of those."""
        seen, waiting = set(observed), [node]
        reached: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                reached.add(name)
                waiting += self.moral_neighbours[name]
        return frozenset(reached)

    @cached_property
    def moral_neighbours(self) -> dict[str, frozenset[str]]:
        """The neighbours of each variable."""
        return {node.name: near for node, near in zip(self.nodes, self.neighbours, strict=True)}


def field(joint: Floats, edges: Iterable[tuple[int, int]]) -> Field:
    """A field from its joint distribution, an axis for each variable, and the edges of its graph.

    Raises:
        PlanningError: something is impossible, so that the graph may not describe it.
    """
    if not np.all(joint > 0.0):
        raise PlanningError("a field needs a chance above 0 for everything: separation says nothing otherwise")
    names = tuple(f"x{axis}" for axis in range(joint.ndim))
    nodes = []
    for axis in range(joint.ndim):
        marginal = joint.sum(axis=tuple(range(axis + 1, joint.ndim)))
        nodes.append(BayesNode(names[axis], names[:axis], marginal / marginal.sum(axis=-1, keepdims=True)))
    near: list[set[str]] = [set() for _ in names]
    for a, b in edges:
        near[a].add(names[b])
        near[b].add(names[a])
    return Field(tuple(nodes), tuple(map(frozenset, near)))


def fields(setting: Setting) -> Found:
    """Markov random fields: quilts of a ring of sensors, epsilon 1, and what their noise really loses."""
    rows = []
    size = 8 if setting.quick else 12
    edges = [(at, (at + 1) % size) for at in range(size)]
    states = np.array(list(product((0, 1), repeat=size)))
    for coupling in (0.1, 0.3):
        alike = sum((states[:, a] == states[:, b]).astype(float) for a, b in edges)
        weights = np.exp(2.0 * coupling * alike)
        joint = (weights / weights.sum()).reshape((2,) * size)
        scale = field(joint, edges).quilt_scale(1.0)
        about, lost = f"ring of {size}, coupling {coupling:g}", _lost(joint, states, scale.scale)
        rows.append(Row(f"{about}: scale of a count by quilts, {', '.join(scale.quilt) or 'none'}", scale.scale))
        rows.append(at_most(f"{about}: what that noise really loses", lost, 1.0, computed=False))
        rows.append(Row(f"{about}: scale of GroupDP", float(size)))
    note = "A ring is no tree, and has no directed network with the same independences: its quilts are by separation."
    return Found(rows, notes=[note])


def _lost(joint: Floats, states: np.ndarray, scale: float) -> float:
    """The most that a noisy count tells of one variable; ratios are extreme where an answer is a count."""
    counts, chances = states.sum(axis=1), joint.ravel()
    answers = np.arange(counts.max() + 1)
    density = chances[:, None] * np.exp(-np.abs(counts[:, None] - answers) / scale)
    worst = 0.0
    for variable in range(states.shape[1]):
        inside = states[:, variable] == 1
        ratio = np.log(density[inside].sum(axis=0) / chances[inside].sum())
        ratio -= np.log(density[~inside].sum(axis=0) / chances[~inside].sum())
        worst = max(worst, float(np.abs(ratio).max()))
    return worst


def beliefs(setting: Setting) -> Found:
    """A belief after a point: posterior over prior probability of a state, for any belief, epsilon 1."""
    rows = []
    for name, graph in (("graph of example 5.1", GRAPH), ("complete graph", complete(6))):
        hull = graph_hull(VALUES, graph)
        weights = build_table(hull, VALUES, chosen(), 1.0).weights.astype(np.float64)
        # posterior over prior for a belief that is all but certain of j
        ratios = weights[:, None, :] / weights[None, :, :]
        factor = math.ceil(hull.largest_gauge(VALUES))
        near = float(np.log(ratios[graph].max()))
        rows.append(at_most(f"{name}: ln of the most, beliefs on two joined states", near, 1.0, computed=False))
        anyone = float(np.log(ratios.max()))
        rows.append(at_most(f"{name}: ln of the most, any belief; epsilon times the factor", anyone, float(factor)))
        evenly = float(np.log((weights / weights.mean(axis=0)).max()))
        rows.append(Row(f"{name}: ln of the most, all six states as likely", evenly))
    note = (
        "Definition 10.9, adversarial privacy: no output makes a state of the set more than e^epsilon times as likely "
        "as it was. For every belief on a set of states that is epsilon for all of its pairs. The reason: a belief can "
        "be all but certain of any other state. A policy graph gives it with epsilon only for beliefs on joined "
        "states, the complete graph for all."
    )
    return Found(rows, notes=[note])
