"""One run of the demo: processes started, watched and stopped in order; then the evaluation."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.live import Live

from contract.policy import Policy
from firmware_sim.devices import AgentProcess, write_device
from fugu.demo.broker import start_broker
from fugu.demo.counts import ledger_lines
from fugu.demo.evaluation import evaluate
from fugu.demo.live import Observer
from fugu.demo.people import FLEET, Person, load_people
from fugu.demo.policies import RELEASES, policy_for
from fugu.demo.processes import STOP_SECONDS, DemoError, gateway, subscriber
from fugu.demo.report import html_report, overview_picture
from fugu.demo.tables import attack_table, ledger_text, release_table, window_table
from gateway.service.kinds.symbol_model import warm
from gateway.service.release_setup import ledger_beside
from mqtt_link import Broker

__all__ = ["run"]

PERIOD_US = 1600
_LEAD_US = 6_000_000
"""From the policies to the first heartbeat: until then gateway and devices have started, as a rule."""


class _Streamed(NamedTuple):
    """A run that is over.

    Attributes:
        readings: what the subscriber printed.
        ledger: the gateway's.
        policies: of the devices.
        broker: its name.
        seconds: how long the devices ran.
    """

    readings: Path
    ledger: Path
    policies: dict[str, Policy]
    broker: str
    seconds: float


def run(out: Path, seconds: float, live: bool, broker: str) -> int:
    """Run the demo and write its report.

    Args:
        out: folder for `report.html`, `overview.svg` and the processes' logs.
        seconds: how long the devices send, unless their recordings end before.
        live: show a table that renews itself.
        broker: "auto", "mosquitto" or "embedded".

    Raises:
        FuguError: if a process does not start, or ends early.
    """
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    people = load_people()
    with tempfile.TemporaryDirectory(prefix="fugu-demo-") as folder:
        streamed = _stream(console, people, Path(folder), out, seconds, live, broker)
        console.print("comparing attackers ...")
        result = evaluate(people, streamed.policies, streamed.readings)
        ledger = ledger_lines(streamed.ledger)
    (out / "report.html").write_text(html_report(result, ledger, streamed.broker, streamed.seconds))
    (out / "overview.svg").write_text(overview_picture(result.devices))
    for part in (attack_table(result), window_table(result), release_table(result), ledger_text(ledger)):
        console.print(part, "", sep="\n")
    console.print(f"report: {out / 'report.html'}")
    return 0


def _stream(
    console: Console, people: Sequence[Person], folder: Path, out: Path, seconds: float, live: bool, kind: str
) -> _Streamed:
    """Run all processes."""
    readings, store, policies = folder / "readings.jsonl", folder / "gateway.sqlite", {}
    (folder / "policies").mkdir()
    (folder / "releases.toml").write_text(RELEASES)
    with ExitStack() as stack:
        port, name = stack.enter_context(start_broker(kind, out))
        address = Broker(port=port)
        console.print(f"{name} on port {port}; starting the gateway (compiles its kernels on the first run) ...")
        observer = Observer(address, FLEET, [person.device for person in people])
        observer.link.start()
        stack.callback(observer.link.stop)
        stack.enter_context(subscriber(port, FLEET, readings, out))
        warm()  # what is compiled now keeps no device waiting: the recordings begin at a fixed time
        epoch = (time.time_ns() // 1000) + _LEAD_US
        agents = []
        for person in people:
            policy = policy_for(person, epoch_us=epoch, period_us=PERIOD_US)
            policies[person.device] = policy
            (folder / "policies" / f"{person.device}.json").write_text(policy.to_json())
            config = write_device(
                folder / person.device, policy, person.recording, "value", address, status_seconds=0.5
            )
            agents.append((person.device, config))
        releases = ("--releases", str(folder / "releases.toml"))
        stack.enter_context(gateway(port, FLEET, folder, store, out / "gateway.log", *releases))
        lead = max(0.0, epoch / 1e6 - time.time())
        started = time.monotonic() + lead
        processes = [AgentProcess(config, out / f"{device}.log") for device, config in agents]
        for process in processes:
            stack.callback(process.process.kill)
        _watch(console, observer, processes, lead + seconds, live, name)
        for process in processes:
            process.process.terminate()
        if any(process.process.wait(STOP_SECONDS) for process in processes):
            raise DemoError(f"a device ended with an error: see the logs in {out}")
        took = time.monotonic() - started
    return _Streamed(readings, ledger_beside(store), policies, name, took)


def _watch(
    console: Console, observer: Observer, processes: Sequence[AgentProcess], seconds: float, live: bool, name: str
) -> None:
    """Show what the observer sees until the recordings are over, or the time is up."""
    end = time.monotonic() + seconds
    view = Live(console=console, refresh_per_second=4) if live else None
    with ExitStack() as stack:
        if view is not None:
            stack.enter_context(view)
        while (left := end - time.monotonic()) > 0:
            observer.link.maintain()
            codes = [process.process.poll() for process in processes]
            if any(codes):
                raise DemoError(f"a device has stopped: {observer.errors() or 'see its log'}")
            if None not in codes:
                break
            if view is not None:
                view.update(observer.table(f"Fugu Edge demo over {name}: at most {left:.0f} s more"))
            time.sleep(min(0.25, left))
    console.print(observer.table(f"Fugu Edge demo over {name}") if view is None else "")
