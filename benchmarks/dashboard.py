"""The live page with 10,000 devices: how soon it is there, how smooth it is, and what the gateway feels of it.

Usage: python benchmarks/dashboard.py [--json] [--devices N] [--frames N] [--rounds N]

A real gateway with `--dashboard` beside a real Mosquitto, and Chromium. Intake is measured in pairs of rounds that
follow one another, as many frames with and without 20 open pages, 10 of the fleet and 10 of a device that is sending;
what is shown is the median of the ratios of the pairs, and their spread. The browser shows nothing meanwhile.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import ingest
from figures import show

from contract.frames import Status, StreamStatus, SymbolFrame, encode_status, encode_symbols
from contract.topics import status_topic, symbols_topic
from fugu.demo.broker import start_broker
from mqtt_link import Broker, Link
from tests.support.brokers import free_port, wait_until
from tests.support.browser import Browser, chromium
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
window.deltas = []; window.long = []; window.changes = 0;
new PerformanceObserver((list) => list.getEntries().forEach((one) => window.long.push(one.duration)))
  .observe({type: 'longtask'});
new MutationObserver(() => { window.changes += 1; }).observe(document.querySelector('main'),
  {subtree: true, childList: true, characterData: true});
let last = null;
const next = (now) => { if (last !== null) window.deltas.push(now - last); last = now; requestAnimationFrame(next); };
requestAnimationFrame(next);
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--devices", type=int, default=10_000)
    parser.add_argument("--frames", type=int, default=10_000, help="of a round")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of them")
    options = parser.parse_args()
    show(measured(options.devices, options.frames, options.rounds), as_json=options.json)
    return 0


def measured(devices: int, frames: int, rounds: int) -> dict[str, object]:
    """All figures, by name."""
    figures: dict[str, object] = {"devices, frames of a round, pairs of rounds": f"{devices}, {frames}, {rounds}"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ingest._write_policies(folder)
        port, _ = stack.enter_context(start_broker("mosquitto", folder))
        counted = ingest._Counted(port)
        stack.callback(counted.stop)
        site = Site(free_port())
        stack.enter_context(_gateway(folder, port, site.port))
        counted.online()
        wait_until(site.answers, "the page")
        link = Link(Broker(port=port), client_id="crowd")
        link.start()
        stack.callback(link.stop)
        _say_all(link, devices)
        page = _page_pid()
        browser = stack.enter_context(chromium(folder / "profile"))
        figures |= _first_paint(browser, site, devices)
        figures |= _smooth(browser, site, link)
        browser.open("about:blank")
        figures |= _intake(site, port, counted, page, frames, rounds)
        figures["page's process, most resident memory: ratio to 80 MB"] = round(_memory(page, "VmHWM") / 80e6, 2)
        figures["page's process, most resident memory: MB"] = round(_memory(page, "VmHWM") / 1e6, 1)
    return figures


@contextmanager
def _gateway(folder: Path, port: int, page: int) -> Iterator[None]:
    command = [sys.executable, "-m", "fugu", "gateway", "run", "--fleet", ingest.FLEET, "--store", folder / "s.sqlite"]
    command += ["--policies", folder / "policies", "--broker", f"127.0.0.1:{port}"]
    command += ["--dashboard", f"127.0.0.1:{page}", "--dashboard-no-login"]
    with (folder / "gateway.log").open("wb") as log:
        process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _say_all(link: Link, devices: int) -> None:
    """Retained statuses of all devices; those of the gateway's policies are among them."""
    for number in range(devices):
        status = Status(number % 50 != 0, "1.0", 0, (), (StreamStatus(ingest.STREAM, 1, 5),))
        topic = status_topic(ingest.FLEET, f"d{number}")
        _publish(link, topic, encode_status(status), retain=True)


def _publish(link: Link, topic: str, payload: bytes, *, retain: bool = False) -> None:
    wait_until(lambda: link.publish(topic, payload, retain=retain) is not None, "room for a message")


def _page_pid() -> int:
    """The process that this one's gateway has started for the page."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            started = b"spawn_main" in (entry / "cmdline").read_bytes()
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            grandparent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        if started and grandparent == int(Path("/proc/self/stat").read_text().split()[0]):
            found.append(int(entry.name))
    [pid] = found
    return pid


def _memory(pid: int, name: str) -> float:
    """Bytes of a line of a process's status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024.0 * int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def _first_paint(browser: Browser, site: Site, devices: int) -> dict[str, object]:
    """From the request to the first paint, and to rows on the screen; the best and the worst of five."""
    source = {"source": _PAINTED.replace("@DEVICES@", f"{devices:,}")}
    browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    first, rows = list[float](), list[float]()
    for _ in range(5):
        browser.open(site.address)
        wait_until(lambda: browser.run("return window.painted") is not None, "all devices")
        entries = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
        wait_until(lambda: browser.run(entries) is not None, "a paint")  # noqa: B023
        first.append(float(browser.run(entries)))
        rows.append(float(browser.run("return window.painted")))
    return {
        "first paint: ms, best of five": round(min(first)),
        "first paint: ms, worst of five": round(max(first)),
        "all devices on the screen: ms, best of five": round(min(rows)),
        "all devices on the screen: ms, worst of five": round(max(rows)),
        "all devices on the screen, worst: ratio to 1 s": round(max(rows) / 1000.0, 2),
    }


def _smooth(browser: Browser, site: Site, link: Link) -> dict[str, object]:
    """Frames of the browser while a stream is updated 60 times a second, and while nothing happens."""
    browser.open(f"{site.address}/device/busy")
    wait_until(lambda: "live" in browser.text("#view"))
    still = _watched(browser)
    ending = threading.Event()
    sender = threading.Thread(target=_send, args=(link, ending))
    sender.start()
    wait_until(lambda: browser.count(".frames li") > 0, "a frame")
    busy = _watched(browser)
    ending.set()
    sender.join()
    dropped = [_dropped(one["deltas"]) for one in (still, busy)]
    return {
        "updates published a second": UPDATES_A_SECOND,
        "changes of the page a second, by browser frame": round(busy["changes"] / WATCH_SECONDS, 1),
        "browser frames dropped, nothing happens: %": round(100.0 * dropped[0], 2),
        "browser frames dropped, 60 updates a second: %": round(100.0 * dropped[1], 2),
        "median time between browser frames: ratio to 1/60 s": round(statistics.median(busy["deltas"]) / FRAME_MS, 2),
        "long tasks (50 ms) of the page": len(busy["long"]),
    }


def _watched(browser: Browser) -> dict[str, Any]:
    browser.run(_WATCH)
    time.sleep(WATCH_SECONDS)
    found: dict[str, Any] = browser.run("return {deltas: window.deltas, long: window.long, changes: window.changes}")
    browser.run("window.deltas = []")
    return found


def _dropped(deltas: list[float]) -> float:
    """The share of frames that were due and did not come."""
    missed = sum(max(0, round(delta / FRAME_MS) - 1) for delta in deltas)
    return missed / (missed + len(deltas))


def _send(link: Link, ending: threading.Event) -> None:
    """A frame of ten symbols of one device, 60 times a second."""
    topic, number, begun = symbols_topic(ingest.FLEET, "busy", ingest.STREAM), 0, time.monotonic()
    while not ending.wait(max(0.0, begun + number / UPDATES_A_SECOND - time.monotonic())):
        frame = SymbolFrame(1, 10 * number - 1, 10 * number, bytes((number + tick) % 2 for tick in range(10)))
        link.publish(topic, encode_symbols(frame))
        number += 1


def _intake(site: Site, port: int, counted: ingest._Counted, page: int, frames: int, rounds: int) -> dict[str, object]:
    """How fast frames become durable with and without open pages, in pairs of rounds."""
    done = 0
    shares: list[float] = []

    def one_round() -> float:
        nonlocal done
        with ingest._publishers(port, done, done + frames) as publish:
            begun = time.perf_counter()
            publish()
            counted.done(done + frames)
            seconds = time.perf_counter() - begun
        done += frames
        return frames / seconds

    def with_pages() -> float:
        with _open_pages(site):
            used, begun = ingest._processor_seconds(page), time.perf_counter()
            rate = one_round()
            shares.append((ingest._processor_seconds(page) - used) / (time.perf_counter() - begun))
            return rate

    one_round()
    ratios, rates = list[float](), dict[Callable[[], float], list[float]]({one_round: [], with_pages: []})
    for number in range(rounds):
        pair: list[Callable[[], float]] = [one_round, with_pages]
        for kind in pair[:: 1 if number % 2 else -1]:
            rates[kind].append(kind())
        ratios.append(rates[with_pages][-1] / rates[one_round][-1])
    return {
        "intake without pages: frames/s, median": round(statistics.median(rates[one_round])),
        f"intake with {PAGES} pages: frames/s, median": round(statistics.median(rates[with_pages])),
        f"page's process with {PAGES} pages: % of a core": round(100.0 * statistics.median(shares), 1),
        f"intake with {PAGES} pages: ratio, median of pairs": round(statistics.median(ratios), 3),
        f"intake with {PAGES} pages: ratio, least and greatest": f"{min(ratios):.3f} {max(ratios):.3f}",
    }


@contextmanager
def _open_pages(site: Site) -> Iterator[None]:
    """Streams of events of 20 tabs, read and thrown away."""
    ending = threading.Event()
    paths = ["/events/fleet", f"/events/device/{BUSY}"] * (PAGES // 2)
    sockets = [socket.create_connection(("127.0.0.1", site.port)) for _ in paths]
    for path, one in zip(paths, sockets, strict=True):
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n".encode())
        one.recv(1 << 16)

    def drain() -> None:
        while not ending.wait(0.1):
            for one in sockets:
                one.setblocking(False)
                try:
                    while one.recv(1 << 20):
                        pass
                except BlockingIOError:
                    continue

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield
    finally:
        ending.set()
        reader.join()
        for one in sockets:
            one.close()


if __name__ == "__main__":
    sys.exit(main())
