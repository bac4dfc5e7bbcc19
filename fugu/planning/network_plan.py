"""Plan one release over a small Bayesian network: the noise that each mechanism needs for the same epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fugu.contract.errors import FuguError
from fugu.planning.errors import PlanningError
from fugu.planning.measure_spec import read_specification, refuse_unknown_keys
from fugu.privacy.bayes_net import BayesNet, BayesNode, ExactNode, Secrets, SumDistributions
from fugu.privacy.chain_class import ChainClassError

__all__ = ["NetworkPlan", "NetworkSpec", "plan_network", "read_network"]


_KEYS = ("epsilon", "query", "secrets", "variables")
_VARIABLE = ("name", "parents", "table", "values")
_SECRETS = '"all", a list of variables, or pairs of values by variable, such as {ann = [["well", "ill"]]}'
_QUERY = "{weights = [what each value adds]}, the same by variable, or {lipschitz = most that one variable changes}"
_MOST_EPSILON = 20.0
_LONGEST_NUMBER = 60
_SUM_TOLERANCE = Fraction(1, 10**9)
_Values = dict[str, tuple[str, ...]]
"""The names of each variable's values."""


@dataclass(frozen=True, eq=False)
class NetworkSpec:
    """The specification of a release.

    `network` is used for influences. `nodes` holds the same network with exact fractions and each value's amount in the
    answer; it is `None` for a query known only to be Lipschitz. `sensitivities` holds the largest change of the answer
    by each variable alone. `secrets` holds pairs of values that nobody may tell apart.
    """

    epsilon: float
    network: BayesNet
    nodes: tuple[ExactNode, ...] | None
    sensitivities: dict[str, float]
    values: _Values
    secrets: Secrets

    @cached_property
    def distributions(self) -> SumDistributions:
        """The distributions of the answer. FuguError: they cannot be computed."""
        if self.nodes is None:
            raise PlanningError("needs to know what each value adds: give the query as weights")
        return SumDistributions.of(self.nodes)


class _Variable(NamedTuple):
    name: str
    values: tuple[str, ...]
    parents: tuple[str, ...]
    rows: tuple[tuple[Fraction, ...], ...]


def read_network(path: Path) -> NetworkSpec:
    """Read a TOML or JSON file. PlanningError: the file is wrong; one line says why."""
    fields = read_specification(path, _KEYS)
    try:
        return _parse_spec(fields)
    except (PlanningError, ChainClassError) as error:
        raise PlanningError(f"{path}: {error}") from None


def _parse_spec(fields: dict[str, Any]) -> NetworkSpec:
    refuse_unknown_keys(fields, _KEYS)
    epsilon: Any = fields.get("epsilon")
    if type(epsilon) not in (int, float) or not 0.0 < epsilon <= _MOST_EPSILON:
        raise PlanningError(f"epsilon must be a number above 0 and at most {_MOST_EPSILON:g}, got {epsilon!r:.40}")
    variable_fields = fields.get("variables")
    if not isinstance(variable_fields, list) or not variable_fields:
        raise PlanningError("variables must be a list of at least one variable: name, table, parents, values")
    variables: dict[str, _Variable] = {}
    for variable_entry in variable_fields:
        variable = _parse_variable(variable_entry, variables)
        variables[variable.name] = variable
    values = {name: variable.values for name, variable in variables.items()}
    network_nodes = []
    for name, _, parents, rows in variables.values():
        shape = [len(values[variable]) for variable in (*parents, name)]
        network_nodes.append(BayesNode(name, parents, np.array(rows, dtype=np.float64).reshape(shape)))
    amounts, sensitivities = _parse_query(fields.get("query"), values)
    nodes = None
    if amounts is not None:
        nodes = tuple(ExactNode(name, parents, rows, amounts[name]) for name, _, parents, rows in variables.values())
    return NetworkSpec(
        epsilon=float(epsilon),
        network=BayesNet(tuple(network_nodes)),
        nodes=nodes,
        sensitivities=sensitivities,
        values=values,
        secrets=_parse_secrets(fields.get("secrets", "all"), values),
    )


def _parse_variable(fields: Any, variables: dict[str, _Variable]) -> _Variable:
    name = fields.get("name") if isinstance(fields, dict) else None
    if not isinstance(name, str) or not name or not name.isprintable():
        raise PlanningError("a variable needs a name: a text without line breaks")
    where = f"variable {name!r:.60}: "
    refuse_unknown_keys(fields, _VARIABLE, where)
    if name in variables:
        raise PlanningError(f"two variables are called {name!r:.60}")
    parents = fields.get("parents", [])
    if not isinstance(parents, list) or not all(isinstance(parent, str) for parent in parents):
        raise PlanningError(f"{where}parents must be a list of names")
    for parent in parents:
        if parent not in variables:
            raise PlanningError(f"{where}there is no variable {parent!r:.60} before it: parents are listed first")
    if len(set(parents)) != len(parents):
        raise PlanningError(f"{where}a parent is named twice")
    rows = _parse_rows(fields.get("table"), [len(variables[parent].values) for parent in parents], where)
    values = fields.get("values", [str(x) for x in range(len(rows[0]))])
    if not isinstance(values, list) or not all(isinstance(value, str) and value.isprintable() for value in values):
        raise PlanningError(f"{where}values must be a list of names")
    if len(values) != len(rows[0]) or len(set(values)) != len(values):
        raise PlanningError(f"{where}values must be {len(rows[0])} different names, as many as a row of its table has")
    return _Variable(name, tuple(values), tuple(parents), rows)


def _parse_rows(table: Any, shape: list[int], where: str) -> tuple[tuple[Fraction, ...], ...]:
    """Flatten a table with a level for each parent, the last one innermost, into rows of probabilities."""
    nested_rows = [table]
    for size in shape:
        if not all(isinstance(line, list) and len(line) == size for line in nested_rows):
            raise PlanningError(f"{where}its table needs {' x '.join(map(str, shape))} rows, a level for each parent")
        nested_rows = [subline for line in nested_rows for subline in line]
    if not all(isinstance(row, list) and row for row in nested_rows) or len({len(row) for row in nested_rows}) != 1:
        raise PlanningError(f"{where}its table needs rows of probabilities, all of one length")
    table_rows = []
    for row in nested_rows:
        distribution = [_parse_number(p, f"{where}a probability") for p in row]
        if min(distribution) < 0 or abs(sum(distribution) - Fraction(1)) > _SUM_TOLERANCE:
            raise PlanningError(f"{where}the row {', '.join(map(str, row)):.60} must be probabilities that sum to 1")
        table_rows.append(tuple(p / sum(distribution) for p in distribution))
    return tuple(table_rows)


def _parse_query(query: Any, values: _Values) -> tuple[dict[str, tuple[Fraction, ...]] | None, dict[str, float]]:
    """Read each value's amount in the answer, and each variable's largest change; a Lipschitz query has no amounts."""
    if not isinstance(query, dict) or len(query) != 1 or not set(query) <= {"weights", "lipschitz"}:
        raise PlanningError(f"query must be {_QUERY}")
    if "lipschitz" in query:
        sensitivity = _parse_number(query["lipschitz"], "query: lipschitz")
        if sensitivity <= 0:
            raise PlanningError("query: lipschitz must be above 0")
        return None, dict.fromkeys(values, float(sensitivity))
    weights = query["weights"]
    weights_of = weights if isinstance(weights, dict) else dict.fromkeys(values, weights)
    for name in weights_of:
        if name not in values:
            raise PlanningError(f"query: there is no variable {name!r:.60}")
    amounts = {}
    for name, value_names in values.items():
        weights = weights_of.get(name, [0] * len(value_names))
        if not isinstance(weights, list) or len(weights) != len(value_names):
            raise PlanningError(f"query: {name!r:.60} needs {len(value_names)} weights, one for each of its values")
        amounts[name] = tuple(_parse_number(weight, f"query: a weight of {name!r:.60}") for weight in weights)
    sensitivities = {name: float(max(amount_row) - min(amount_row)) for name, amount_row in amounts.items()}
    if not any(sensitivities.values()):
        raise PlanningError("query: all weights of a variable are alike, so there is nothing to release")
    return amounts, sensitivities


def _parse_secrets(secrets: Any, values: _Values) -> Secrets:
    if secrets == "all":
        secrets = list(values)
    if not isinstance(secrets, list | dict) or not secrets:
        raise PlanningError(f"secrets must be {_SECRETS}")
    secret_pairs = {}
    for name in secrets:
        if not isinstance(name, str) or name not in values:
            raise PlanningError(f"secrets: there is no variable {name!r:.60}")
        labels = values[name]
        if isinstance(secrets, list):
            secret_pairs[name] = tuple(combinations(range(len(labels)), 2))
            continue
        pairs = secrets[name]
        if not isinstance(pairs, list) or not pairs:
            raise PlanningError(f"secrets must be {_SECRETS}")
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or pair[0] == pair[1] or not all(x in labels for x in pair):
                raise PlanningError(f"secrets: {name!r:.60} needs pairs of two of its values {', '.join(labels):.60}")
        secret_pairs[name] = tuple((labels.index(a), labels.index(b)) for a, b in pairs)
    return secret_pairs


def _parse_number(value: Any, subject: str) -> Fraction:
    """Read a number exactly as written: a fraction such as "31/60", or the decimal that a float prints as."""
    error = PlanningError(f'{subject} must be a number, or a fraction such as "1/3", got {value!r:.40}')
    if type(value) is float and math.isfinite(value):
        return Fraction(repr(value))
    if type(value) is int and abs(value) < 10**_LONGEST_NUMBER:
        return Fraction(value)
    if not isinstance(value, str) or len(value) > _LONGEST_NUMBER or "e" in value.lower():
        raise error
    try:
        return Fraction(value)
    except (ValueError, ZeroDivisionError):
        raise error from None


NetworkMechanism: TypeAlias = Literal["exact", "wasserstein", "mqm", "group", "entry"]
_OUTWARD = 1.0 + 1e-9


class NetworkNoise(NamedTuple):
    """The Laplace scale that a mechanism needs, in the answer's unit, rounded up, and the reason for it.

    `protects` says whether the noise keeps epsilon if variables depend on one another.
    """

    mechanism: NetworkMechanism
    scale: float
    protects: bool
    reason: str


class NetworkPlan(NamedTuple):
    """The noise of each possible mechanism, the least first, and the reasons against the other mechanisms."""

    noises: tuple[NetworkNoise, ...]
    refused: dict[NetworkMechanism, str]

    @property
    def least_noise(self) -> NetworkNoise:
        """The least noise that protects dependent variables."""
        return next(noise for noise in self.noises if noise.protects)


def plan_network(spec: NetworkSpec) -> NetworkPlan:
    """Find the noise of every mechanism. FuguError: no secret has two possible values, or a joint state is too rare."""
    secrets = _possible_secrets(spec)
    noises, refused = [], {}
    for name, find_scale in _MECHANISMS.items():
        try:
            scale, reason = find_scale(spec, secrets)
        except FuguError as error:
            refused[name] = str(error)
        else:
            noises.append(NetworkNoise(name, scale * _OUTWARD, name != "entry", reason))
    return NetworkPlan(tuple(sorted(noises, key=lambda network_noise: network_noise.scale)), refused)


def _possible_secrets(spec: NetworkSpec) -> Secrets:
    joint = spec.network.joint
    secrets = {}
    for axis, node in enumerate(spec.network.nodes):
        is_possible = joint.max(axis=tuple(other for other in range(joint.ndim) if other != axis)) > 0.0
        if pairs := tuple((a, b) for a, b in spec.secrets.get(node.name, ()) if is_possible[a] and is_possible[b]):
            secrets[node.name] = pairs
    if not secrets:
        raise PlanningError("no secret has two values that are both possible")
    return secrets


def _secret_words(spec: NetworkSpec, node: str, value_pair: tuple[int, int]) -> str:
    first_name, second_name = (spec.values[node][x] for x in value_pair)
    return f"{node}: {first_name} or {second_name}"


def _exact_scale(spec: NetworkSpec, secrets: Secrets) -> tuple[float, str]:
    exact_scale = spec.distributions.least_scale(secrets, spec.epsilon)
    return exact_scale.scale, f"every outcome added up; {_secret_words(spec, exact_scale.node, exact_scale.values)}"


def _wasserstein_scale(spec: NetworkSpec, secrets: Secrets) -> tuple[float, str]:
    furthest = spec.distributions.largest_distance(secrets)
    scale = float(furthest.distance) / spec.epsilon
    return scale, f"distance {furthest.distance}; {_secret_words(spec, furthest.node, furthest.values)}"


def _quilt_scale(spec: NetworkSpec, secrets: Secrets) -> tuple[float, str]:
    network_quilt = spec.network.quilt_scale(spec.epsilon, sensitivities=spec.sensitivities, secrets=secrets)
    quilt = ", ".join(network_quilt.quilt) or "none"
    return (
        network_quilt.scale,
        f"{network_quilt.node}: quilt {quilt}; {len(network_quilt.nearby)} near, "
        f"influence {network_quilt.influence:.4g}",
    )


def _group_scale(spec: NetworkSpec, secrets: Secrets) -> tuple[float, str]:
    groups = [{name, *chain.from_iterable(spec.network.layers(name))} for name in secrets]
    sensitivity, group_size = max((sum(spec.sensitivities[name] for name in group), len(group)) for group in groups)
    return sensitivity / spec.epsilon, f"{group_size} variables that depend on one another are one secret"


def _entry_scale(spec: NetworkSpec, secrets: Secrets) -> tuple[float, str]:
    sensitivity = max(spec.sensitivities[name] for name in secrets)
    return sensitivity / spec.epsilon, "takes variables for independent: does not protect correlated ones"


_MECHANISMS: dict[NetworkMechanism, Callable[[NetworkSpec, Secrets], tuple[float, str]]] = {
    "exact": _exact_scale,
    "wasserstein": _wasserstein_scale,
    "mqm": _quilt_scale,
    "group": _group_scale,
    "entry": _entry_scale,
}
