"""Start the gateway inside Home Assistant: write its file from what the Supervisor says, give up root, and run it."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

CONFIG, DATA = Path("/config"), Path("/data")
SUPERVISOR = "http://supervisor"
FUGU = "/opt/fugu-edge/bin/fugu"
USER = 10001
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"


def supervisor(path: str, token: str) -> dict[str, Any]:
    """Ask the Supervisor."""
    headers = {"Authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(SUPERVISOR + path, headers=headers), timeout=30) as answer:
        options: dict[str, Any] = json.load(answer)["data"]
    return options


def written(token: str) -> Path:
    """Write the file of a gateway of Home Assistant's own broker, with the page behind its ingress."""
    try:
        broker = supervisor("/services/mqtt", token)
    except urllib.error.HTTPError:
        raise SystemExit("Home Assistant has no MQTT broker: install the app Mosquitto broker, and start it") from None
    fleet = json.loads((DATA / "options.json").read_text())["fleet"]
    (CONFIG / "policies").mkdir(exist_ok=True)
    password = DATA / "broker-password"
    password.touch(0o600)
    password.write_text(f"{broker['password']}\n")
    account = {"username": broker["username"], "password_file": str(password)}
    where = {"host": broker["host"], "port": int(broker["port"])} | ({"ca_file": AUTHORITIES} if broker["ssl"] else {})
    tables = {
        "": {
            "fleet": fleet,
            "store": str(DATA / f"{fleet}.db"),
            "policies": str(CONFIG / "policies"),
            "home_assistant": True,
            "page_url": f"homeassistant://hassio/ingress/{supervisor('/addons/self/info', token)['slug']}",
        },
        "broker": where | account,
        "page": {"listen": "0.0.0.0:8099", "ingress": True},
        "page.account": account,  # Home Assistant's broker lets an account connect twice
    }
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]"] if name else []
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
    file = DATA / "gateway.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def main() -> None:
    """Run the gateway by the file that the user has given, or by the one that is written here."""
    tokens = [os.environ.pop(name, "") for name in ("SUPERVISOR_TOKEN", "HASSIO_TOKEN")]  # the gateway needs neither
    file = CONFIG / "gateway.toml"
    if not file.exists():
        file = written(tokens[0])
    for path in (DATA, CONFIG, *DATA.rglob("*"), *CONFIG.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)
    os.chdir(DATA)
    os.execv(FUGU, [FUGU, "gateway", "run", str(file)])


if __name__ == "__main__":
    main()
