"""The app for Home Assistant: its folder is as the Supervisor wants it, and it starts a gateway that has a page."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fugu.contract.errors import FuguError
from fugu.contract.topics import NAME_PATTERN
from gateway.config import GatewayConfig

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/home-assistant"
KEYS = {
    *("name", "version", "slug", "description", "arch", "homeassistant", "services", "ingress", "panel_icon"),
    *("panel_title", "map", "backup", "backup_exclude", "tmpfs", "timeout", "watchdog", "url"),
    *("options", "schema"),
}
"""All of them are in the manual for developers; there none of these is said to be old."""
MQTT = {"host": "core-mosquitto", "port": "1883", "ssl": False, "username": "addons", "password": 'a "b" ö'}


class Supervisor(BaseHTTPRequestHandler):
    """Answers of Home Assistant's Supervisor."""

    broker: dict[str, Any] | None = MQTT

    def do_GET(self) -> None:
        answers = {"/services/mqtt": self.broker, "/addons/self/info": {"slug": "local_fugu_edge"}}
        answer = answers.get(self.path) if self.headers["Authorization"] == "Bearer secret" else None
        body = json.dumps({"result": "ok", "data": answer}).encode()
        self.send_response(200 if answer else 400)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The app's start, in a folder, with a Supervisor."""
    spec = importlib.util.spec_from_file_location("addon_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = HTTPServer(("127.0.0.1", 0), Supervisor)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(module, "SUPERVISOR", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(module, "CONFIG", tmp_path / "config")
    monkeypatch.setattr(module, "DATA", tmp_path / "data")
    for name in ("SUPERVISOR_TOKEN", "HASSIO_TOKEN"):
        monkeypatch.setenv(name, "secret")
    for name in ("config", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data/options.json").write_text(json.dumps({"fleet": "cottage"}))
    yield module
    server.shutdown()
    server.server_close()


def declared() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((FOLDER / "config.yaml").read_text())


def test_the_supervisor_takes_the_folder() -> None:
    config = declared()
    assert set(config) == KEYS
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert config["version"] == project["version"]
    assert config["ingress"] is True
    assert "ports" not in config
    assert config["options"].keys() == config["schema"].keys()
    assert config["schema"]["fleet"] == f"match({NAME_PATTERN})"
    assert re.fullmatch(NAME_PATTERN, config["options"]["fleet"])
    translated = pytest.importorskip("yaml").safe_load((FOLDER / "translations/en.yaml").read_text())
    assert translated["configuration"].keys() == config["schema"].keys()


def test_the_image_has_what_make_puts_there_and_no_musl() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for name in line.split()}
    assert copied == {"gateway.txt", "*.whl", "run.py"}
    assert "slim-bookworm" in (ROOT / "docs/home-assistant.md").read_text()
    rule = (ROOT / "Makefile").read_text().partition("\naddon: ")[2].partition("\n\n")[0]
    assert "deploy/constraints/gateway.txt" in rule
    assert "dist/*.whl" in rule
    assert "--require-hashes" in text
    architectures = "|".join(declared()["arch"])
    assert f'io.hass.arch="{architectures}"' in text


def test_it_runs_a_gateway_of_home_assistants_broker_with_its_page(run: ModuleType, tmp_path: Path) -> None:
    file = run.written("secret")
    config = GatewayConfig.read(file)
    settings, page = config, config.page_settings()
    assert (config.fleet, config.home_assistant) == ("cottage", True)
    assert config.page_url == "homeassistant://hassio/ingress/local_fugu_edge"
    assert (config.broker.host, config.broker.port, config.broker.username) == ("core-mosquitto", 1883, "addons")
    assert settings.store == tmp_path / "data/cottage.db"
    assert settings.policies == tmp_path / "config/policies"
    assert settings.policies.is_dir()
    password = tmp_path / "data/broker-password"
    assert password.read_text() == MQTT["password"] + "\n"
    assert password.stat().st_mode & 0o777 == 0o600
    assert page.page.ingress
    assert page.listen == ("0.0.0.0", 8099)
    assert page.page.login_file is None
    assert page.broker.username == "addons"


def test_a_broker_with_tls_is_asked_for_its_certificate(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "broker", MQTT | {"ssl": True, "port": "8883"})
    broker = GatewayConfig.read(run.written("secret")).broker
    assert (broker.port, broker.ca_file) == (8883, run.AUTHORITIES)


def test_without_a_broker_it_says_what_to_install(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "broker", None)
    with pytest.raises(SystemExit, match="install the app Mosquitto broker"):
        run.written("secret")


@pytest.mark.parametrize("own", [False, True])
def test_root_is_given_up_before_the_gateway_runs(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """A user's own file is run as it is."""
    done: list[tuple[object, ...]] = []
    environments: list[dict[str, str]] = []
    for name in ("chown", "setgroups", "setgid", "setuid", "execv"):
        monkeypatch.setattr(os, name, lambda *arguments, _name=name, **_more: done.append((_name, *arguments)))
    monkeypatch.setattr(
        os, "execv", lambda *arguments: (done.append(("execv", *arguments)), environments.append({**os.environ}))
    )
    monkeypatch.chdir(tmp_path)
    if own:
        (tmp_path / "config/gateway.toml").write_text('fleet = "mine"\n')
    run.main()
    file = tmp_path / ("config" if own else "data") / "gateway.toml"
    assert done[-4:] == [
        ("setgroups", []),
        ("setgid", run.USER),
        ("setuid", run.USER),
        ("execv", run.FUGU, [run.FUGU, "gateway", "run", str(file)]),
    ]
    [environment] = environments
    assert "secret" not in environment.values(), "who runs the gateway does not command the Supervisor"
    assert {file, tmp_path / "data", tmp_path / "config"} <= {call[1] for call in done if call[0] == "chown"}
    assert f"useradd --uid {run.USER} " in (FOLDER / "Dockerfile").read_text()
    assert (tmp_path / "data/gateway.toml").exists() is not own


@pytest.mark.parametrize("more", ["no_login = true", 'login_file = "page.login"'])
def test_ingress_is_instead_of_a_login(tmp_path: Path, more: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        f'fleet = "home"\nstore = "s"\npolicies = "p"\n[page]\nlisten = "0.0.0.0:1"\ningress = true\n{more}\n'
    )
    with pytest.raises(FuguError, match="one of login_file, no_login = true and ingress = true"):
        GatewayConfig.read(file).page_settings()
