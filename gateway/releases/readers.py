"""Who reads releases: the audiences that an account at the broker ever belonged to, and what it may be told in all.

Leaving an audience gives nothing back, because what was read was read; and joining one brings its past releases too,
since the broker keeps the newest and other readers may have kept the rest. So a reader is held to everything that its
audiences may ever be told. `fugu deploy` refuses an account that would exceed its limit; a gateway whose configuration
names the broker's `readers.json` refuses configurations and policies that would let one exceed it later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from fugu.contract._document import Document
from fugu.contract.guarantee import Adversary
from fugu.contract.mechanisms import ALONE, covers
from fugu.contract.topics import NAME_PATTERN
from fugu.privacy.chain_class import ChainClassError
from gateway.releases.allowance import allowance, joint_charge, joint_loss
from gateway.releases.charges import units_above
from gateway.releases.config import Audience, ReleaseConfig, ReleaseConfigError
from gateway.releases.entries import SITE, Key
from gateway.service.policies import Catalogue

__all__ = ["Bound", "Reader", "check_reader", "limited", "load_readers"]

Name = Annotated[str, Field(pattern=NAME_PATTERN)]


class Reader(Document):
    """An account that reads releases, and nothing else.

    Attributes:
        audiences: all that it ever belonged to.
        epsilon, adversary: the most that it may be told about any tick of any stream, over all of them.
    """

    name: Name
    audiences: Annotated[tuple[Name, ...], Field(min_length=1)]
    epsilon: float = Field(gt=0.0)
    adversary: Adversary

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if SITE in self.audiences:
            raise ValueError("an account of the site reads symbols, and belongs to no other audience")
        return self


class Readers(Document):
    """The file that `fugu deploy` keeps in the broker's folder, `readers.json`."""

    format: Literal["fugu/2"] = "fugu/2"
    fleet: Name
    readers: tuple[Reader, ...]


class Bound(NamedTuple):
    """What a reader may be told about a stream: at most `epsilon`, against the reader's adversary."""

    device: str
    stream: str
    epsilon: float


def load_readers(path: Path, fleet: str) -> tuple[Reader, ...]:
    """Read the readers of a fleet's broker.

    Raises:
        ReleaseConfigError: one line that says what is wrong.
    """
    try:
        found = Readers.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ReleaseConfigError(f"cannot read the readers {path.name}: {error.strerror}") from None
    except ValidationError as error:
        message = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise ReleaseConfigError(f"{path.name} is no list of readers: {message}") from None
    if found.fleet != fleet:
        raise ReleaseConfigError(f"{path.name} holds the readers of fleet {found.fleet}, this one is {fleet}")
    return found.readers


def limited(
    name: str, audiences: Iterable[str], config: ReleaseConfig, epsilon: float | None, adversary: Adversary | None
) -> Reader:
    """A new reader; what its owner does not state is that of its first audience.

    Raises:
        ReleaseConfigError: the first audience is not configured.
    """
    wanted = tuple(dict.fromkeys(audiences))
    first = _audience(config, name, wanted[0])
    return Reader(
        name=name,
        audiences=wanted,
        epsilon=first.epsilon if epsilon is None else epsilon,
        adversary=first.adversary if adversary is None else adversary,
    )


def check_reader(
    reader: Reader, config: ReleaseConfig, catalogue: Catalogue, alone: Collection[Key] = ()
) -> list[Bound]:
    """Compute what a reader may be told, and refuse it if that is above its limit.

    Every stream of symbols counts for every audience, whether or not something is released about it today.

    Args:
        reader, config, catalogue: who it is, what is released, and by which policies.
        alone: accounts of a ledger that have had their only release, whether or not it is still configured.

    Returns:
        The bound for each stream.

    Raises:
        ReleaseConfigError: it is above the limit, or cannot be computed; one line.
    """
    for name in reader.audiences:
        _audience(config, reader.name, name)
    for key in alone:
        if key.audience in reader.audiences and set(reader.audiences) != {key.audience}:
            raise ReleaseConfigError(
                f"account {reader.name} may belong to no audience beside {key.audience}, which has had a release about "
                f"{key.device}/{key.stream} that does not compose"
            )
    bounds = [_bound(reader, config, catalogue, device, stream) for device, stream in catalogue.symbol_streams()]
    return [bound for bound in bounds if bound is not None]


def _bound(reader: Reader, config: ReleaseConfig, catalogue: Catalogue, device: str, stream: str) -> Bound | None:
    """The largest of the bounds that the versions of a stream's policy give; `None` if none of them allows anything.

    What a later version allows is no bound of what was told about the ticks of an earlier one: its class may leave
    less, and its windows may take up what releases had before. Of the ticks of a version no audience was ever told more
    than that version allows beside its own windows, because its allowance is the least of all versions known by then.
    """
    audiences = [_audience(config, reader.name, name) for name in reader.audiences]
    found = _alone(reader, config, device, stream)
    try:
        for policy in catalogue.policies(device, stream):
            allowances = [allowance(policy.chains, one.epsilon, one.adversary) for one in audiences]
            if charge := joint_charge(allowances, units_above(policy.window_rate)):
                found.append(joint_loss(policy.chains, charge, reader.adversary))
    except ChainClassError as error:
        raise ReleaseConfigError(f"account {reader.name}: no bound for {device}/{stream}: {error}") from None
    if not found:
        return None
    epsilon = max(found)
    if epsilon > reader.epsilon:
        raise ReleaseConfigError(
            f"account {reader.name} would be told {epsilon:.10g} about {device}/{stream} by the audiences "
            f"{', '.join(reader.audiences)} together: its limit is {reader.epsilon:.10g} ({reader.adversary} adversary)"
        )
    return Bound(device, stream, epsilon)


def _alone(reader: Reader, config: ReleaseConfig, device: str, stream: str) -> list[float]:
    """What a release that does not compose tells a reader about a stream; refused beside any other audience."""
    for release in config.releases:
        about = release.stream == stream and (release.devices == "all" or device in release.devices)
        if about and release.audience in reader.audiences and release.mechanism in ALONE:
            if set(reader.audiences) != {release.audience}:
                raise ReleaseConfigError(
                    f"account {reader.name} may belong to no audience beside {release.audience}, whose release "
                    f"{release.name} about {device}/{stream} is by {release.mechanism}, which does not compose"
                )
            if not covers(release.mechanism, reader.adversary):
                raise ReleaseConfigError(
                    f"account {reader.name} has a limit against the {reader.adversary} adversary, and release "
                    f"{release.name} about {device}/{stream} is by {release.mechanism}, which has no bound against it"
                )
            return [config.audiences[release.audience].epsilon]
    return []


def _audience(config: ReleaseConfig, reader: str, name: str) -> Audience:
    if name not in config.audiences:
        raise ReleaseConfigError(
            f"account {reader}: audience {name} is not configured, so nobody can say what the account may be told"
        )
    return config.audiences[name]
