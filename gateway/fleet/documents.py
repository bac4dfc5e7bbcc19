"""Documents and the fleet's registry: who is meant, what they have, and entering what was signed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fugu.contract.envelope import Envelope
from fugu.contract.errors import FuguError
from fugu.contract.fleet_documents import Address, Enrolment, PolicyDocument, read_document
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from gateway.fleet import Device, Document, FleetError, Registry, Rollouts, Target, UnknownNameError
from gateway.fleet.roots import read_root
from gateway.fleet.signing import Signed, check, content_of, policies_of, promises, read_signed

__all__ = [
    "check_new",
    "document_in",
    "enter",
    "former_version",
    "other_ticks",
    "reached",
    "read_checked",
    "refuse_other_ticks",
    "rollouts_at",
    "target_of",
]


def read_checked(path: Path, root_file: Path, now: int, enrolments: Sequence[Enrolment] = ()) -> tuple[Signed, bool]:
    """Read a document, and judge it as the devices will, those whose owners' limits are known by these.

    Args:
        now: Unix time in seconds.

    Returns:
        The document, and whether it is valid by now; if not, devices take it later.

    Raises:
        FuguError: too few policy keys have signed it, or no device would ever accept it; names the file.
    """
    root = read_root(root_file)
    try:
        signed = read_signed(path.read_bytes(), root)
        return signed, check(signed, root, now, enrolments)
    except FuguError as error:
        raise type(error)(f"{path}: {error}") from None


def target_of(to: Address) -> Target:
    """An address as the registry has it."""
    if to.device is not None:
        return Target("device", to.device)
    return Target("fleet") if to.group is None else Target("group", to.group)


def reached(registry: Registry, to: Address) -> list[Device]:
    """The devices that a document is for.

    Raises:
        UnknownNameError: there are none.
    """
    if not (found := _meant(registry, to)):
        raise UnknownNameError(f"no device of fleet {registry.fleet} is meant by {to}: enrol it first")
    return found


def _meant(registry: Registry, to: Address) -> list[Device]:
    target = target_of(to)
    return [device for device in registry.devices() if target.covers(device.name, device.groups)]


def former_version(device: Device) -> int | None:
    """The version that a device has in force, or should have if it never said; `None` if there is none."""
    if device.reported is not None and device.reported.in_force:
        return device.reported.in_force
    return None if device.desired is None else device.desired.version


def document_in(registry: Registry, version: int) -> PolicyDocument:
    """A document of the registry, which was checked when it was entered.

    Raises:
        UnknownNameError: there is none of this version.
        PolicyError: it is damaged.
    """
    return read_document(PolicyDocument, Envelope.decode(registry.document(version).payload).payload)


def restored_by(registry: Registry, document: PolicyDocument) -> int | None:
    """The version whose content a document brings back; `None` if it has new content, or goes on with the newest."""
    content = content_of(document)
    target = target_of(document.to)
    older = [one.version for one in registry.documents() if one.target == target and one.version < document.version]
    for version in reversed(older):
        with suppress(FuguError):  # one that cannot be read is none that can be brought back
            if content_of(document_in(registry, version)) == content:
                return None if version == older[-1] else version
    return None


def other_ticks(old: PolicyDocument, new: PolicyDocument) -> dict[str, str]:
    """Find streams of both documents whose ticks mean other moments in the new one; a device's outbox refuses that.

    Returns:
        By stream, in words: what has changed.
    """
    before, found = {policy.stream: policy for policy in policies_of(old)}, {}
    for policy in policies_of(new):
        former = before.get(policy.stream, policy)
        ticks = _window_ticks(former)
        changed = [name for name, of in _window_ticks(policy).items() if of != ticks.get(name, of)]
        if policy.clock != former.clock:
            found[policy.stream] = "another epoch or period"
        elif changed:
            found[policy.stream] = f"other ticks for window {', '.join(sorted(changed))}"
    return found


def _window_ticks(policy: AnyPolicy) -> dict[str, tuple[int, int, int]]:
    windows = policy.windows if isinstance(policy, Policy) else ()
    return {window.name: (window.start, window.length, window.stride) for window in windows}


def refuse_other_ticks(registry: Registry, document: PolicyDocument) -> None:
    """Refuse a document that devices which it is for would refuse, because ticks of a stream mean other moments in it.

    Raises:
        FleetError: names a version that devices have now, and the streams.
    """
    for version in sorted({former_version(device) or 0 for device in _meant(registry, document.to)}):
        found: dict[str, str] = {}
        with suppress(FuguError):  # one that the registry has not, or that cannot be read
            found = other_ticks(document_in(registry, version), document)
        if found:
            streams = "; ".join(f"{stream} has {what}" for stream, what in sorted(found.items()))
            raise FleetError(
                f"devices of version {version} would refuse version {document.version}: {streams}. Plan with the same "
                "ticks, or give the stream or the window a new name"
            )


def rollouts_at(registry: Registry, devices: Sequence[str]) -> list[int]:
    """Rollouts under way at some of these devices, whose stages and gates a push does not wait for."""
    rollouts = Rollouts(registry)
    return [
        number
        for number in rollouts.active()
        if set(devices) & {name for stage in rollouts.show(number).state.stages for name in stage}
    ]


def check_new(registry: Registry, signed: Signed) -> None:
    """Refuse what `enter` would refuse, without entering it.

    Raises:
        FleetError: it is another fleet's, or its version is not higher than all others.
    """
    document, newest = signed.document, registry.newest_version()
    if document.fleet != registry.fleet:
        raise FleetError(f"a document of fleet {document.fleet}; the registry is that of fleet {registry.fleet}")
    if document.version <= newest and not _has(registry, signed):
        raise FleetError(f"version {document.version} is not newer than {newest}, which the registry has")


def enter(registry: Registry, signed: Signed, note: str, *, who: str, time_us: int) -> Document:
    """Enter a document that was checked; the same again is a no-op.

    Raises:
        FleetError: it is another fleet's, or its version is not higher than all others.
    """
    check_new(registry, signed)
    document = signed.document
    entry = Document(
        version=document.version,
        target=target_of(document.to),
        digest=signed.envelope.digest,
        payload=signed.payload,
        description=note or ", ".join(promise.stream for promise in promises(document)),
        restores=restored_by(registry, document),
    )
    registry.add_document(entry, who=who, time_us=time_us)
    return entry


def _has(registry: Registry, signed: Signed) -> bool:
    try:
        return registry.document(signed.document.version).payload == signed.payload
    except UnknownNameError:
        return False
