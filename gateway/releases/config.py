"""The configuration of batch releases: the audiences, and what each of them is told, how often.

It also says who reads releases. A reader who leaves an audience does not forget what it was told. A reader who joins
one may learn its past releases, too: the broker keeps the newest, and other readers may have kept earlier ones. So a
reader is held to everything that its audiences may ever be told. `fugu deploy` refuses an account that would exceed its
limit. A gateway whose configuration names the broker's `readers.json` refuses configurations and policies by which an
account would exceed its limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, ValidationError

from fugu.contract._document import Document, first_problem
from fugu.contract.dating import SLACK, with_slack
from fugu.contract.errors import FuguError
from fugu.contract.frames import MAX_TICK
from fugu.contract.losses import Adversary, float_up
from fugu.contract.queries import QUERIES, QueryKind
from fugu.contract.topics import NAME_PATTERN, RESERVED_AUDIENCES
from fugu.contract.windows import ALONE, Mechanism, has_bound
from fugu.host.clock import seconds_of
from fugu.host.toml_file import read_toml
from fugu.privacy.chain_class import ChainClassError, ListedChains
from gateway.estimates.catalogue import Catalogue
from gateway.releases.allowance import allowance, joint_loss
from gateway.releases.charges import units_above
from gateway.releases.entries import NO_PAST, SITE, AccountKey, Promise, Stream, StreamPast

__all__ = ["Audience", "Bound", "Matrices", "Reader", "ReleaseConfig", "ScheduledRelease", "load_readers"]


_MOST_TICKS = 2**31
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Ticks = Annotated[int, Field(ge=1, le=_MOST_TICKS)]
Matrices = tuple[tuple[tuple[float, ...], ...], ...]


def _read_seconds(length_text: object) -> object:
    """Convert a length of time to seconds: text like "1h", `tick` as 0, or a number of seconds."""
    if length_text == "tick":
        return 0
    if isinstance(length_text, str):
        return math.ceil(seconds_of(length_text))
    if length_text == 0:
        raise ValueError('a stretch of no time: say "tick" for a single tick')
    return length_text


Seconds = Annotated[int, Field(ge=0, le=366 * 86_400)]


class Audience(Document):
    """Promise to an audience: all releases together, for ever, lose at most epsilon about any stretch of a stream.

    Attributes:
        protect: the length of a stretch in seconds, or as a time in words; 0, written `tick`, for a single tick.
        sums: groups of homes whose sums the audience is told. Homes draw their noise themselves: its charge is the base
            of the audience's accounts.
    """

    epsilon: float = Field(gt=0.0)
    adversary: Adversary
    protect: Annotated[Seconds, BeforeValidator(_read_seconds, json_schema_input_type=str | int)] = 0
    sums: tuple[Name, ...] = ()

    @property
    def promise(self) -> Promise:
        """The promise, as the ledger stores it."""
        return Promise(self.epsilon, self.adversary, self.protect)


class ScheduledRelease(Document):
    """A statistic that is released again and again: window n covers the ticks n * stride .. n * stride + length - 1.

    Attributes:
        name: last part of the topic; with `per_device`, the device's name is put behind it.
        stream: the stream that is counted.
        devices: names, or "all": every device that has the stream.
        query: the kind of statistic.
        states: labels of the states that are counted; empty for a histogram.
        length: ticks in a window.
        stride: ticks from the beginning of one window to that of the next; the length, if not given.
        patience: ticks beyond a window's end after which devices that are behind are no longer waited for; `None`
            waits for ever.
        audience: a configured audience, or "site".
        source: what is counted: "best", "both" or "symbols". "best" takes for each device the better of its own noisy
            windows and its symbols. "both" weighs the two by the inverse of their variances.
        mechanism: the mechanism by whose rule the audience's promise is kept: one of `fugu.contract.windows`, or
            "auto", the composing one with the least noise.
        chains: transition matrices, started stationary, that a mechanism other than "chain" assumes instead of the
            classes that policies declare.
        once: first tick of the only window that is ever released, for a mechanism that does not compose.
        scale: scale of the noise on counts of symbols, an integer or a fraction.
        share: instead of a scale: the share of the allowance that each tick is charged.
        per_device: whether there is a release for each device, instead of one of their sum.
        confidence: confidence of the intervals; above 0.999 their coverage is not proven.
    """

    name: Name
    stream: Name
    devices: Literal["all"] | Annotated[tuple[Name, ...], Field(min_length=1)] = "all"
    query: QueryKind
    states: tuple[Annotated[str, Field(min_length=1, max_length=64)], ...] = ()
    length: Ticks
    stride: Ticks | None = None
    patience: int | None = Field(default=None, ge=0, le=_MOST_TICKS)
    audience: Name
    mechanism: Mechanism | Literal["auto"] = "chain"
    chains: Annotated[Matrices, Field(max_length=8)] = ()
    once: int | None = Field(default=None, ge=0, le=MAX_TICK - _MOST_TICKS)
    source: Literal["best", "both", "symbols"] = "best"
    scale: Annotated[str, Field(pattern="^[1-9][0-9]{0,9}(/[1-9][0-9]{0,9})?$")] | None = None
    share: float | None = Field(default=None, gt=0.0, le=1.0)
    per_device: bool = False
    confidence: float = Field(default=0.95, gt=0.0, le=0.999)

    def _check_consistency(self) -> None:
        self._check_alone()
        if self.mechanism not in ALONE and (self.scale is None) == (self.share is None):
            raise ValueError(f"release {self.name} needs either scale or share")
        if self.chains and self.mechanism in ("chain", "auto", "group"):
            raise ValueError(
                f"release {self.name}: mechanism {self.mechanism} takes the classes of policies: no chains"
            )
        if self.chains:
            ListedChains(transitions=self.chains)
        if self.scale is not None and not Fraction(1, 10) <= Fraction(self.scale) <= 10**9:
            raise ValueError(f"scale of release {self.name} must lie in 1/10..10^9")
        if self.audience == SITE and self.scale is None:
            raise ValueError(f"release {self.name} to the site has no allowance to share: give it a scale")
        if bool(self.states) == QUERIES[self.query].per_state:
            raise ValueError(f"release {self.name}: a histogram names no states, and any other query names some")
        if len(set(self.states)) != len(self.states):
            raise ValueError(f"release {self.name} names a state twice")

    def _check_alone(self) -> None:
        """Refuse several windows, or a scale, for a mechanism that does not compose, and `once` for one that does."""
        is_alone = self.mechanism in ALONE
        prefix = f"release {self.name}: mechanism {self.mechanism}"
        if is_alone and (self.once is None or self.stride is not None):
            raise ValueError(f"{prefix} does not compose: give once, the first tick of its only window, and no stride")
        if is_alone and (self.scale is not None or self.share is not None):
            raise ValueError(f"{prefix} takes all of epsilon: leave out scale and share")
        if not is_alone and self.once is not None:
            raise ValueError(f"{prefix} composes: once is for those that do not")
        if self.mechanism != "chain" and self.audience == SITE:
            raise ValueError(f"release {self.name}: the site sees the symbols, whatever the mechanism")
        if self.mechanism == "wasserstein" and not QUERIES[self.query].is_single:
            raise ValueError(f"{prefix} releases one number, and no {self.query}")

    @cached_property
    def step(self) -> int:
        """Ticks from the beginning of one window to that of the next."""
        return self.stride or self.length

    def name_for(self, device: str) -> str:
        """The name of the release about a device."""
        return f"{self.name}-{device}" if self.per_device else self.name


class ReleaseConfig(Document):
    """Audiences by name, and releases; a site that only sums homes needs neither.

    Attributes:
        readers: the path of the broker's `readers.json`, relative to the configuration; no account in that file may
            ever be told more than its limit.
    """

    readers: str | None = None
    audiences: dict[Name, Audience] = Field(default={})
    releases: tuple[ScheduledRelease, ...] = ()

    def _check_consistency(self) -> None:
        if SITE in self.audiences:
            raise ValueError("audience site sees the symbols: it has no epsilon of its own")
        for name, audience in self.audiences.items():
            if name in RESERVED_AUDIENCES:
                raise ValueError(f"{name} cannot be the name of an audience")
            if not 1e-9 <= audience.epsilon <= 1e6:  # beyond, floats and charges have no numbers for its noise
                raise ValueError(f"audience {name}: epsilon must lie in 1e-9..1e6")
        for release in self.releases:
            if release.audience not in {SITE, *self.audiences}:
                raise ValueError(f"release {release.name} is for audience {release.audience}, which is not configured")
            if release.audience == SITE:
                continue
            audience = self.audiences[release.audience]
            if audience.sums and release.mechanism != "chain":
                raise ValueError(
                    f"release {release.name}: audience {release.audience} is told sums of homes, which mechanism chain "
                    f"accounts for: use mechanism chain, or another audience"
                )
            if audience.protect and release.mechanism not in ("chain", "auto"):
                raise ValueError(
                    f"release {release.name}: mechanism {release.mechanism} protects single ticks only, and audience "
                    f"{release.audience} is promised any {audience.protect} seconds: use mechanism chain"
                )
            if release.mechanism != "auto" and not has_bound(release.mechanism, audience.adversary):
                raise ValueError(
                    f"release {release.name}: mechanism {release.mechanism} protects against the ignorant adversary "
                    f"only, and audience {release.audience} is promised {audience.adversary}"
                )
        if len({release.name for release in self.releases}) != len(self.releases):
            raise ValueError("two releases have the same name")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a configuration file. Raises FuguError, one line that names the first thing that is wrong."""
        return read_toml(path, cls, FuguError)

    def audience_of(self, reader: str, name: str) -> Audience:
        """Look up an audience of the account `reader` by name. FuguError if the audience is not configured."""
        if name not in self.audiences:
            raise FuguError(
                f"account {reader}: audience {name} is not configured, so nobody can say what the account may be told"
            )
        return self.audiences[name]


class Reader(Document):
    """An account that reads releases, and nothing else.

    Attributes:
        audiences: all audiences that the account ever belonged to.
        epsilon, adversary: the most that it may be told about a stretch of any stream, over all its audiences.
        seconds: length of a stretch; 0 is a single tick.
    """

    name: Name
    audiences: Annotated[tuple[Name, ...], Field(min_length=1)]
    epsilon: float = Field(gt=0.0)
    adversary: Adversary
    seconds: Seconds = 0

    @property
    def limit(self) -> Promise:
        """The most that the account may be told, in the form of a promise."""
        return Promise(self.epsilon, self.adversary, self.seconds)

    def _check_consistency(self) -> None:
        if SITE in self.audiences:
            raise ValueError("an account of the site reads symbols, and belongs to no other audience")

    def check(
        self,
        config: ReleaseConfig,
        catalogue: Catalogue,
        exclusive_keys: Collection[AccountKey] = (),
        past: Callable[[Iterable[Stream]], StreamPast] = lambda _streams: NO_PAST,
    ) -> list[Bound]:
        """Bound what the reader may be told about each stream. FuguError, one line, if a bound is above its limit.

        Every stream of symbols counts for every audience, whether or not something is released about it today.

        Args:
            exclusive_keys: accounts that had a release that does not compose, whether it is still configured or not.
            past: what a ledger knows of streams and no policy says any more.
        """
        for name in self.audiences:
            config.audience_of(self.name, name)
        for key in exclusive_keys:
            if key.audience in self.audiences and set(self.audiences) != {key.audience}:
                raise FuguError(
                    f"account {self.name} may belong to no audience beside {key.audience}, which has had a release "
                    f"about {key.device}/{key.stream} that does not compose"
                )
        streams = catalogue.symbol_streams()
        bounds = (_stream_bound(self, config, catalogue, *stream, past([stream])) for stream in streams)
        return [bound for bound in bounds if bound is not None]


class Readers(Document):
    """The file that `fugu deploy` keeps in the broker's folder, `readers.json`."""

    format: Literal["fugu/2"] = "fugu/2"
    fleet: Name
    readers: tuple[Reader, ...]


class Bound(NamedTuple):
    """Bound on what a reader may be told about a stream: at most `epsilon`, against the reader's adversary."""

    device: str
    stream: str
    epsilon: float


def load_readers(path: Path, fleet: str) -> tuple[Reader, ...]:
    """Read the readers of a fleet's broker. Raises FuguError with one line that says what is wrong."""
    try:
        readers = Readers.model_validate_json(path.read_bytes())
    except OSError as error:
        raise FuguError(f"cannot read the readers {path.name}: {error.strerror}") from None
    except ValidationError as error:
        raise FuguError(f"{path.name} is no list of readers: {first_problem(error, 'list')}") from None
    if readers.fleet != fleet:
        raise FuguError(f"{path.name} holds the readers of fleet {readers.fleet}, this one is {fleet}")
    return readers.readers


def _stream_bound(
    reader: Reader, config: ReleaseConfig, catalogue: Catalogue, device: str, stream: str, past: StreamPast
) -> Bound | None:
    """The largest bound by any version of a stream's policy; `None` if no version allows anything.

    A later version does not bound what was told about an earlier version's ticks. Its class may allow less, and its
    windows may use what releases used before. No audience was told more about a version's ticks than that version
    allows beside its own windows. The allowance is the least of all versions known by then. What leaks over a change
    of versions is within each audience's slack: until then nothing is released (`Maker.make`).
    """
    audiences = [config.audience_of(reader.name, name) for name in reader.audiences]
    bounds = _exclusive_epsilons(reader, config, device, stream)
    try:
        classes = [
            (policy.chains, policy.clock.period_us, units_above(policy.window_rate))
            for policy in catalogue.charged_policies(device, stream)
        ]
        base = max((window_charge for *_, window_charge in classes), default=0)
        classes += [(chains, period, base) for chains, period in past.classes if not isinstance(chains, ListedChains)]
        has_changed = len({(chains, period) for chains, period, _ in classes}) > 1 or past.lost
        slack = sum((SLACK * Fraction(audience.epsilon) for audience in audiences), Fraction(0))
        leaked_epsilon = float_up(slack) if has_changed else 0.0
        for chains, period, base in classes:
            for has_slack in {False, has_changed}:
                epsilons = [with_slack(audience.epsilon) if has_slack else audience.epsilon for audience in audiences]
                allowances = [
                    allowance(chains, epsilon, audience.adversary, ticks=audience.promise.ticks(period))
                    for audience, epsilon in zip(audiences, epsilons, strict=True)
                ]
                if charge := joint_charge(allowances, base):
                    bound = joint_loss(chains, charge, reader.adversary, reader.limit.ticks(period))
                    bounds.append(float_up(Fraction(bound) + Fraction(leaked_epsilon)) if has_slack else bound)
    except ChainClassError as error:
        raise FuguError(f"account {reader.name}: no bound for {device}/{stream}: {error}") from None
    if not bounds:
        return None
    epsilon = max(bounds)
    if epsilon > reader.epsilon:
        raise FuguError(
            f"account {reader.name} would be told {epsilon:.10g} about {device}/{stream} by the audiences "
            f"{', '.join(reader.audiences)} together: its limit is {reader.limit}"
        )
    return Bound(device, stream, epsilon)


def joint_charge(allowances: Sequence[int], base: int) -> int:
    """The most that a tick is charged for all audiences of a reader together, in units of `gateway.releases.charges`.

    Each allowance includes the base, the charge of the windows that the device itself releases to all audiences. That
    is one release, so it counts once. Returns 0 if no audience may be told anything.
    """
    excess = sum(max(allowance - base, 0) for allowance in allowances)
    return excess + base if any(allowance >= base for allowance in allowances) else 0


def _exclusive_epsilons(reader: Reader, config: ReleaseConfig, device: str, stream: str) -> list[float]:
    """The epsilon of a stream's release that does not compose or has its own chains; empty without such a release.

    Raises FuguError if the reader may not be told of that release.
    """
    for release in config.releases:
        is_about_stream = release.stream == stream and (release.devices == "all" or device in release.devices)
        if is_about_stream and release.audience in reader.audiences and (release.mechanism in ALONE or release.chains):
            if set(reader.audiences) != {release.audience}:
                reason = (
                    "has chains of its own" if release.chains else f"is by {release.mechanism}, which does not compose"
                )
                raise FuguError(
                    f"account {reader.name} may belong to no audience beside {release.audience}, whose release "
                    f"{release.name} about {device}/{stream} {reason}"
                )
            if reader.seconds:
                raise FuguError(
                    f"account {reader.name} has a limit for any {reader.seconds} seconds, and release {release.name} "
                    f"about {device}/{stream} is by {release.mechanism}, which protects single ticks only"
                )
            if not has_bound(release.mechanism, reader.adversary):
                raise FuguError(
                    f"account {reader.name} has a limit against the {reader.adversary} adversary, and release "
                    f"{release.name} about {device}/{stream} is by {release.mechanism}, which has no bound against it"
                )
            return [config.audiences[release.audience].epsilon]
    return []
