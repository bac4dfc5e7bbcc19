"""The live page with 10,000 devices: how soon it is there, how smooth it is, and what the gateway feels of it.

Usage: python benchmarks/dashboard.py [--json] [--devices N] [--frames N] [--rounds N]

A real gateway with `--dashboard` beside a real Mosquitto, and Chromium. Intake is measured in pairs of rounds that
follow one another, as many frames with and without 20 open pages. 10 pages are of the fleet and 10 of a device that is
sending. Shown are the median of the pairs' ratios, above 1 where pages cost something, and their quartiles. Beside wall
time, which depends on what else the machine does, stands the processor time of each process. The browser is closed
meanwhile.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import ingest
from figures import command_line, show
from gateways import FLEET, STREAM, write_policies
from processes import memory, started

from fugu.contract.descriptions import describe
from fugu.contract.frames import Status, StreamStatus, SymbolFrame
from fugu.contract.reports import StateEstimate
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker, Link
from fugu_cli.demo.processes import start_broker

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from tests.support.brokers import free_port, wait_until
from tests.support.browser import Browser, chromium
from tests.support.gateway_files import gateway_file
from tests.support.pages import Site

PAGES = 20
UPDATES_A_SECOND, WATCH_SECONDS = 60, 10.0
FRAME_MS = 1000.0 / 60.0
BUSY = "d0"
_PAINTED = """
window.painted = null;
const look = () => {
  const shown = document.querySelector('.tiles strong')?.innerText ?? '';
  if (shown === '@DEVICES@' && document.querySelector('tbody tr')) window.painted = performance.now();
  else requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""
_WATCH = """
window.deltas = []; window.long = []; window.changes = 0; let changed = false;
const deltas = window.deltas;
new PerformanceObserver((list) => list.getEntries().forEach((one) => window.long.push(one.duration)))
  .observe({type: 'longtask'});
new MutationObserver(() => { changed = true; }).observe(document.querySelector('main'),
  {subtree: true, childList: true, characterData: true});
let last = null;
const next = (now) => {
  if (last !== null) window.deltas.push(now - last);
  window.changes += changed; changed = false; last = now;
  if (window.deltas === deltas) requestAnimationFrame(next);
};
requestAnimationFrame(next);
"""


def main() -> None:
    """Measure and print."""
    parser = command_line(__doc__)
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--frames", type=int, default=10_000, help="of a round")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of them")
    options = parser.parse_args()
    show(measured(options.devices, options.frames, options.rounds), as_json=options.json)


def measured(devices: int, frames: int, rounds: int) -> dict[str, object]:
    """All figures, by name."""
    figures: dict[str, object] = {
        "devices, frames of a round, pairs of rounds": f"{devices}, {frames}, {rounds}",
        "load of the machine before, and its processors": f"{os.getloadavg()[0]:.1f}, {os.cpu_count()}",
    }
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_policies(folder, ingest.policies())
        port, _ = stack.enter_context(start_broker("mosquitto", folder))
        counted = ingest._Counted(port)
        stack.callback(counted.stop)
        site = Site(free_port())
        gateway = stack.enter_context(_gateway(folder, port, site.port))
        counted.online()
        wait_until(site.answers, "the page")
        link = Link(Broker(port=port), client_id="crowd")
        link.start()
        stack.callback(link.stop)
        _say_all(link, devices)
        pids = _pids(gateway)
        with chromium(folder / "profile") as browser:
            figures |= _first_paint(browser, site, devices)
            figures |= _smooth(browser, site, link)
        figures |= _intake(site, port, counted, pids, frames, rounds)
        most_memory = memory(pids.page, "VmHWM")
        figures["page's process, most resident memory: ratio to 80 MB"] = round(most_memory / 80e6, 2)
        figures["page's process, most resident memory: MB"] = round(most_memory / 1e6, 1)
    return figures


@contextmanager
def _gateway(folder: Path, port: int, page: int) -> Iterator[int]:
    shown = {"listen": f"127.0.0.1:{page}", "no_login": True}
    file = gateway_file(folder / "gateway.toml", port, fleet=FLEET, store="s.sqlite", policies="policies", page=shown)
    with (
        (folder / "gateway.log").open("wb") as log,
        started("-m", "fugu", "gateway", "run", file, stdout=log, stderr=log) as process,
    ):
        yield process.pid


def _say_all(link: Link, devices: int) -> None:
    """Retained statuses of all devices; those of the gateway's policies are among them."""
    for number in range(devices):
        status = Status(number % 50 != 0, "1.0", 0, (), (StreamStatus(STREAM, 1, 5),))
        topic = topic_of("status", FLEET, f"d{number}")
        _publish(link, topic, status.encode(), retain=True)


def _publish(link: Link, topic: str, payload: bytes, *, retain: bool = False) -> None:
    wait_until(lambda: link.publish(topic, payload, retain=retain) is not None, "room for a message")


class Pids(NamedTuple):
    """Processes that are measured."""

    gateway: int
    broker: int
    page: int


def _pids(gateway: int) -> Pids:
    """Of a gateway that this process has started, as it has the broker."""
    words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in ingest._processes(os.getpid())}
    [broker] = [pid for pid, word in words.items() if b"mosquitto" in word]
    [page] = [pid for pid in ingest._processes(gateway) if b"spawn_main" in words[pid]]
    return Pids(gateway, broker, page)


def _first_paint(browser: Browser, site: Site, devices: int) -> dict[str, object]:
    """From the request to the first paint, and to rows on the screen; the best and the worst of five."""
    source = {"source": _PAINTED.replace("@DEVICES@", f"{devices:,}")}
    browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    painted = {
        "all devices on the screen": "return window.painted",
        "first paint": "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null",
    }
    times: dict[str, list[float]] = {event: [] for event in painted}
    for _ in range(5):
        browser.open(site.address)
        for event, script in painted.items():
            wait_until(lambda: browser.run(script) is not None, event)  # noqa: B023
            times[event].append(float(browser.run(script)))
    figures: dict[str, object] = {}
    for event, milliseconds in times.items():
        figures[f"{event}: ms, best of five"] = round(min(milliseconds))
        figures[f"{event}: ms, worst of five"] = round(max(milliseconds))
    worst = max(times["all devices on the screen"])
    return {**figures, "all devices on the screen, worst: ratio to 1 s": round(worst / 1000.0, 2)}


def _smooth(browser: Browser, site: Site, link: Link) -> dict[str, object]:
    """Frames of the browser while a stream is updated 60 times a second, and while nothing happens."""
    description = describe(next(ingest.policies()).model_copy(update={"device": "busy"})).encode()
    _publish(link, topic_of("description", FLEET, "busy", STREAM), description, retain=True)
    browser.open(f"{site.address}/device/busy")
    wait_until(lambda: "live" in browser.text("#view"))
    still = _watched(browser)
    ending = threading.Event()
    sender = threading.Thread(target=_send, args=(link, ending))
    sender.start()
    wait_until(lambda: browser.count(".frames li") > 0 and browser.count("canvas") > 0, "a frame and an estimate")
    busy = _watched(browser)
    ending.set()
    sender.join()
    dropped = [_dropped(figures_of["deltas"]) for figures_of in (still, busy)]
    drawn = max(1, busy["changes"])
    return {
        "updates published a second, each a frame and an estimate": UPDATES_A_SECOND,
        "browser frames in which the page changed, a second": round(busy["changes"] / WATCH_SECONDS, 1),
        "browser frames dropped, nothing happens: %": round(100.0 * dropped[0], 2),
        "browser frames dropped, 60 updates a second: %": round(100.0 * dropped[1], 2),
        "median time between browser frames: ratio to 1/60 s": round(statistics.median(busy["deltas"]) / FRAME_MS, 2),
        "long tasks (50 ms) of the page": len(busy["long"]),
        "browser's main thread, processor time of a frame that changes: ms": round(
            1e3 * busy["TaskDuration"] / drawn, 2
        ),
        "of that scripts: ms": round(1e3 * busy["ScriptDuration"] / drawn, 2),
        "of that styles and layout: ms": round(1e3 * (busy["RecalcStyleDuration"] + busy["LayoutDuration"]) / drawn, 2),
    }


def _watched(browser: Browser) -> dict[str, Any]:
    """Notes of the page within some seconds, and the time that the browser's main thread has used, in seconds."""
    browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    browser.run(_WATCH)
    before = _used_by(browser)
    time.sleep(WATCH_SECONDS)
    used = {name: then - before[name] for name, then in _used_by(browser).items()}
    watched: dict[str, Any] = browser.run("return {deltas: window.deltas, long: window.long, changes: window.changes}")
    return watched | used


def _used_by(browser: Browser) -> dict[str, float]:
    metrics = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return {metric["name"]: metric["value"] for metric in metrics}


def _dropped(deltas: list[float]) -> float:
    """The share of frames that were due and did not come."""
    missed = sum(max(0, round(delta / FRAME_MS) - 1) for delta in deltas)
    return missed / (missed + len(deltas))


def _send(link: Link, ending: threading.Event) -> None:
    """A frame of ten symbols of one device and an estimate, 60 times a second."""
    where, number, begun = (FLEET, "busy", STREAM), 0, time.monotonic()
    while not ending.wait(max(0.0, begun + number / UPDATES_A_SECOND - time.monotonic())):
        frame = SymbolFrame(1, 10 * number - 1, 10 * number, bytes((number + tick) % 2 for tick in range(10)))
        link.publish(topic_of("symbols", *where), frame.encode())
        now, share = datetime.now(UTC), number % 100 / 100
        shares = {"low": 1.0 - share, "high": share}
        estimate = StateEstimate(now, now, 10 * number + 9, 10, "high", share, shares, 1.0, "universal", useful=True)
        link.publish(topic_of("estimate", *where), estimate.encode())
        number += 1


class Costs(NamedTuple):
    """Of a frame, in microseconds: wall time, processor time of processes, and how long the gateway waited for one."""

    wall: float
    gateway: float
    broker: float
    page: float
    readers: float
    waited: float


def _intake(site: Site, port: int, counted: ingest._Counted, pids: Pids, frames: int, rounds: int) -> dict[str, object]:
    """Cost of a frame until it is durable with and without open pages, in pairs of rounds."""
    done = 0

    def one_round(pages: int) -> Costs:
        nonlocal done
        with _open_pages(site, pages) as readers, ingest._publishers(port, done, done + frames) as publish:
            before = _used(pids, readers)
            publish()
            counted.done(done + frames)
            after = _used(pids, readers)
        done += frames
        return Costs(*(1e6 * (then - now) / frames for now, then in zip(before, after, strict=True)))

    one_round(0)
    costs: dict[int, list[Costs]] = {0: [], PAGES: []}
    for number in range(rounds):
        for pages in (0, PAGES)[:: 1 if number % 2 else -1]:
            costs[pages].append(one_round(pages))
    figures: dict[str, object] = {}
    for name in ("wall", "gateway", "broker"):
        pairs = zip(costs[PAGES], costs[0], strict=True)
        ratios = [getattr(with_pages, name) / getattr(without, name) for with_pages, without in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4)
        quantity = "wall time" if name == "wall" else f"processor time of the {name}"
        figures[f"{quantity} of a frame with {PAGES} pages: ratio, median of pairs"] = round(middle, 3)
        figures[f"{quantity} of a frame with {PAGES} pages: ratio, quartiles"] = f"{low:.3f} {high:.3f}"
    for name in Costs._fields:
        medians = [statistics.median(getattr(cost, name) for cost in costs[pages]) for pages in (0, PAGES)]
        figures[f"{name}: us of a frame, without pages and with {PAGES}"] = " ".join(
            f"{median:.1f}" for median in medians
        )
    return figures


def _used(pids: Pids, readers: threading.Thread) -> Costs:
    """Seconds since some time, and seconds of processor time of each process."""
    page = ingest._processor_seconds(pids.page)
    tasks = [*Path(f"/proc/{pids.gateway}/task").iterdir()]
    waited = sum(int((task / "schedstat").read_text().split()[1]) for task in tasks) / 1e9
    return Costs(
        wall=time.perf_counter(),
        gateway=ingest._processor_seconds(pids.gateway) - page,
        broker=ingest._processor_seconds(pids.broker),
        page=page,
        readers=int(Path(f"/proc/self/task/{readers.native_id}/schedstat").read_text().split()[0]) / 1e9,
        waited=waited,
    )


@contextmanager
def _open_pages(site: Site, pages: int) -> Iterator[threading.Thread]:
    """Streams of events of tabs, read and thrown away."""
    ending = threading.Event()
    paths = ["/events/fleet", f"/events/device/{BUSY}"] * (pages // 2)
    sockets = [socket.create_connection(("127.0.0.1", site.port)) for _ in paths]
    for path, connection in zip(paths, sockets, strict=True):
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
        connection.recv(1 << 16)

    def drain() -> None:
        while not ending.wait(0.1):
            for opened in sockets:
                opened.setblocking(False)
                try:
                    while opened.recv(1 << 20):
                        pass
                except BlockingIOError:
                    continue

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield reader
    finally:
        ending.set()
        reader.join()
        for opened in sockets:
            opened.close()


if __name__ == "__main__":
    main()
