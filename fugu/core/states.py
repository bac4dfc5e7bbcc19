"""States of readings, in integers: the running form of every discretiser, on devices and where policies are planned.

The host makes an integer of a reading: its count of a unit, its place among all doubles, or its step between the ends
of a range. Where the state follows from the reading alone, the integer is the state. A reading without an integer is
unusable. Whatever a sensor returns, the outcome is a state or None: never an exception, and never a word about the
reading. All that is remembered is in memory, and gone after a restart. A new version of a policy changes nothing of
it, nor does a wall clock that is set back. Numbers that skip, as when it is set forward, are ticks without a reading.

A baseline is a running mean in integers, so that the band of a reading around it is the same on every device, bit for
bit. A reading is clamped to the policy's range and becomes the nearest of STEPS + 1 equally spaced integers, 0 for the
lowest and STEPS for the highest, halves upward. The mean is an integer number of units, UNIT to a step. The n-th
reading x since the mean began changes it by (x * UNIT - mean) / min(n, M), rounded towards 0. That is the plain mean of
the first M readings, and then the exponential mean, whose weights shrink by 1 - 1/M a reading.

Rounding is off by less than one unit a reading, and later readings shrink that error by 1 - 1/min(n, M). So the mean is
never M units or more away from the mean without rounding: at most 2^-8 of a step for the largest M.

A reading is compared with the mean of the readings *before* it, so that it is not measured by itself. With the default
edge, the mean, both choices give the same states. The first reading is compared with itself.
"""

from .policy import BASELINE, CATEGORIES, Policy, rank

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Find = Callable[[Sequence[int], int], int]
    Numbers = Sequence[int]

__all__ = ["STEPS", "UNIT", "Bands", "Classifier", "Plain", "RunningMean", "classifier_of"]

STEPS = 1 << 20
UNIT = 1 << 32


class Plain:
    """The rule by which the integer of a reading is its state.

    A rule gives the state of an integer, which may depend on earlier integers. It forgets them after more than
    `patience` ticks in a row without an integer; never, if that is None. After a start, `warm_up` ticks have no state.
    """

    patience: int | None = None
    warm_up = 0

    def state(self, number: int) -> int:
        """Return the state of the next integer."""
        return number

    def forget(self) -> None:
        """Forget earlier integers; there is nothing to forget."""


class Bands:
    """The rule by which an integer has state i if it is below edge i and not below an earlier edge.

    With hysteresis, the state rises only beyond the edges `up` and falls only beyond the edges `down`.
    """

    warm_up = 0

    def __init__(
        self, edges: "Numbers", up: "Numbers | None", down: "Numbers | None", patience: int, find: "Find" = rank
    ) -> None:
        self.patience: int | None = patience
        self._edges, self._up, self._down, self._find = edges, up, down, find
        self._state: int | None = None

    def state(self, number: int) -> int:
        """Return the state of the next integer."""
        state, last_state = self._find(self._edges, number), self._state
        if self._up is not None and self._down is not None:
            if last_state is not None and state > last_state:
                state = max(last_state, self._find(self._up, number))
            elif last_state is not None and state < last_state:
                state = min(last_state, self._find(self._down, number))
            self._state = state
        return state

    def forget(self) -> None:
        """Forget the last state."""
        self._state = None


class RunningMean:
    """The rule by which the state is the band of a step around the running mean of earlier steps.

    A step is above an edge, in units, if it is further above the mean than that. With `multiples`, edges are
    multiples of the mean, where `zero` is the number of units from 0 to the lowest step. `mean` is the mean, in units,
    of `count` steps, at most `ticks`.
    """

    def __init__(self, ticks: int, edges: "Numbers", multiples: "Sequence[tuple[int, int]] | None", zero: int) -> None:
        self.patience: int | None = ticks
        self.warm_up = ticks
        self._edges, self._multiples, self._zero = edges, multiples, zero
        self.count = self.mean = 0

    def state(self, number: int) -> int:
        """Return the state of the next step, before the mean takes the step in."""
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
        """Forget the mean."""
        self.count = self.mean = 0


class Classifier:
    """A discretiser that runs tick by tick: `number` makes an integer of a reading, or None; `rule` gives its state.

    `missing` is the state of ticks without a usable reading, None if they have no state. `unusable` counts readings
    without an integer. `beginning` is True if the newest tick is among the first after a start, which have no state
    whatever the reading is.
    """

    _first: int | None
    _tick: int | None
    _last: int | None
    _since: int | None
    _state: int | None

    def __init__(
        self, rule: "Plain | Bands | RunningMean", number: "Callable[[object], int | None]", missing: int | None
    ) -> None:
        self.rule, self._number, self._missing = rule, number, missing
        self._patience = rule.patience
        self._warm_up = rule.warm_up  # ticks without a state from the first reading on, which is compared with itself
        if missing is not None and rule.warm_up:  # no rule may depend on which ticks are missing
            self._patience, self._warm_up = None, 1
        self.unusable = 0
        self.restart()

    def restart(self) -> None:
        """Forget everything, as in a new process."""
        self.beginning = False
        self._first = self._tick = self._state = None
        self._forget()

    def observe(self, tick: int, reading: object) -> int | None:
        """Return the state of a tick, or None, from its reading; a reading of None is missing.

        Ticks ascend; skipped ticks count as ticks without a reading. For the newest tick again, the state is the same.
        """
        if tick == self._tick:
            return self._state
        self._tick = tick
        if self._first is None:
            self._first = tick
        if self._last is not None and self._patience is not None and tick - self._last - 1 > self._patience:
            self._forget()
        state = None
        if reading is not None:
            try:
                number = self._number(reading)
            except Exception:  # a reading is of any type, and its methods may raise anything, with the reading in it
                number = None
            if number is None:
                self.unusable += 1
            else:
                self._last, state = tick, self.rule.state(number)
                if self._since is None:
                    self._since = tick
        if state is None or tick - self._since < self._warm_up:  # type: ignore[operator]  # a state has set it
            state = self._missing
        self.beginning = tick - self._first < self.rule.warm_up  # decided by ticks alone, whatever the readings are
        self._state = None if self.beginning else state
        return self._state

    def _forget(self) -> None:
        self._last = self._since = None
        self.rule.forget()


def classifier_of(policy: Policy) -> Classifier:
    """Make the classifier of a policy, whose readings are integers in its unit, or texts for named categories."""
    rule: Bands | RunningMean
    missing = policy.missing
    if policy.kind == CATEGORIES:
        categories = policy.categories
        return Classifier(Plain(), lambda raw: categories.get(str(raw).strip()), missing)
    if policy.kind == BASELINE:
        rule = RunningMean(policy.patience, policy.edges, policy.multiples, policy.zero)
        return Classifier(rule, _step_of(policy), missing)
    rule = Bands(policy.edges, policy.up, policy.down, policy.patience)
    return Classifier(rule, lambda raw: raw if isinstance(raw, int) else None, missing)


def _step_of(policy: Policy) -> "Callable[[object], int | None]":
    """Return step(reading), which makes a step of an integer reading, and None of anything else."""
    lowest, highest, slope, offset, span = policy.lowest, policy.highest, policy.slope, policy.offset, policy.span

    def step(reading: object) -> int | None:
        if not isinstance(reading, int):
            return None
        if reading <= lowest:
            return 0
        return STEPS if reading >= highest else (reading * slope + offset) // span

    return step
