"""One run of the demo: processes started, watched and stopped in order; then the evaluation."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from contract.errors import FuguError
from firmware_sim.devices import AgentProcess, write_device
from fugu.demo.attack import attack, price
from fugu.demo.broker import start_broker
from fugu.demo.live import Observer
from fugu.demo.people import FLEET, Person, load_people, policy_for
from fugu.demo.report import DeviceResult, html_report, overview_picture
from mqtt_link import Broker

__all__ = ["run"]

PERIOD_US = 1600
_PRICE_EPSILONS = (1.0, 2.0, 4.0)
_START_SECONDS = 90.0
_STOP_SECONDS = 30.0


class DemoError(FuguError):
    """A process of the demo did not do what it should."""

    reason = "demo"


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
        readings, name, took = _stream(console, people, Path(folder), out, seconds, live, broker)
        console.print("comparing attackers ...")
        results = _evaluate(people, readings)
    (out / "report.html").write_text(html_report(results, name, took))
    (out / "overview.svg").write_text(overview_picture(results))
    console.print(_summary(results))
    console.print(f"report: {out / 'report.html'}")
    return 0


def _stream(
    console: Console, people: Sequence[Person], folder: Path, out: Path, seconds: float, live: bool, kind: str
) -> tuple[Path, str, float]:
    """Run all processes; returns the subscriber's file, the broker's name, and the seconds it took."""
    readings = folder / "readings.jsonl"
    with ExitStack() as stack:
        port, name = stack.enter_context(start_broker(kind, out))
        address = Broker(port=port)
        console.print(f"{name} on port {port}; starting the gateway (compiles its kernels on the first run) ...")
        observer = Observer(address, FLEET, [person.device for person in people])
        observer.link.start()
        stack.callback(observer.link.stop)
        stack.enter_context(_subscriber(port, readings, out))
        epoch = (time.time_ns() // 1000) + 3_000_000
        policies = folder / "policies"
        policies.mkdir()
        agents = []
        for person in people:
            policy = policy_for(person, epoch_us=epoch, period_us=PERIOD_US)
            (policies / f"{person.device}.json").write_text(policy.to_json())
            config = write_device(
                folder / person.device, policy, person.recording, "value", address, status_seconds=0.5
            )
            agents.append((person.device, config))
        stack.enter_context(_gateway(port, policies, folder, out))
        _await("the gateway has started", lambda: "has started" in (out / "gateway.log").read_text(), _START_SECONDS)
        started = time.monotonic()
        processes = [AgentProcess(config, out / f"{device}.log") for device, config in agents]
        for process in processes:
            stack.callback(process.process.kill)
        _watch(console, observer, processes, seconds, live, name)
        for process in processes:
            process.process.terminate()
        if any(process.process.wait(_STOP_SECONDS) for process in processes):
            raise DemoError(f"a device ended with an error: see the logs in {out}")
        took = time.monotonic() - started
    return readings, name, took


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


def _await(what: str, condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DemoError(f"waited {seconds:.0f} s in vain until {what}")
        time.sleep(0.1)


def _settled(file: Path) -> Callable[[], bool]:
    """A condition that holds once a file has not grown between two calls."""
    size = -1

    def same() -> bool:
        nonlocal size
        before, size = size, file.stat().st_size
        return size == before

    return same


@contextmanager
def _process(arguments: Sequence[str], output: Path | None, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A `fugu` command in a process of its own; ended in order when the context ends."""
    with ExitStack() as stack:
        errors = stack.enter_context(log.open("wb"))
        target = errors if output is None else stack.enter_context(output.open("wb"))
        process = subprocess.Popen([sys.executable, "-m", "fugu", *arguments], stdout=target, stderr=errors)
    try:
        yield process
        process.terminate()
        if process.wait(_STOP_SECONDS) != 0:
            raise DemoError(f"{arguments[0]} ended with code {process.returncode}: see {log}")
    finally:
        process.kill()


@contextmanager
def _gateway(port: int, policies: Path, folder: Path, out: Path) -> Iterator[None]:
    arguments = ["gateway", "run", "--verbose", "--fleet", FLEET, "--policies", str(policies)]
    arguments += ["--store", str(folder / "gateway.sqlite"), "--broker", f"127.0.0.1:{port}"]
    with _process(arguments, None, out / "gateway.log"):
        yield


@contextmanager
def _subscriber(port: int, readings: Path, out: Path) -> Iterator[None]:
    arguments = ["subscribe", "--fleet", FLEET, "--broker", f"127.0.0.1:{port}", "--json"]
    with _process(arguments, readings, out / "subscriber.log"):
        yield
        _await("the subscriber has read everything", _settled(readings), _STOP_SECONDS)


def _evaluate(people: Sequence[Person], readings: Path) -> list[DeviceResult]:
    """Compare what the subscriber received with the truth, which only the recordings know."""
    symbols = {person.device: np.full(len(person.states), -1, dtype=np.int64) for person in people}
    estimates = {person.device: np.full(len(person.states), np.nan) for person in people}
    for line in readings.read_text().splitlines():
        reading = json.loads(line)
        tick, device = reading["tick"], reading["device"]
        if tick >= len(symbols[device]):
            continue
        if reading["kind"] == "symbol":
            symbols[device][tick] = reading["symbol"]
        else:
            estimates[device][tick] = reading["probabilities"][1]
    results = []
    for person in people:
        received = np.flatnonzero(symbols[person.device] >= 0)
        if len(received) < 100:
            raise DemoError(f"only {len(received)} symbols of {person.device} reached the subscriber")
        ticks = slice(int(received[0]), int(received[-1]) + 1)
        states, sent = person.states[ticks], symbols[person.device][ticks]
        estimate = estimates[person.device][ticks]
        known = ~np.isnan(estimate)
        honest = float(((estimate[known] > 0.5) == states[known]).mean())
        generator = np.random.default_rng(2020)
        prices = [price(person, epsilon, generator) for epsilon in _PRICE_EPSILONS]
        results.append(
            DeviceResult(person, states, sent, estimate, honest, attack(person, states, sent, generator), prices)
        )
    return results


def _summary(results: Sequence[DeviceResult]) -> Table:
    table = Table(
        title="How often an attacker who uses the correlation guesses a reading right",
        title_justify="left",
        caption="guess: always the more frequent state. promise: the most that epsilon allows. ordinary: against "
        "ordinary randomised response at that epsilon, whose real one comes next. ours: against Fugu Edge, with the "
        "proven ceiling. gateway: how often its own estimate is right.",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("device")
    for heading in ("ε", "guess", "promise", "ordinary", "real ε", "ours", "ceiling", "gateway"):
        table.add_column(heading, justify="right")
    for result in results:
        a = result.attack
        colour = "red" if a.ordinary > a.promised else "green"
        table.add_row(
            *(result.person.name, f"{result.person.epsilon:g}", f"{a.majority:.3f}", f"{a.promised:.3f}"),
            *(f"[{colour}]{a.ordinary:.3f}[/]", f"{a.ordinary_epsilon:.2f}", f"[green]{a.ours:.3f}[/]"),
            *(f"{a.ceiling:.3f}", f"{result.honest:.3f}"),
        )
    return table
