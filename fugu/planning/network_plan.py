"""Plan one release over a small Bayesian network: what noise each mechanism needs for the same epsilon."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

from fugu.contract.errors import FuguError
from fugu.planning.errors import PlanningError
from fugu.planning.network_spec import NetworkSpec
from fugu.privacy.bayes_net import Secrets, network_quilt_scale
from fugu.privacy.influence import joint_influence_scale
from fugu.privacy.network_distributions import SumDistributions, exact_scale, network_distance, sum_distributions

__all__ = ["NetworkMechanism", "NetworkNoise", "NetworkPlan", "plan_network"]

NetworkMechanism: TypeAlias = Literal["exact", "wasserstein", "mqm", "gk16", "group", "entry"]
_OUTWARD = 1.0 + 1e-9


class NetworkNoise(NamedTuple):
    """What a mechanism needs.

    Attributes:
        mechanism: its name.
        scale: of the Laplace noise on the answer, in its unit; rounded up.
        protects: whether that keeps epsilon where readings depend on one another.
        reason: what determined the scale.
    """

    mechanism: NetworkMechanism
    scale: float
    protects: bool
    reason: str


class NetworkPlan(NamedTuple):
    """What every mechanism needs.

    Attributes:
        found: those that can be had, the least noise first.
        refused: by mechanism, why it cannot be had.
    """

    found: tuple[NetworkNoise, ...]
    refused: dict[NetworkMechanism, str]

    @property
    def least(self) -> NetworkNoise:
        """The least noise that protects."""
        return next(each for each in self.found if each.protects)


class _Case(NamedTuple):
    """What is planned: the secrets with two possible values, and distributions of the answer, or why none are known."""

    spec: NetworkSpec
    secrets: Secrets
    known: SumDistributions | str

    @property
    def distributions(self) -> SumDistributions:
        if isinstance(self.known, str):
            raise PlanningError(self.known)
        return self.known

    def told(self, node: str, values: tuple[int, int]) -> str:
        first, second = (self.spec.values[node][x] for x in values)
        return f"{node}: {first} or {second}"


def plan_network(spec: NetworkSpec) -> NetworkPlan:
    """The noise of every mechanism.

    Raises:
        FuguError: nothing in the network is a secret.
    """
    case = _Case(spec, _possible(spec), _distributions(spec))
    found, refused = [], {}
    for name, noise in _OF.items():
        try:
            scale, reason = noise(case)
        except FuguError as error:
            refused[name] = str(error)
        else:
            found.append(NetworkNoise(name, scale * _OUTWARD, name != "entry", reason))
    return NetworkPlan(tuple(sorted(found, key=lambda each: each.scale)), refused)


def _distributions(spec: NetworkSpec) -> SumDistributions | str:
    if spec.nodes is None:
        return "needs to know what each value adds: give the query as weights"
    try:
        return sum_distributions(spec.nodes)
    except FuguError as error:
        return str(error)


def _possible(spec: NetworkSpec) -> Secrets:
    joint = spec.network.joint
    found = {}
    for axis, node in enumerate(spec.network.nodes):
        distribution = joint.sum(axis=tuple(other for other in range(joint.ndim) if other != axis))
        pairs = tuple(
            (a, b) for a, b in spec.secrets.get(node.name, ()) if distribution[a] > 0.0 and distribution[b] > 0.0
        )
        if pairs:
            found[node.name] = pairs
    if not found:
        raise PlanningError("no secret has two values that are both possible")
    return found


def _exact(case: _Case) -> tuple[float, str]:
    found = exact_scale(case.distributions, case.secrets, case.spec.epsilon)
    return found.scale, f"every outcome added up; {case.told(found.node, found.values)}"


def _wasserstein(case: _Case) -> tuple[float, str]:
    found = network_distance(case.distributions, case.secrets)
    return float(
        found.distance
    ) / case.spec.epsilon, f"distance {found.distance}; {case.told(found.node, found.values)}"


def _mqm(case: _Case) -> tuple[float, str]:
    spec = case.spec
    found = network_quilt_scale(spec.network, spec.epsilon, sensitivities=spec.sensitivities, secrets=case.secrets)
    quilt = ", ".join(found.quilt) or "none"
    return found.scale, f"{found.node}: quilt {quilt}; {len(found.nearby)} near, influence {found.influence:.4g}"


def _gk16(case: _Case) -> tuple[float, str]:
    names = [node.name for node in case.spec.network.nodes]
    sensitivities = [case.spec.sensitivities[name] for name in names]
    secret = [names.index(name) for name in case.secrets]
    found = joint_influence_scale(case.spec.network.joint, sensitivities, secret, case.spec.epsilon)
    return found.scale, f"influence matrix of spectral norm up to {found.norm:.4g}"


def _group(case: _Case) -> tuple[float, str]:
    groups = []
    for name in case.secrets:
        group = {name, *chain.from_iterable(case.spec.network.layers(name))}
        groups.append((sum(case.spec.sensitivities[other] for other in group), len(group)))
    most, size = max(groups)
    return most / case.spec.epsilon, f"{size} variables that depend on one another are one secret"


def _entry(case: _Case) -> tuple[float, str]:
    most = max(case.spec.sensitivities[name] for name in case.secrets)
    return most / case.spec.epsilon, "takes variables for independent: does not protect correlated ones"


_OF: dict[NetworkMechanism, Callable[[_Case], tuple[float, str]]] = {
    "exact": _exact,
    "wasserstein": _wasserstein,
    "mqm": _mqm,
    "gk16": _gk16,
    "group": _group,
    "entry": _entry,
}
