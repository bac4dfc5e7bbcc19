"""One run of the demo: processes started, watched and stopped in order; then the evaluation."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.live import Live

from firmware_sim.devices import AgentProcess, write_device
from fugu.cli.demo.evaluation import FLEET, Person, evaluate, load_people, policy_for, summary
from fugu.cli.demo.page import Observer
from fugu.cli.demo.pictures import html_report, private_picture, useful_picture
from fugu.cli.demo.processes import DemoError, gateway, start_broker, subscriber
from fugu.cli.view.terminal import console, say
from fugu.contract.errors import FuguError
from fugu.contract.policy import Policy
from fugu.mqtt import Broker

__all__ = ["run"]

PERIOD_SECONDS = 0.001
_LEADS = (8.0, 40.0, 200.0)
"""Seconds to start in before the first heartbeat: if they are too few, all is started anew with the next."""
_MOST_SECONDS = 600.0
_STILL_SECONDS, _GIVEN_UP_SECONDS = 15.0, 60.0
"""A device of which nothing changes for so long is named, and then left out."""


def run(out: Path, live: bool, broker: str, *, page: bool) -> int:
    """Run the demo until the nights are over, and write its report; returns 1 if something is missing in it.

    Args:
        out: folder for `report.html`, its first two pictures, `useful.svg` and `private.svg`, and the processes' logs.
        live: show a table that renews itself.
        broker: "auto", "mosquitto" or "embedded".
        page: serve the live page, if that can be.

    Raises:
        FuguError: if a process does not start or ends early, or nothing has come of any device.
    """
    out.mkdir(parents=True, exist_ok=True)
    say("reading three nights, and fitting a class of chains to each ...")
    people = load_people()
    with tempfile.TemporaryDirectory(prefix="fugu-demo-") as folder:
        readings = Path(folder) / "readings.jsonl"
        policies, name, seconds, missing = _stream(people, Path(folder), readings, out, live, broker, page)
        say("attacking what was released ...")
        nights = evaluate(people, policies, readings)
    arrived = {night.name for night in nights}
    missing += [f"no window of {one.device} reached the subscriber" for one in people if one.name not in arrived]
    (out / "report.html").write_text(html_report(nights, name, seconds, missing))
    (out / "useful.svg").write_text(useful_picture(nights[0]))
    (out / "private.svg").write_text(private_picture(nights[0]))
    for sentence in summary(nights[0])[:2]:
        say(f"\n{sentence}")
    say(f"\nthe other nights, and what attackers reached: {out / 'report.html'}")
    for sentence in missing:
        say(f"missing: {sentence}")
    return 1 if missing else 0


def _stream(
    people: Sequence[Person], folder: Path, readings: Path, out: Path, live: bool, kind: str, page: bool
) -> tuple[dict[str, Policy], str, float, list[str]]:
    """Run all processes; the devices' policies, the broker's name, for how many seconds they sent, what is missing."""
    with ExitStack() as stack:
        port, name = stack.enter_context(start_broker(kind, out))
        say(f"{name} on port {port}; devices, a gateway and a subscriber; a night in half a minute ...")
        observer = Observer(Broker(port=port), FLEET, {person.device: len(person.states) for person in people})
        observer.link.start()
        stack.callback(observer.link.stop)
        stack.enter_context(subscriber(port, FLEET, readings, out))
        for version, lead in enumerate(_LEADS, start=1):
            epoch, attempt = round(time.time() + lead, 3), stack.enter_context(ExitStack())
            policies = {
                person.device: policy_for(person, epoch=epoch, period_seconds=PERIOD_SECONDS, version=version)
                for person in people
            }
            if page and version == 1:
                _show(stack, people, policies, Broker(port=port))
            serving, processes = _start(attempt, people, policies, folder / str(version), out, port)
            while time.time() < epoch and not observer.online(version) and not _over(observer, serving, processes):
                observer.link.maintain()
                time.sleep(0.02)
            if time.time() < epoch:
                missing = _watch(observer, serving, processes, live, f"Three nights over {name}", epoch)
                return policies, name, time.time() - epoch, missing
            attempt.close()
    raise DemoError(f"devices and gateway did not start within {_LEADS[-1]:.0f} s: see their logs in {out}")


def _show(stack: ExitStack, people: Sequence[Person], policies: Mapping[str, Policy], broker: Broker) -> None:
    """Serve the page, and say where; the demo goes on without it if that cannot be."""
    try:
        from fugu.cli.demo.page import demo_page

        shown = stack.enter_context(demo_page(people, policies, broker))
    except (FuguError, ImportError, OSError) as error:
        say(f"no page: {error}")
    else:
        say(f"the page: {shown.settings.address}demo")


def _start(
    stack: ExitStack, people: Sequence[Person], policies: Mapping[str, Policy], folder: Path, out: Path, port: int
) -> tuple[subprocess.Popen[bytes], dict[str, AgentProcess]]:
    """Start a gateway, and then the devices, which are not to send anything if they are late."""
    (folder / "policies").mkdir(parents=True)
    for device, policy in policies.items():
        (folder / "policies" / f"{device}.json").write_text(policy.to_json())
    serving = stack.enter_context(gateway(port, FLEET, folder, folder / "gateway.sqlite", out / "gateway.log"))
    processes, broker, drain = dict[str, AgentProcess](), Broker(port=port), _MOST_SECONDS
    for person in people:
        policy, place = policies[person.device], folder / person.device
        config = write_device(place, policy, person.recording, "value", broker, status_seconds=0.5, drain_seconds=drain)
        processes[person.device] = AgentProcess(config, out / f"{person.device}.log")
        stack.callback(processes[person.device].kill)
    return serving, processes


def _over(observer: Observer, serving: subprocess.Popen[bytes], processes: Mapping[str, AgentProcess]) -> bool:
    """True if all devices are through with their recordings."""
    codes = [process.process.poll() for process in processes.values()]
    if any(codes):
        raise DemoError(f"a device has stopped: {observer.errors() or 'see its log'}")
    if serving.poll() is not None:
        raise DemoError("the gateway has ended: see gateway.log")
    return None not in codes


def _watch(
    observer: Observer,
    serving: subprocess.Popen[bytes],
    processes: dict[str, AgentProcess],
    live: bool,
    title: str,
    epoch: float,
) -> list[str]:
    """Show what the observer sees until the recordings are over, and all that was released is durable.

    A device that stands still is named, and after a while killed; returns a sentence for each.
    """
    end = time.monotonic() + _MOST_SECONDS
    named, missing = set[str](), list[str]()
    with ExitStack() as stack:
        view = stack.enter_context(Live(console=console(), refresh_per_second=4)) if live else None
        while not _over(observer, serving, processes):
            observer.link.maintain()
            late = time.monotonic() > end
            for device, agent in [*processes.items()]:
                since = time.monotonic() - (time.time() - epoch)
                seconds, where = observer.stands(device, since)
                if agent.process.poll() is not None or not (late or seconds > _STILL_SECONDS):
                    continue
                if device not in named:
                    named.add(device)
                    say(f"{device} (process {agent.process.pid}) has stood still for {seconds:.0f} s: {where}")
                if late or seconds > _GIVEN_UP_SECONDS:
                    missing.append(f"{device} stood still for {seconds:.0f} s and was ended: {where}")
                    agent.kill()
                    del processes[device]
            if view is not None:
                view.update(observer.table(title))
            time.sleep(0.1)
    if not live:
        console().print(observer.table(title))
    return missing
