"""Bytes that the broker writes for each frame that waits while the gateway is away, with the shipped configuration.

Usage: python benchmarks/broker.py [--json]      (needs mosquitto)

Mosquitto with TLS and passwords, as `fugu deploy broker` writes it; one device publishes frames of 74 bytes to the
gateway's session. What is written is `write_bytes` of /proc/PID/io while it runs, and the database that it leaves when
it ends. The first counts what goes to a disk and nothing on a tmpfs. Beside it: a database that is written with every
change, as this configuration said before. Ratios do not depend on the machine; times would.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from figures import command_line, show

from fugu.mqtt import Broker, Link
from gateway.deployment.broker_files import BrokerFolder
from gateway.deployment.mosquitto import Account, Settings

sys.path.insert(0, str(Path(__file__).parents[1]))  # before packages that install a `tests` of their own

from tests.support.brokers import free_port, wait_until

FRAME = 74
SHIPPED = "autosave_interval 0\n"
BEFORE = "autosave_on_changes true\nautosave_interval 1\n"


def main() -> None:
    """Measure and print."""
    options = command_line(__doc__).parse_args()
    figures = {
        f"{name}: bytes written per frame byte, {frames} frames waiting": round(written(saving, frames), 2)
        for name, saving, sizes in (("shipped", SHIPPED, (1000, 4000, 16000)), ("before", BEFORE, (500, 1000, 2000)))
        for frames in sizes
    }
    show(figures, as_json=options.json)


def written(saving: str, frames: int) -> float:
    """Bytes that a broker writes for so many frames that wait, over their size."""
    with tempfile.TemporaryDirectory(dir=".") as place:
        folder = Path(place).resolve()
        settings = Settings(fleet="home", hosts=("127.0.0.1",), port=free_port(), bind="127.0.0.1", in_place=True)
        deployed = BrokerFolder.create(folder / "broker", settings, datetime.now(UTC))
        clients = {role: _account(folder, deployed, role) for role in ("gateway", "watch")}
        configuration = deployed.path / "mosquitto.conf"
        text = configuration.read_text()
        assert text.count(SHIPPED) == 1
        configuration.write_text(text.replace(SHIPPED, saving))
        program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "mosquitto"
        with subprocess.Popen(
            [program, "-c", "mosquitto.conf"], cwd=deployed.path, stderr=subprocess.DEVNULL
        ) as broker:
            topic = "fugu/2/home/watch/symbols/heart-rate"
            _connected(Link(clients["gateway"], "gateway", ("fugu/2/home/+/symbols/+",), durable=True)).stop()
            acknowledged: list[bool] = []
            watch = Link(clients["watch"], "watch", on_published=lambda _id, taken: acknowledged.append(taken))
            _connected(watch)
            before = _written(broker.pid)
            for number in range(frames):
                while number - len(acknowledged) > 50:
                    time.sleep(0.001)
                watch.publish(topic, os.urandom(FRAME))
            wait_until(lambda: len(acknowledged) >= frames, "all acknowledgements")
            assert all(acknowledged), "the broker denies it"
            running = _written(broker.pid) - before
            watch.stop()
            broker.terminate()
            broker.wait()
        return (running + (deployed.path / "mosquitto.db").stat().st_size) / (FRAME * frames)


def _account(folder: Path, deployed: BrokerFolder, role: str) -> Broker:
    """Add an account; how it connects."""
    device = Account(name=role, role="device", streams=("heart-rate",))
    account = Account(name="gateway", role="gateway") if role == "gateway" else device
    account_files = deployed.add(account, datetime.now(UTC))
    files = account_files.write(folder, f"{role}-{{}}".format)
    broker = Broker("127.0.0.1", deployed.settings.port, ca_file=str(deployed.path / "ca.pem"), max_backoff=1)
    return replace(broker, username=files["username"], password_file=str(folder / files["password_file"]))


def _connected(link: Link) -> Link:
    """Start a connection, and wait until its subscription must have arrived."""
    link.start()
    wait_until(lambda: link.connected, "a connection")
    time.sleep(0.5)
    return link


def _written(process: int) -> int:
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes:")).split()[1])


if __name__ == "__main__":
    main()
