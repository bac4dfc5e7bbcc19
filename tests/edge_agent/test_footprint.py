"""Memory of a running agent: 32 MB at most, and nothing of the rooms that plan, calibrate or print."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from edge_agent.local_control import LocalStatusError, ask_status
from firmware_sim.devices import simulate_recording
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import policy, write_device

_MOST_KIB = 32 << 10
_RUN = "import sys; sys.modules['socks'] = None; from edge_agent.__main__ import main; main(sys.argv[1:])"
_RUN += "; print(*sys.modules)"
"""Without PySocks, as on a device: paho-mqtt asks for proxies where it is installed."""
_ABSENT = {"fugu.chains", "fugu.privacy", "fugu.planning", "fugu_cli", "fugu.places", "fugu.attackers", "fugu.audit"}
_ABSENT |= {"gateway", "numpy", "numba", "scipy", "pydantic", "typer", "rich", "http.client", "email"}


def test_a_connected_agent_has_32_mb_and_no_room_that_it_does_not_need(broker: Mosquitto, tmp_path: Path) -> None:
    watch = policy(epoch_us=time.time_ns() // 1000, period_us=10_000)
    simulate_recording(tmp_path / "readings.csv", watch, [0, 1] * 1000)
    config = write_device(
        tmp_path, watch, tmp_path / "readings.csv", "value", broker.broker, loop=True, forget="puback", drain_seconds=0
    )

    def sends() -> bool:
        try:
            codes = ask_status(tmp_path / "outbox.sqlite")["codes"]
        except LocalStatusError:
            return False
        return not codes

    with subprocess.Popen([sys.executable, "-c", _RUN, str(config)], stdout=subprocess.PIPE, text=True) as agent:
        try:
            wait_until(sends, "an agent without troubles")
            time.sleep(0.4)  # of sending
            status = Path(f"/proc/{agent.pid}/status").read_text()
        finally:
            agent.terminate()
        out, _ = agent.communicate(timeout=PATIENCE)
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    assert int(line.split()[1]) <= _MOST_KIB
    loaded = set(out.split())
    assert "edge_agent.ticker" in loaded
    assert not loaded & _ABSENT


def test_proxies_are_still_asked_for_where_they_can_be_used() -> None:
    script = "import sys, fugu.mqtt.link, paho.mqtt.client as paho; print('urllib.request' in sys.modules)\n"
    script += "print(paho.urllib.request.getproxies()['mqtt'])\n"
    script += "import urllib.request; print(paho.urllib.request is urllib.request, urllib.request.Request.__name__)"
    environment = {**os.environ, "mqtt_proxy": "http://proxy:1"}
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert out.stdout.split() == ["False", "http://proxy:1", "True", "Request"]
