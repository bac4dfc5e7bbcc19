"""Readings become states, in integers; the same states as the agent's `fugu.contract.discretisers` has.

A reading is an integer in the policy's unit, or of a policy of names anything with a text; None is a missing reading.
All that is remembered is in memory, and gone after a restart.
"""

from .policy import BASELINE, CATEGORIES, NONE, Policy, above

__all__ = ["STEPS", "UNIT", "Classifier"]

STEPS = 1 << 20
UNIT = 1 << 32


class Classifier:
    """The discretiser of a policy, tick by tick.

    `beginning`: the newest tick is one of those after a start that have no state, whatever the reading is.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._missing = None if policy.missing == NONE else policy.missing
        self._patience: int | None = 0 if policy.kind == CATEGORIES else policy.patience
        self._warm_up = policy.patience if policy.kind == BASELINE else 0
        self._new = self._warm_up  # ticks from a mean's first reading on that have no state: it is compared with itself
        if self._missing is not None and self._warm_up:  # no rule may depend on which ticks are missing
            self._patience, self._new = None, 1
        self._first: int | None = None
        self.beginning = False
        self._last: int | None = None
        self._state: int | None = None
        self._since: int | None = None
        self._count = self._mean = 0

    def observe(self, tick: int, raw: object) -> int | None:
        """The state of a tick that is later than every one before, or none."""
        if self._first is None:
            self._first = tick
        if self._last is not None and self._patience is not None and tick - self._last - 1 > self._patience:
            self._forget()
        state = self._classify(raw)
        if state is not None:
            self._last, self._state = tick, state
            if self._since is None:
                self._since = tick
        if state is None or tick - self._since < self._new:  # type: ignore[operator]  # a state has set it
            state = self._missing
        self.beginning = tick - self._first < self._warm_up  # decided by ticks alone, whatever the readings are
        return None if self.beginning else state

    def _forget(self) -> None:
        self._last = self._state = self._since = None
        self._count = self._mean = 0

    def _classify(self, raw: object) -> int | None:
        if raw is None:
            return None
        kind = self._policy.kind
        if kind == CATEGORIES:
            return self._policy.categories.get(str(raw).strip())
        if not isinstance(raw, int):
            return None
        return self._by_baseline(raw) if kind == BASELINE else self._by_threshold(raw)

    def _by_threshold(self, value: int) -> int:
        policy = self._policy
        state = above(policy.edges, value)
        if policy.up is not None and policy.down is not None and self._state is not None:
            before = self._state
            if state > before:
                state = max(before, above(policy.up, value))
            elif state < before:
                state = min(before, above(policy.down, value))
        return state

    def _by_baseline(self, value: int) -> int:
        policy = self._policy
        if value <= policy.lowest:
            steps = 0
        elif value >= policy.highest:
            steps = STEPS
        else:
            steps = (value * policy.slope + policy.offset) // policy.span
        here = steps * UNIT
        if not self._count:
            self._mean = here
        away = here - self._mean
        if policy.multiples is None:
            band = 0
            for edge in policy.edges:
                band += away > edge
        else:
            mean, reading = self._mean + policy.zero, here + policy.zero
            band = 0
            for top, bottom in policy.multiples:
                band += reading * bottom > mean * top
        if self._count < policy.patience:
            self._count += 1
        self._mean += away // self._count if away >= 0 else -(-away // self._count)
        return band
