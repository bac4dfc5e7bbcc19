"""The page beside a gateway: it begins and ends with it, and is never in its way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gateway.page.login import password_line
from tests.support.brokers import Mosquitto, free_port, wait_until
from tests.support.pages import Site
from tests.support.processes import GatewayProcess, policy

pytestmark = pytest.mark.long
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _policies(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(policy(epoch_us=0, period_us=20_000).to_json())


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(one) for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]


def page_of(gateway: GatewayProcess) -> int | None:
    """The page's process."""
    for pid in children(gateway.process.pid):
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    return None


def runs(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_it_needs_a_password_comes_back_and_ends_with_the_gateway(broker: Mosquitto, tmp_path: Path) -> None:
    (tmp_path / "login").write_text(password_line(PASSWORD))
    site = Site(free_port())
    words = ("--dashboard", f"127.0.0.1:{site.port}", "--dashboard-login-file", str(tmp_path / "login"))
    gateway = GatewayProcess(tmp_path, broker.port, *words)
    wait_until(site.answers, "the page")
    assert site.ask("/events/fleet")[0] == 401
    assert site.enter("wrong horse battery") is None
    session = site.enter(PASSWORD)
    assert session is not None
    assert site.ask("/events/fleet", Cookie=session)[0] == 200
    wait_until(gateway.answers, "the gateway")

    first = page_of(gateway)
    assert first is not None
    assert os.getpriority(os.PRIO_PROCESS, first) > os.getpriority(os.PRIO_PROCESS, gateway.process.pid)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: page_of(gateway) not in (None, first), "another page")
    assert site.ask("/events/fleet", Cookie=session)[0] == 401  # sessions end with the process that has them
    session = site.enter(PASSWORD)
    assert session is not None
    assert site.ask("/events/fleet", Cookie=session)[0] == 200
    assert gateway.answers()

    second = page_of(gateway)
    assert second is not None
    assert gateway.stop() == 0
    assert not runs(second)
    assert not site.answers()


def test_it_ends_when_the_gateway_is_killed(broker: Mosquitto, tmp_path: Path) -> None:
    site = Site(free_port())
    words = ("--dashboard", f"127.0.0.1:{site.port}", "--dashboard-no-login")
    gateway = GatewayProcess(tmp_path, broker.port, *words)
    wait_until(site.answers, "the page")
    page = page_of(gateway)
    assert page is not None
    gateway.kill()
    wait_until(lambda: not runs(page), "the end of the page")
    assert not site.answers()


def test_what_cannot_be_served_is_said_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "login").write_text("no hash")
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        refused = {
            (f"127.0.0.1:{port}", "--dashboard-no-login"): "Address already in use",
            ("0.0.0.0:1", "--dashboard-no-login"): "needs a password",
            ("0.0.0.0:1", "--dashboard-login-file", "login"): "needs a certificate",
            ("127.0.0.1:1", "--dashboard-no-login", "--username", "gateway"): "an account of its own",
            ("127.0.0.1:1",): "either --dashboard-login-file or --dashboard-no-login",
            ("127.0.0.1:1", "--dashboard-no-login", "--dashboard-tls-cert", "x"): "a certificate and its key",
            ("127.0.0.1:1", "--dashboard-no-login", "--dashboard-tls-cert", "x", "--dashboard-tls-key", "y"): "No such",
            ("127.0.0.1:1", "--dashboard-login-file", "login"): "no hash",
        }
        script = "import json, sys\nfrom fugu.cli.main import main\nfor words in json.loads(sys.argv[1]): main(words)"
        run = ["gateway", "run", "--fleet", "home", "--policies", "policies", "--store", "s.db", "--dashboard"]
        given = json.dumps([[*run, *words] for words in refused])
        done = subprocess.run([sys.executable, "-c", script, given], cwd=tmp_path, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert len(lines) == len(refused)
    for line, said in zip(lines, refused.values(), strict=True):
        assert said in line
    assert not (tmp_path / "s.db").exists()
