"""Readings become states, in integers: the running form of every discretiser, where devices run and where one plans.

The host makes an integer of a reading: its count of a unit, its place among all doubles, or its step between the ends
of a range. Where the state follows from the reading alone, it is the state. What it makes none of is unusable. Whatever
a sensor hands over, the outcome is a state or None: never an exception, and never a word about the reading. All that is
remembered is in memory, and gone after a restart; a wall clock that is set, and a new version of a policy, change
nothing of it.

A baseline is a running mean in integers, so that the band around it that a reading is in is the same on every device,
bit for bit. A reading is clamped to the policy's range and becomes the nearest of STEPS + 1 equally spaced integers, 0
for the lowest and STEPS for the highest, halves upward. The mean is an integer number of units, UNIT to a step. The
n-th reading x since the mean began changes it by (x * UNIT - mean) / min(n, M), rounded towards 0. That is the plain
mean of the first M readings, and from then on the exponential one, whose weights shrink by 1 - 1/M a reading.

Rounding is off by less than one unit a reading, and later readings shrink that by 1 - 1/min(n, M). So the mean is never
M units or more away from the one without rounding: at most 2^-8 of a step for the largest M. It cannot stall further
off.

A reading is compared with the mean of the readings *before* it, so that it is not measured by itself. With the default
edge, the mean, the other choice would give the same states. The first reading is compared with itself.
"""

from .policy import BASELINE, CATEGORIES, Policy, above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Find = Callable[[Sequence[int], int], int]
    Numbers = Sequence[int]

__all__ = ["STEPS", "UNIT", "Bands", "Classifier", "Plain", "RunningMean", "classifier_of"]

STEPS = 1 << 20
UNIT = 1 << 32


class Plain:
    """The integer is the state.

    A rule says the state of an integer, after those before it. After more ticks than `patience` in a row without one it
    begins anew; None has no end. After a start, `warm_up` ticks have no state.
    """

    patience: int | None = None
    warm_up = 0

    def state(self, number: int) -> int:
        """The state of the next integer."""
        return number

    def forget(self) -> None:
        """Begin anew: nothing is remembered."""


class Bands:
    """State i for integers that are below edge i and no edge before it.

    With `up` and `down`, edges for a change to a higher and to a lower state, the state changes only beyond those.
    """

    warm_up = 0

    def __init__(
        self, edges: "Numbers", up: "Numbers | None", down: "Numbers | None", patience: int, find: "Find" = above
    ) -> None:
        self.patience: int | None = patience
        self._edges, self._up, self._down, self._find = edges, up, down, find
        self._before: int | None = None

    def state(self, number: int) -> int:
        """The state of the next integer."""
        state, last_state = self._find(self._edges, number), self._before
        if self._up is not None and self._down is not None:
            if last_state is not None and state > last_state:
                state = max(last_state, self._find(self._up, number))
            elif last_state is not None and state < last_state:
                state = min(last_state, self._find(self._down, number))
            self._before = state
        return state

    def forget(self) -> None:
        """Begin anew with the next integer."""
        self._before = None


class RunningMean:
    """The band of a step around the mean of what came before, then taken into the mean.

    A step is above an edge, in units, if it is further above the mean. It is above a multiple of the mean, too, where
    `zero` are the units from 0 to the lowest step. `mean`, in units, is of `count` steps, at most `ticks`.
    """

    def __init__(
        self, ticks: int, edges: "Numbers", multiples: "Sequence[tuple[int, int]] | None" = None, zero: int = 0
    ) -> None:
        self.patience: int | None = ticks
        self.warm_up = ticks
        self._edges, self._multiples, self._zero = edges, multiples, zero
        self.count = self.mean = 0

    def state(self, number: int) -> int:
        """The state of the next step."""
        position = number * UNIT
        if not self.count:
            self.mean = position
        distance, band = position - self.mean, 0
        if self._multiples is None:
            for edge in self._edges:
                band += distance > edge
        else:
            mean, reading = self.mean + self._zero, position + self._zero
            for top, bottom in self._multiples:
                band += reading * bottom > mean * top
        if self.count < self.warm_up:
            self.count += 1
        self.mean += distance // self.count if distance >= 0 else -(-distance // self.count)
        return band

    def forget(self) -> None:
        """Begin anew with the next step."""
        self.count = self.mean = 0


class Classifier:
    """A discretiser that runs tick by tick: `number` makes an integer of a reading, or None, and `rule` its state.

    `missing` is the state of ticks without a usable reading, if they have one. `unusable` counts readings without an
    integer. `beginning`: the newest tick is one of those after a start that have no state, whatever the reading is.
    """

    def __init__(
        self, rule: "Plain | Bands | RunningMean", number: "Callable[[object], int | None]", missing: int | None
    ) -> None:
        self.rule, self._number, self._missing = rule, number, missing
        self._patience = rule.patience
        self._new = rule.warm_up  # ticks from a mean's first reading on that have no state: it is compared with itself
        if missing is not None and rule.warm_up:  # no rule may depend on which ticks are missing
            self._patience, self._new = None, 1
        self.unusable = 0
        self._first: int | None = None
        self._tick: int | None = None
        self._last: int | None = None
        self._since: int | None = None
        self._state: int | None = None
        self.restart()

    def restart(self) -> None:
        """Drop all that is remembered, as in a new process."""
        self.beginning = False
        self._first = self._tick = self._state = None
        self._forget()

    def observe(self, tick: int, raw: object) -> int | None:
        """The state of a tick, or None; a reading of None is missing.

        Ticks ascend; those left out count as ticks without a reading. The newest may be asked for again: its state
        stays.
        """
        if tick == self._tick:
            return self._state
        self._tick = tick
        if self._first is None:
            self._first = tick
        if self._last is not None and self._patience is not None and tick - self._last - 1 > self._patience:
            self._forget()
        state = None
        if raw is not None:
            try:
                number = self._number(raw)
            except Exception:  # a reading is of any type, and its methods may raise anything, with the reading in it
                number = None
            if number is None:
                self.unusable += 1
            else:
                self._last, state = tick, self.rule.state(number)
                if self._since is None:
                    self._since = tick
        if state is None or tick - self._since < self._new:  # type: ignore[operator]  # a state has set it
            state = self._missing
        self.beginning = tick - self._first < self.rule.warm_up  # decided by ticks alone, whatever the readings are
        self._state = None if self.beginning else state
        return self._state

    def _forget(self) -> None:
        self._last = self._since = None
        self.rule.forget()


def classifier_of(policy: Policy) -> Classifier:
    """The discretiser of a compiled policy; a reading is an integer in its unit, or of a policy of names any text."""
    rule: Bands | RunningMean
    missing = policy.missing
    if policy.kind == CATEGORIES:
        categories = policy.categories
        return Classifier(Plain(), lambda raw: categories.get(str(raw).strip()), missing)
    if policy.kind == BASELINE:
        rule = RunningMean(policy.patience, policy.edges, policy.multiples, policy.zero)
        return Classifier(rule, _steps(policy), missing)
    rule = Bands(policy.edges, policy.up, policy.down, policy.patience)
    return Classifier(rule, lambda raw: raw if isinstance(raw, int) else None, missing)


def _steps(policy: Policy) -> "Callable[[object], int | None]":
    lowest, highest, slope, offset, span = policy.lowest, policy.highest, policy.slope, policy.offset, policy.span

    def step(raw: object) -> int | None:
        if not isinstance(raw, int):
            return None
        if raw <= lowest:
            return 0
        return STEPS if raw >= highest else (raw * slope + offset) // span

    return step
