"""A real Home Assistant, run by the Python that has its package: what it makes of what a broker has."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.support.brokers import PATIENCE

__all__ = ["MISSING", "RealHomeAssistant", "home_assistant_python"]

MISSING = (
    "no Home Assistant: FUGU_HOME_ASSISTANT names the command of a Python that has its package, such as "
    "'/opt/ha/bin/python', or 'chroot /srv/trixie /opt/ha/bin/python'"
)
_PROGRAM = """
import asyncio, inspect, json, os, sys
from types import MappingProxyType
from homeassistant import bootstrap, config_entries, runner
from homeassistant.components.mqtt import const
from homeassistant.helpers import device_registry, entity_registry

def entry(port):
    wanted = {
        "version": getattr(const, "CONFIG_ENTRY_VERSION", 1),
        "minor_version": getattr(const, "CONFIG_ENTRY_MINOR_VERSION", 2),
        "domain": "mqtt", "title": "broker", "source": "user", "entry_id": "broker", "unique_id": None,
        "data": {"broker": "127.0.0.1", "port": port, "protocol": "5"},
        "options": {"discovery": True, "discovery_prefix": "homeassistant"},
        "discovery_keys": MappingProxyType({}), "subentries_data": (),
    }
    names = inspect.signature(config_entries.ConfigEntry.__init__).parameters
    return config_entries.ConfigEntry(**{name: value for name, value in wanted.items() if name in names})

async def main(port, folder):
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, "configuration.yaml"), "a").close()
    hass = await bootstrap.async_setup_hass(runner.RuntimeConfig(config_dir=folder))
    if not hass.config_entries.async_entries("mqtt"):
        await hass.config_entries.async_add(entry(port))
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    entities, devices, before = entity_registry.async_get(hass), device_registry.async_get(hass), ""
    while not ended.done():
        shown = {}
        for state in hass.states.async_all():
            registered = entities.async_get(state.entity_id)
            if registered is not None and registered.platform == "mqtt":
                shown[state.entity_id] = [state.state, dict(state.attributes)]
        via = {d.name: (devices.async_get(d.via_device_id).name if d.via_device_id else None)
               for d in devices.devices.values()}
        line = json.dumps({"devices": via, "states": shown}, default=str, sort_keys=True)
        if line != before:
            print("SHOWN " + line, flush=True)
            before = line
        await asyncio.sleep(0.3)
    await hass.async_stop()

asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
"""


def home_assistant_python() -> list[str]:
    """Command of a Python that has Home Assistant's package; empty if there is none."""
    if command := shlex.split(os.environ.get("FUGU_HOME_ASSISTANT", "")):
        return command
    hass = shutil.which("hass")
    return [str(Path(hass).resolve().with_name("python"))] if hass else []


class RealHomeAssistant:
    """A process of Home Assistant with its MQTT integration; a later one may use its folder again."""

    def __init__(self, port: int, folder: str, log: Path) -> None:
        self.devices: dict[str, str | None] = {}
        self.states: dict[str, tuple[str, dict[str, Any]]] = {}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*home_assistant_python(), "-c", _PROGRAM, str(port), folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.startswith("SHOWN "):
                shown = json.loads(line.removeprefix("SHOWN "))
                self.devices = shown["devices"]
                self.states = {name: (state, attributes) for name, (state, attributes) in shown["states"].items()}

    def state(self, entity: str) -> str | None:
        """State of an entity; `None` if there is none."""
        return self.states[entity][0] if entity in self.states else None

    def stop(self) -> int:
        self.process.stdin.close()
        return self.process.wait(PATIENCE)
