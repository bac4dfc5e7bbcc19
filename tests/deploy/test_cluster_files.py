"""The files for several machines: they parse, they confine what they start, and `fugu` knows each command in them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer

from fugu_cli.app import load
from gateway.config import GatewayConfig
from gateway.deployment.units import SHARD_UNIT, unit
from gateway.store.location import Server, store_location
from gateway.store.shards import read_role
from tests.support.documents import ROOT
from tests.support.ray_nodes import SYSTEM_CONFIG

yaml = pytest.importorskip("yaml")  # comes with the embedded broker of the demo, and with Ray

CLUSTER = ROOT / "deploy" / "cluster"
PROGRAM = "/opt/fugu-edge/bin/fugu"


def options(words: Sequence[str]) -> dict[str, Any]:
    """The values of a command's options, as `fugu` itself reads them; nothing is run."""
    assert words[0] in (PROGRAM, "fugu"), words
    return load(" ".join(words[1:3])).make_context(words[2], list(words[3:])).params


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with the values of variables, as a shell, systemd or Kubernetes would have it."""
    return re.sub(r"\$\$?(?:\((\w+)\)|\{(\w+)\}|(\w+))", lambda match: values[match[1] or match[2] or match[3]], text)


def piped(line: str) -> list[str]:
    """The words of a shell's line up to a pipe."""
    return shlex.split(line.removeprefix("exec ").partition(" | ")[0])


def check(words: Sequence[str], role: str) -> None:
    """See that a command serves one role of a fleet, with a store on a server."""
    parsed = options(words)
    assert Path(parsed["config"]).name == "gateway.toml"
    assert read_role(parsed["shard"]) == read_role(role)


def store_in(text: str) -> object:
    """The store that a file of a gateway names, in a text around it."""
    (location,) = re.findall(r'store = "([^"]*)"', text)
    return store_location(location)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((CLUSTER / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def manifests() -> dict[str, dict[str, Any]]:
    """The objects for Kubernetes, by name."""
    text = (CLUSTER / "kubernetes.yaml").read_text()
    return {f"{manifest['kind']}/{manifest['metadata']['name']}": manifest for manifest in yaml.safe_load_all(text)}


def test_a_command_that_fugu_does_not_know_is_noticed() -> None:
    words = [PROGRAM, "gateway", "run", "gateway.toml", "--shard", "0/2"]
    assert options(words)["shard"] == "0/2"
    for wrong in ([*words, "--shrad", "0/2"], words[:3]):
        with pytest.raises(typer.TyperException):
            options(wrong)


def test_the_compose_file_starts_each_part_once_and_confines_it(compose: dict[str, Any]) -> None:
    roles = []
    for name, service in compose["services"].items():
        assert service["user"].startswith("${FUGU_USER:?")
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
        assert ("ports" in service) == (name == "broker")
        assert ("ulimits" in service) == (name == "broker")
        if "command" in service:
            (role,) = service["command"]
            check([*service["entrypoint"], role], role)
            assert name == ("fleet" if (shard := read_role(role)[1]) is None else f"shard-{shard.index}")
            roles.append(role)
    count = read_role(roles[0])[0]
    assert sorted(roles) == sorted(["fleet/3", *(f"{index}/{count}" for index in range(count))])
    assert compose["networks"]["database"] == {"internal": True}
    assert [name for name, service in compose["services"].items() if "database" in service["networks"]] == [
        name for name in compose["services"] if name != "broker"
    ]


def containers(manifests: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], dict[str, str]]]:
    """Role, container and environment of every pod of Kubernetes."""
    settings = manifests["ConfigMap/fugu-gateway"]["data"]
    for name in ("StatefulSet/fugu-shard", "StatefulSet/fugu-fleet"):
        spec = manifests[name]["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        (which,) = container["env"]
        for index in range(spec["replicas"]):
            value = which.get("value", str(index))
            yield f"{value}/{settings['FUGU_SHARDS']}", container, settings | {"FUGU_SHARD": value}


def test_kubernetes_starts_each_part_once_and_asks_each_whether_it_answers(
    manifests: dict[str, dict[str, Any]],
) -> None:
    roles = []
    for role, container, environment in containers(manifests):
        check([PROGRAM, *(filled(word, environment) for word in container["args"])], role)
        for probe in ("startupProbe", "livenessProbe"):
            shell, option, line = container[probe]["exec"]["command"]
            assert (shell, option) == ("/bin/sh", "-c")
            asked = options(piped(filled(line, environment)))
            assert (asked["store"], asked["as_json"]) == (container["args"][2], True)
        roles.append(role)
    count = int(manifests["ConfigMap/fugu-gateway"]["data"]["FUGU_SHARDS"])
    assert roles == [*(f"{index}/{count}" for index in range(count)), f"fleet/{count}"]
    by = manifests["StatefulSet/fugu-shard"]["spec"]["template"]["spec"]["containers"][0]["env"][0]["valueFrom"]
    assert by == {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}}


def test_pods_are_alike_but_for_their_part_and_confined(manifests: dict[str, dict[str, Any]]) -> None:
    shard, fleet = (manifests[f"StatefulSet/fugu-{part}"] for part in ("shard", "fleet"))
    text = yaml.safe_dump(shard).replace("fugu-shard", "fugu-fleet").replace("replicas: 3", "replicas: 1")
    other = yaml.safe_load(text)
    other["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "FUGU_SHARD", "value": "fleet"}]
    assert other == fleet
    pod = shard["spec"]["template"]["spec"]
    assert shard["spec"]["selector"]["matchLabels"] == shard["spec"]["template"]["metadata"]["labels"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in pod["volumes"]}
    file = manifests["ConfigMap/fugu-gateway-file"]["data"]["gateway.toml"]
    assert isinstance(store_in(file), Server)
    assert GatewayConfig.model_validate_json(json.dumps(tomllib.loads(file))).fleet == "home"
    paths = [container["args"][2], *re.findall(r"""[="](/[^\s&"]+)""", file)]
    assert len(paths) > 5
    for path in paths:
        assert any(path.startswith(mount) for mount in mounted.values()), path


def test_the_commands_of_the_manual_that_no_test_can_run_are_known_to_ray_and_to_fugu() -> None:
    cli = pytest.importorskip("ray.scripts.scripts").cli
    text = (ROOT / "docs" / "cluster.md").read_text()
    commands = [shlex.split(line) for line in re.findall("^    ((?:ray|fugu) .*)$", text, re.MULTILINE)]
    started = [cli.commands["start"].make_context("start", words[2:]).params for words in commands if words[0] == "ray"]
    assert [node["head"] for node in started] == [True, False]
    assert started[0]["system_config"] == SYSTEM_CONFIG
    (parsed,) = [options(words) for words in commands if words[0] == "fugu"]
    assert parsed["shards"] == 16


def test_the_unit_of_a_shard_is_confined_as_the_gateway_s_and_its_command_is_one(tmp_path: Path) -> None:
    fields = {"CREDENTIALS": "", "PROGRAM": PROGRAM, "SHARDS": "4"}
    text, fleet = (unit(SHARD_UNIT, {**fields, "PART": part}) for part in ("%i", "fleet"))
    assert fleet == text.replace("%i", "fleet")
    of_gateway = (ROOT / "deploy" / "systemd" / "fugu-gateway.service").read_text()
    assert text.partition("\nDynamicUser=yes\n")[2] == of_gateway.partition("\nDynamicUser=yes\n")[2] != ""
    command = re.search(r"^ExecStart=(.*)$", text.replace("\\\n", " "), re.MULTILINE)
    assert isinstance(store_in(text), Server)
    for part in ("3", "fleet"):
        check(shlex.split(command[1].replace("%i", part)), f"{part}/4")
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is missing")
    (tmp_path / SHARD_UNIT).write_text(text.replace(PROGRAM, "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", tmp_path / SHARD_UNIT.replace("@", "@3")], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if "fugu" in line] == []
