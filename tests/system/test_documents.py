"""Every command and program in the manual runs, and the demo shows what the README says."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from firmware_sim.devices import AgentProcess, simulate_recording, write_device
from gateway.fleet import Registry
from mqtt_link import Broker
from tests.support.brokers import PATIENCE, Mosquitto, free_port, wait_until
from tests.support.documents import ROOT, Page
from tests.support.processes import GatewayProcess, policy

PAGES = sorted(str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def test_deploying_on_a_device(broker: Mosquitto, tmp_path: Path) -> None:
    """Also shows that the edge installs without numpy, numba and scipy, and that the units are part of the package."""
    port = free_port()
    replace = {"1883": str(broker.port), "--port 8883": f"--port {port}", "127.0.0.1:8883": f"127.0.0.1:{port}"}
    with Page("docs/deploy.md", tmp_path, replace) as page:
        assert page.run() == 11
        wait_until(lambda: (tmp_path / "outbox.sqlite").exists())
        listed = subprocess.run(
            [tmp_path / "edge/bin/python", "-m", "pip", "list"], capture_output=True, text=True, check=True
        ).stdout.lower()
    assert "paho-mqtt" in listed
    assert not re.search(r"^(numpy|numba|scipy|typer|rich|amqtt)\b", listed, re.MULTILINE)
    assert len(list((tmp_path / "edge").rglob("gateway/deployment/systemd/fugu-*.service"))) == 3


def test_operating(tmp_path: Path) -> None:
    with Page("docs/operate.md", tmp_path, {"1883": str(free_port())}) as page:
        assert page.run() >= 4
        wait_until(lambda: (tmp_path / "gateway.sqlite").exists())


def test_subscribing(broker: Mosquitto, tmp_path: Path) -> None:
    device = policy(epoch_us=0, period_us=20_000)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(device.to_json())
    simulate_recording(tmp_path / "night.csv", device, [0, 0, 1] * 100)
    gateway = GatewayProcess(tmp_path, broker.port)
    config = write_device(
        tmp_path / "watch", device, tmp_path / "night.csv", "value", Broker(port=broker.port), loop=True
    )
    agent = AgentProcess(config, tmp_path / "agent.log")
    wait_until(lambda: len(gateway.frames()) > 2)
    with Page("docs/subscribe.md", tmp_path, {"1883": str(broker.port)}) as page:
        assert page.run() == 3
    assert agent.stop(PATIENCE) == 0
    assert gateway.stop() == 0


def test_attacking(tmp_path: Path) -> None:
    with Page("docs/privacy.md", tmp_path, {}) as page:
        assert page.run() == 1


def test_measuring(broker: Mosquitto, tmp_path: Path) -> None:
    with Page("docs/measure.md", tmp_path, {"1883": str(broker.port)}) as page:
        assert page.run() == 7
    assert "exposure" not in (tmp_path / "background.log").read_text()


def test_fleet_pages(broker: Mosquitto, tmp_path: Path) -> None:
    with Page("docs/fleet.md", tmp_path, {"1883": str(broker.port)}) as page:
        assert page.run() == 9
    with closing(Registry(tmp_path / "fleet.sqlite")) as registry:
        devices = registry.devices()
        assert [one.name for one in devices] == ["ring", "watch"]
        assert [one.reported.in_force for one in devices if one.reported] == [3, 3]
        assert registry.document(3).restores == 1
    assert "Traceback" not in (tmp_path / "background.log").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r'src="([^"]+)"', text):
        if "://" not in target:
            assert ((ROOT / name).parent / target).exists(), f"{name} links to {target}"


@pytest.mark.parametrize("name", PAGES)
def test_every_page_with_commands_is_run_by_a_test(name: str) -> None:
    """A page with shell blocks must be one of those above; the README's two commands are make's."""
    commands = [body.strip() for language, _, body in Page(name, ROOT, {}).blocks if language == "sh"]
    if name == "README.md":
        assert all(line.startswith(("git clone", "cd ", "make ")) for body in commands for line in body.splitlines())
    elif name not in {f"docs/{one}.md" for one in ("deploy", "fleet", "measure", "operate", "privacy", "subscribe")}:
        assert commands == []


@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_the_demo_shows_an_attack_that_breaks_the_ordinary_promise_and_not_ours(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-m", "fugu", "demo", "--seconds", "60", "--no-live", "--broker-kind", kind]
    done = subprocess.run([*command, "--out", "demo"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "demo" / "report.html").read_text()
    assert report.count("<svg") == 4
    assert "http://" not in report.replace("http://www.w3.org/2000/svg", "")
    attacks, *sections = report.split("<h2>")
    rows = re.findall(r"<tr><td>(watch-\w+)</td>(.*?)</tr>", attacks)
    assert len(rows) == 3
    for device, cells in rows:
        epsilon, _majority, promised, ordinary, real, ours, ceiling, _estimate = (
            float(cell) for cell in re.findall(r"([\d.]+)(?:</span>)?</td>", cells)
        )
        assert real > epsilon
        assert ours <= ceiling + 0.02
        assert ordinary > ours + 0.05
        if epsilon == 1.0:
            assert promised > ours
        if device == "watch-N10":  # N05 is only just above in the long run: which part of it was sent decides
            assert ordinary > promised
    _check_prices(next(section for section in sections if section.startswith("The price")))
    _check_windows(next(section for section in sections if section.startswith("Counts that the devices")))
    _check_releases(next(section for section in sections if section.startswith("Counts that the gateway")))
    assert re.search(r"ledger of audience public: \d+ entries, it adds up", done.stdout)


def _check_prices(section: str) -> None:
    """Over its whole recording, ordinary randomised response at epsilon 1 breaks its promise to everybody."""
    rows = re.findall(r"<tr><td>1</td>(.*?)</tr>", section)
    assert len(rows) == 3
    for cells in rows:
        _rho0, _rho1, ours, average, attack = (float(cell) for cell in re.findall(r"<td>([\d.]+)</td>", cells))
        assert attack > math.e / (1 + math.e) > max(ours, average)


def _check_windows(section: str) -> None:
    """Every device has released windows, and their errors are those of their noise."""
    rows = re.findall(r"<tr><td>watch-\w+</td>(.*?)</tr>", section)
    assert len(rows) == 3
    for cells in rows:
        epsilon, windows, scale, error, _percent, expected, quilts, group = (
            float(cell) for cell in re.findall(r"<td>([\d.]+)", cells)
        )
        assert epsilon < 1.0
        assert windows >= 3
        assert 0.9 * scale < expected < 1.1 * scale
        assert error < 8 * scale  # a mean of three or more: missed less than once in 10^7 runs
        assert quilts > 3 * expected
        assert group > quilts


def _check_releases(section: str) -> None:
    """The gateway has released sums over all devices, each charged, with errors as their intervals say."""
    rows = re.findall(
        r"<tr><td>(\d+)</td><td>(\d+)\.\.(\d+)</td><td>(-?\d+)</td><td>(-?\d+) to (-?\d+)</td>"
        r'<td>(\d+)</td><td><span class="\w+">([+-]\d+)</span></td><td>([\d.]+)</td><td>([\d.]+)</td>',
        section,
    )
    assert len(rows) >= 2
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
    for row in rows:
        _entry, first, last, value, low, high, truth, error, scale, charge = map(float, row)
        assert last - first == 1999
        assert low < value < high
        assert 0 <= truth <= 6000
        assert abs(value - truth - error) <= 1
        assert abs(error) < 3.5 * (high - low) / 2
        assert scale > 0
        assert charge > 0
