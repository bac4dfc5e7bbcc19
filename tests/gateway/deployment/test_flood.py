"""Strangers who open connections and say nothing: the shipped broker stays within its memory, and serves again."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fugu_cli.main import main
from gateway.deployment.broker_files import BrokerFolder
from gateway.deployment.mosquitto import Account, limits
from tests.support.brokers import PATIENCE, wait_until
from tests.support.flood import ROOT, Flood
from tests.support.shipped import Shipped

SYMBOLS = "fugu/2/home/watch/symbols/hr"


def connects(broker: Shipped, name: str) -> bool:
    """True if an account gets a connection now, and its message across."""
    try:
        with broker.client(name) as client:
            return client.reason == 0 and client.publish(SYMBOLS.replace("watch", name)) == 0
    except OSError:
        return False


def flood(
    tmp_path: Path, *, connections: int, processes: int, devices: int = 2, stay: bool = False
) -> dict[str, float]:
    """Flood a broker with so many devices from so many processes; what was seen, in MB and seconds.

    Args:
        stay: the attackers leave their connections open when they end.
    """
    broker = Shipped(tmp_path)
    for name in ("watch", "ring"):
        broker.add("device", name)
    folder = BrokerFolder.open(broker.folder)
    crowd = (Account(name=f"device-{number}", role="device") for number in range(devices - 2))
    folder._set_accounts((*folder.settings.accounts, *crowd))
    allowed = limits(BrokerFolder.open(broker.folder).settings.accounts)
    with broker, ExitStack() as attackers, broker.client("watch") as watch:
        assert watch.publish(SYMBOLS) == 0
        attacks = [
            Flood("127.0.0.1", broker.port, connections // processes, f"127.0.0.{number + 2}")
            for number in range(processes)
        ]
        for attack in attacks:
            attackers.enter_context(attack)
        for attack in attacks:
            attack.send()
        wait_until(lambda: broker.files() >= min(connections, allowed.connections), "the broker to take them")
        if allowed.connections < connections:
            wait_until(lambda: not connects(broker, "ring"), "the flood")
        assert watch.publish(SYMBOLS) == 0  # who has one keeps it
        largest = broker.status("VmHWM") * 1024
        assert largest < allowed.memory
        if stay:
            for attack in attacks:
                attack.process.send_signal(signal.SIGSTOP)
        else:
            attackers.close()
        began = time.monotonic()
        wait_until(lambda: connects(broker, "ring"), "service")
        after = time.monotonic() - began
    return {"memory": largest / 2**20, "allowed": allowed.memory / 2**20, "served again after": after}


def test_silent_connections_do_not_exhaust_the_broker_and_it_serves_again(tmp_path: Path) -> None:
    print(flood(tmp_path, connections=1000, processes=2))


@pytest.mark.soak
@pytest.mark.parametrize(("devices", "stay"), [(20, True), (5000, False)])
def test_ten_thousand_silent_connections_do_not_exhaust_the_broker(tmp_path: Path, devices: int, stay: bool) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most[1], most[1]))  # for the broker, which inherits it
    try:
        print(flood(tmp_path, connections=10_000, processes=5, devices=devices, stay=stay))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)


def test_one_account_that_subscribes_without_end_is_put_out_and_nobody_else_is(tmp_path: Path) -> None:
    """Mosquitto has no limit for subscriptions, but one for its memory."""
    broker = Shipped(tmp_path)
    for name in ("watch", "ring"):
        broker.add("device", name)
    configuration = broker.folder / "mosquitto.conf"
    heap = f"memory_limit {limits(BrokerFolder.open(broker.folder).settings.accounts).heap}"
    assert configuration.read_text().count(heap) == 1
    configuration.write_text(configuration.read_text().replace(heap, f"memory_limit {10 << 20}"))
    with broker, broker.client("ring") as ring:
        with broker.client("watch") as watch:
            for number in range(10_000):
                if watch.lost:
                    break
                watch.subscribe_many([f"a/{number}/{part}/" + "x" * 200 for part in range(100)])
            assert watch.lost
        assert ring.publish(SYMBOLS.replace("watch", "ring")) == 0
        wait_until(lambda: connects(broker, "watch"))


class Networks:
    """A network for the broker, one for an attacker and one for a device, each with an address of its own."""

    def __init__(self) -> None:
        self.names = [f"fugu{part}-{id(self) % 10**6}" for part in ("broker", "attacker", "device")]

    def run(self, *words: object) -> None:
        """Run a command that must succeed."""
        subprocess.run([str(word) for word in words], check=True, capture_output=True)

    def inside(self, part: int) -> list[str]:
        """The words that run a program in a network."""
        return ["ip", "netns", "exec", self.names[part]]

    def open(self) -> None:
        """Make them, and a link of each of the others to the broker's."""
        for name in self.names:
            self.run("ip", "netns", "add", name)
            self.run("ip", "-n", name, "link", "set", "lo", "up")
        for part in (1, 2):
            ours, theirs = f"fgb{part}-{id(self) % 10**6}", f"fgc{part}-{id(self) % 10**6}"
            self.run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs)
            for link, name, last in ((ours, self.names[0], 1), (theirs, self.names[part], 2)):
                self.run("ip", "link", "set", link, "netns", name)
                self.run("ip", "-n", name, "addr", "add", f"10.77.{part}.{last}/24", "dev", link)
                self.run("ip", "-n", name, "addr", "add", f"fd77:{part}::{last}/64", "dev", link, "nodad")
                self.run("ip", "-n", name, "link", "set", link, "up")

    def close(self) -> None:
        """Remove what there is of them."""
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.fixture
def networks() -> Iterator[Networks]:
    """Networks, where they and rules of the firewall may be made."""
    if shutil.which("ip") is None or shutil.which("nft") is None:
        pytest.skip("needs ip and nft (Debian packages iproute2 and nftables)")
    networks = Networks()
    try:
        networks.open()
        networks.run(*networks.inside(0), "nft", "list", "ruleset")
    except subprocess.CalledProcessError as error:
        networks.close()
        pytest.skip(f"networks of one's own are not permitted here: {error.stderr.decode().strip()[:100]}")
    yield networks
    networks.close()


DEVICE = """
import sys, time
from fugu.mqtt import Broker, Link
host, port, folder = sys.argv[1:]
began, done = time.monotonic(), []
files = {"password_file": folder + "/password", "ca_file": folder + "/ca.pem"}
address = Broker(host, int(port), username="watch", max_backoff=1, **files)
link = Link(address, "watch", on_published=lambda *answer: done.append(answer))
link.start()
while not done and time.monotonic() - began < 10.0:
    if link.connected:
        link.publish("fugu/2/home/watch/symbols/hr", b"x")
    time.sleep(0.02)  # the step of this wait, which has a deadline
print(time.monotonic() - began if done else "none")
"""


@pytest.mark.parametrize("version", [4, 6])
def test_a_device_at_another_address_is_served_while_one_address_floods(
    tmp_path: Path, networks: Networks, version: int
) -> None:
    """With the rules that are generated; without them it is not."""
    hosts = [f"10.77.{part}.1" if version == 4 else f"fd77:{part}::1" for part in (1, 2)]
    words = ["--fleet", "home", "--port", "8883", "--host", hosts[0], "--host", hosts[1], "--in-place"]
    folder, device = tmp_path / "broker", tmp_path / "watch"
    assert main(["deploy", "broker", str(folder), *words]) == 0
    added = [str(device), "--broker", str(folder), "--name", "watch", "--stream", "hr"]
    assert main(["deploy", "device", *added]) == 0
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    with (tmp_path / "log").open("wb") as log:
        command = [*networks.inside(0), str(program), "-c", "mosquitto.conf"]
        broker = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)

    def served() -> float | None:
        run = [*networks.inside(2), sys.executable, "-c", DEVICE, hosts[1], "8883", str(device)]
        done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        stdout = done.stdout.strip()
        return None if stdout == "none" else float(stdout)

    try:
        wait_until(served, "the broker")
        with Flood(hosts[0], 8883, 300, prefix=networks.inside(1)):
            wait_until(lambda: served() is None, "the flood")
        wait_until(served, "its end")
        networks.run(*networks.inside(0), "nft", "-f", folder / "fugu-broker.nft")
        with Flood(hosts[0], 8883, 300, prefix=networks.inside(1)):
            for _ in range(3):
                assert served() is not None
    finally:
        broker.terminate()
        broker.wait(PATIENCE)
