"""The owner's pins and limits of a device, in words: for `fugu-agent --check`."""

from __future__ import annotations

from pathlib import Path

from edge_agent.config_schema import read_config, read_policies
from fugu.contract.chains import ChainClass
from fugu.contract.fleet_documents import read_enrolment
from fugu.contract.measure_table import members
from fugu.contract.pins import MeasuredPins, SymbolPins

__all__ = ["limits"]


def limits(path: str | Path) -> list[str]:
    """Lines that say for each stream of a valid configuration what its policy may not change, and may tell at most."""
    folder, config = Path(path).parent, read_config(Path(path))
    pins: dict[str, SymbolPins | MeasuredPins | None]
    if config.enrolment is None:
        ceilings = config.ceiling, config.measurement_ceiling, config.total_ceiling
        policies = read_policies(config, folder)
        pins = {policy.stream: stream.pins for policy, stream in zip(policies, config.streams, strict=True)}
        who, refused = "whoever writes its policy file", False
    else:
        enrolment = read_enrolment((folder / config.enrolment).read_bytes())
        ceilings = enrolment.ceiling, enrolment.measurement_ceiling, enrolment.total_ceiling
        pins = {stream.stream or "": enrolment.pins.get(stream.stream or "") for stream in config.streams}
        who, refused = "whoever holds the policy keys", bool(enrolment.pins)
    lines = [f"stream {name}: {_pinned(pin, who, refused=refused)}" for name, pin in pins.items()]
    of_stream, point, total = (None if ceiling is None else f"at most epsilon {ceiling}" for ceiling in ceilings)
    lines.append(f"each stream: {of_stream}; each released point: {point or 'none may leave'}")
    if total or len(pins) > 1:
        lines.append(f"all streams together: {total or 'not limited; the sum of their epsilons is no bound'}")
    lines += [
        f"group {pin.name}: joined, on these terms: its helper's digits are {pin.helper}, at least {pin.honest} honest "
        f"homes, at most epsilon {pin.most} of the stream"
        for pin in config.groups
    ]
    return lines


def _pinned(pins: SymbolPins | MeasuredPins | None, who: str, *, refused: bool) -> str:
    if pins is None:
        if refused:
            return "refused, because nothing is pinned of it, unlike of others"
        return f"as its policy says, up to the ceiling; no pins here, so {who} chooses states, ticks and the class"
    states = f"pinned are its {len(pins.discretiser.states)} states ({pins.discretiser.kind})"
    if isinstance(pins, MeasuredPins):
        pairs = sum(len(members(others)) for others in pins.neighbours()) // 2
        return (
            f"{states}, its clock, first states and steps, {pairs} pairs of its graph, a factor of at most "
            f"{pins.factor} and a degree of protection of at least {pins.degree}. The rest of its graph is not pinned"
        )
    windows = "windows are not pinned"
    if pins.windows is not None:
        windows = f"windows alone at most epsilon {pins.windows.epsilon:g}, {pins.windows.adversary}"
    exactly = "exactly" if pins.discretiser.remembers else "a multiple of"
    return (
        f"{states}, {exactly} {pins.period_us / 1e6:g} s a tick, {_chains(pins.chains)} and the {pins.adversary} "
        f"adversary at least; {windows}"
    )


def _chains(chains: ChainClass) -> str:
    streams = ", ".join(f"{stream.name} at most {stream.rate:g} nats a tick" for stream in chains.named_streams)
    return f"joint chains, {chains.label} ({streams})" if streams else f"chains with {chains.label}"
