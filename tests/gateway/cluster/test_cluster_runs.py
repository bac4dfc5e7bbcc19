"""Files for several machines start processes that run together, after the lines in their heads."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.health.monitor import NotRunningError, ask_gateway
from gateway.store.location import Server
from gateway.store.shards import owner
from tests.support.brokers import free_port, wait_until
from tests.support.documents import ROOT
from tests.support.scenes import policy, write_policies

yaml = pytest.importorskip("yaml")

CLUSTER = ROOT / "deploy" / "cluster"
SHARDS = 3
DEVICES = tuple(f"sensor-{number}" for number in range(8))


def head(file: Path) -> str:
    """The commands in the lines before a file's content, as one script."""
    comment = "".join(
        line for line in file.read_text().partition("\n\n")[0].splitlines(keepends=True) if line[0] == "#"
    )
    return "\n".join(line.removeprefix("#     ") for line in comment.splitlines() if line.startswith("#     "))


def commands(script: str, program: str) -> list[str]:
    """The lines of a script that begin with a program, each whole."""
    return [line for line in script.replace("\\\n", " ").splitlines() if line.startswith(f"{program} ")]


class Deployment:
    """A folder with what the lines of a head write, for a broker and a database on this machine."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder, self.server, self.port = folder, server, free_port()
        self._programs = folder / "programs"
        self._programs.mkdir()
        fugu = self._programs / "fugu"
        fugu.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m fugu "$@"\n')
        fugu.chmod(0o755)
        names = os.pathsep.join([str(self._programs), os.environ["PATH"], "/usr/sbin"])
        self.environment = {**os.environ, "PATH": names, "PYTHONPATH": str(ROOT)}

    def run(self, script: str) -> None:
        """Run lines of a shell, with this machine's addresses."""
        place = f"--host 127.0.0.1 --port {self.port} --bind 127.0.0.1"
        script = script.replace("--host broker", place).replace("postgresql://fugu@database/fugu", "STORE")
        script = script.replace("STORE", self.server.url.replace("&", r"\&"))
        done = subprocess.run(
            ["bash", "-euc", script], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr

    def place(self, folders: Mapping[str, Path]) -> None:
        """Let files name folders of this test in place of those of containers."""
        for folder in folders.values():
            for file in (file for file in folder.iterdir() if file.suffix in (".conf", ".toml")):
                file.write_text(placed(file.read_text(), folders))

    @contextmanager
    def running(self, commands: Mapping[str, tuple[Sequence[str], Path]]) -> Iterator[dict[str, Path]]:
        """Start commands, each in its folder; their logs by name."""
        logs = {name: self.folder / f"{name}.log" for name in commands}
        with ExitStack() as ending:
            for name, (words, folder) in commands.items():
                with logs[name].open("wb") as log:
                    process = subprocess.Popen(words, cwd=folder, env=self.environment, stdout=log, stderr=log)
                ending.callback(process.wait, 60)
                ending.callback(process.terminate)
            yield logs


def placed(text: str, folders: Mapping[str, Path]) -> str:
    """A text with the folders of this test in place of those of containers."""
    for there, here in folders.items():
        text = re.sub(re.escape(there) + r"(?=[/\"\s&]|$)", str(here), text)
    return text


def all_run(server: Server, broker_log: Path) -> bool:
    """True if each part has a connection of its own, no shard is missing, and no connection was taken over."""
    text = broker_log.read_text()
    assert "already connected" not in text
    names = set(re.findall(r"New client connected .* as (gateway\S*) ", text))
    try:
        report = ask_gateway(server)
    except NotRunningError:
        return False
    whole = report.get("missing") == []
    return whole and report["connected"] and names == {"gateway", *(f"gateway-{index}" for index in range(SHARDS))}


def write_cluster_policies(folder: Path) -> None:
    """Policies of devices of every shard."""
    assert {owner(name, SHARDS) for name in DEVICES} == set(range(SHARDS))
    write_policies(folder, [policy(1, device=name) for name in DEVICES])


def own_name(configuration: Path) -> None:
    """Let Mosquitto stay the account that starts it, as in a container, where that is not root."""
    configuration.write_text(configuration.read_text() + f"user {getpass.getuser()}\n")


@pytest.mark.long
def test_each_service_of_the_compose_file_runs_after_the_lines_in_its_head(tmp_path: Path, server: Server) -> None:
    file = CLUSTER / "compose.yaml"
    lines = head(file).replace("database:5432:*", "*:*:*")
    deployment = Deployment(tmp_path, server)
    deployment.run("\n".join(line for line in lines.splitlines() if "DIGEST" not in line and "docker" not in line))
    services: dict[str, Any] = yaml.safe_load(file.read_text())["services"]
    write_cluster_policies(tmp_path / "gateway" / "policies")
    parts, folders = {}, {}
    for name, service in services.items():
        volumes = [
            re.fullmatch(r"\$\{FUGU_FOLDER:-\.\}/([^:]+):([^:]+)(?::ro)?", volume) for volume in service["volumes"]
        ]
        for volume in volumes:
            folders[volume[2]] = tmp_path / volume[1]
            assert folders[volume[2]].is_dir()
        if "entrypoint" in service:  # the database is one of this machine
            words = [*service["entrypoint"], *service.get("command", ())]
            words[0] = str(shutil.which(Path(words[0]).name, path=deployment.environment["PATH"]))
            parts[name] = words, folders[service["working_dir"]]
    deployment.environment |= {key: placed(value, folders) for key, value in services["fleet"]["environment"].items()}
    deployment.place(folders)
    own_name(tmp_path / "broker" / "mosquitto.conf")
    with deployment.running(parts) as logs:
        wait_until(lambda: all_run(server, logs["broker"]), "a connection of each part")


@pytest.mark.soak
def test_each_pod_of_kubernetes_runs_after_the_lines_in_its_head(tmp_path: Path, server: Server) -> None:
    file = CLUSTER / "kubernetes.yaml"
    manifests = {
        f"{manifest['kind']}/{manifest['metadata']['name']}": manifest
        for manifest in yaml.safe_load_all(file.read_text())
    }
    deployment = Deployment(tmp_path, server)
    deployment.run("fugu deploy broker broker --fleet home --host broker")
    deployment.run("\n".join(commands(head(file), "fugu")))
    write_cluster_policies(tmp_path / "policies")
    for name in ("database-ca.pem", "database.crt", "database.key"):  # of an administrator of the database
        (tmp_path / name).touch()
    volumes: dict[str, dict[str, bytes]] = {name: {} for name in ("fugu-gateway-file", "kernels", "tmp")}
    for line in commands(head(file), "kubectl"):
        words = shlex.split(line)
        if "create" in words and "namespace" not in words:
            name = next(word for word in words if word.startswith("fugu-"))
            sources = [tmp_path / word.partition("=")[2] for word in words if word.startswith("--from-file=")]
            files = [file for source in sources for file in (source.iterdir() if source.is_dir() else [source])]
            volumes[name] = {file.name: file.read_bytes() for file in files}
    volumes["fugu-gateway-file"] = {
        name: text.encode() for name, text in manifests["ConfigMap/fugu-gateway-file"]["data"].items()
    }
    count = manifests["ConfigMap/fugu-gateway"]["data"]["FUGU_SHARDS"]
    parts: dict[str, tuple[list[str], Path]] = {}
    for kind in ("fugu-shard", "fugu-fleet"):
        spec = manifests[f"StatefulSet/{kind}"]["spec"]
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        folders = {
            mount["mountPath"]: tmp_path / "mounted" / kind / mount["name"] for mount in container["volumeMounts"]
        }
        for volume in pod["volumes"]:
            (there,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == volume["name"])
            folders[there].mkdir(parents=True)
            named = volume.get("configMap", {}).get("name") or volume.get("secret", {}).get("secretName")
            for name, content in volumes[named or volume["name"]].items():
                (folders[there] / name).write_bytes(content)
                (folders[there] / name).chmod(volume.get("secret", {}).get("defaultMode", 0o644))
        for configuration in folders["/etc/fugu/gateway"].iterdir():
            text = re.sub(r'(?m)^store = ".*"', lambda _: f'store = "{server.url}"', configuration.read_text())
            text = text.replace("broker.example", "127.0.0.1").replace("port = 8883", f"port = {deployment.port}")
            configuration.write_text(placed(text, folders))
        for index in range(spec["replicas"]):
            shard = container["env"][0].get("value", str(index))
            role = {"$(FUGU_SHARD)": shard, "$(FUGU_SHARDS)": count}
            words = [placed(word, folders) for word in container["args"]]
            for variable, value in role.items():
                words = [word.replace(variable, value) for word in words]
            program = str(shutil.which("fugu", path=deployment.environment["PATH"]))
            parts[f"{kind}-{index}"] = [program, *words], tmp_path
    deployment.place({"/var/lib/fugu-broker": tmp_path / "broker"})
    own_name(tmp_path / "broker" / "mosquitto.conf")
    mosquitto = str(shutil.which("mosquitto", path=deployment.environment["PATH"]))
    parts["broker"] = [mosquitto, "-c", "mosquitto.conf"], tmp_path / "broker"
    with deployment.running(parts) as logs:
        wait_until(lambda: all_run(server, logs["broker"]), "a connection of each part")
