"""A real Home Assistant beside a real broker, gateway and agents: entities, values, restarts of each side, removal."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from fugu.contract.windows import Window
from tests.support.brokers import PATIENCE, Mosquitto, wait_until
from tests.support.processes import GatewayProcess, policy
from tests.support.real_home_assistant import MISSING, RealHomeAssistant, home_assistant_python

PERIOD_US, PATIENT = 200_000, 180.0
SHARE, NOISE = "sensor.home_watch_hr_window_day", "sensor.home_ring_hr_window_day"
PRIVACY, ALARM = "sensor.home_watch_hr_privacy", "binary_sensor.home_health_alarm"


def agent(folder: Path, device: str, port: int, *, useful: bool) -> subprocess.Popen[bytes]:
    """An agent that counts windows of 20 readings, five a second."""
    window = Window(name="day", length=20, stride=20, states=("high",), scale="20")
    draft = policy(epoch_us=0, period_us=PERIOD_US, device=device, windows=(window,)).model_copy(
        update={"table": None, "windows_guarantee": None, "frame_ticks": 1, "useful_for": "share" if useful else None}
    )
    draft = type(draft).from_json(draft.to_json())
    (folder / "policies").mkdir(exist_ok=True)
    (folder / "policies" / f"{device}.json").write_text(draft.to_json())
    (folder / f"{device}.csv").write_text("value\n" + "1\n0\n1\n1\n" * 10_000)
    (folder / f"{device}.toml").write_text(
        f'fleet = "home"\ndevice = "{device}"\noutbox = "{device}.sqlite"\nceiling = 1.0\n[broker]\nport = {port}\n'
        f'[clock]\ntrusted = true\n[[streams]]\npolicy = "policies/{device}.json"\n[streams.sensor]\nkind = "replay"\n'
        f'file = "{device}.csv"\ncolumn = "value"\nloop = true\n'
    )
    with (folder / f"{device}.log").open("ab") as log:
        command = [sys.executable, "-m", "fugu", "agent", "run", str(folder / f"{device}.toml")]
        return subprocess.Popen(command, stdout=log, stderr=log)


@pytest.mark.soak
@pytest.mark.skipif(not home_assistant_python(), reason=MISSING)
def test_a_real_home_assistant_shows_values_noise_as_unknown_and_who_is_away(broker: Mosquitto, tmp_path: Path) -> None:
    folder, log = f"/tmp/fugu-ha-{uuid.uuid4().hex[:8]}", tmp_path / "ha.log"
    devices = [agent(tmp_path, "watch", broker.port, useful=True), agent(tmp_path, "ring", broker.port, useful=False)]
    gateway = GatewayProcess(tmp_path, broker.port, home_assistant=True)
    home = RealHomeAssistant(broker.port, folder, log)
    try:
        wait_until(lambda: home.state(SHARE) not in (None, "unknown", "unavailable"), "a share", patience=PATIENT)
        share, beside = home.states[SHARE]
        assert beside["low"] <= float(share) <= beside["high"]
        assert beside["useful"] is True
        wait_until(
            lambda: home.states.get(NOISE, ("", {}))[1].get("useful") is False,
            "a share that is noise",
            patience=PATIENT,
        )
        assert home.state(NOISE) == "unknown", "no better than a guess"
        assert home.states[NOISE][1]["low"] is None
        assert home.state(PRIVACY) == "73.2"
        assert home.states[PRIVACY][1]["promise"].startswith(
            "Private: about any single tick, from 50 % to at most 73 %"
        )
        assert home.state(ALARM) == "off"
        assert {name for name in home.devices if name in ("watch", "ring")} == {"watch", "ring"}
        assert home.devices["watch"] is not None, "it is behind its gateway"
        # a device that is killed, and comes back
        devices[0].kill()
        devices[0].wait(PATIENCE)
        wait_until(lambda: home.state(SHARE) == "unavailable", "a device that is away", patience=PATIENT)
        assert home.state(ALARM) == "off"
        devices[0] = agent(tmp_path, "watch", broker.port, useful=True)
        wait_until(lambda: home.state(SHARE) not in ("unknown", "unavailable"), "the device again", patience=PATIENT)
        # the gateway is killed, and comes back
        gateway.kill()
        wait_until(lambda: home.state(SHARE) == "unavailable", "a gateway that is away", patience=PATIENT)
        gateway = GatewayProcess(tmp_path, broker.port, home_assistant=True)
        wait_until(lambda: home.state(SHARE) not in ("unknown", "unavailable"), "the gateway again", patience=PATIENT)
        # Home Assistant starts again
        assert home.stop() == 0
        home = RealHomeAssistant(broker.port, folder, log)
        wait_until(
            lambda: home.state(SHARE) not in (None, "unknown", "unavailable"), "a share after a start", patience=PATIENT
        )
        # and all of it is taken back
        assert gateway.stop() == 0
        gateway = GatewayProcess(tmp_path, broker.port)
        wait_until(lambda: not home.states, "entities to go", patience=PATIENT)
    finally:
        for process in devices:
            process.kill()
            process.wait(PATIENCE)
        gateway.process.kill()
        gateway.process.wait(PATIENCE)
        home.stop()
