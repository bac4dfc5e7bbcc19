"""Journeys of newcomers: each of these once ended in nothing, in a false sentence or in a traceback."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

import fugu as library
from edge_agent.config import load
from edge_agent.sensors.source import ConfigError
from fugu.contract.errors import PolicyError
from fugu.host.files import hold, is_held
from gateway.deployment.doctor import Installation, examine
from gateway.estimates.catalogue import Catalogue
from gateway.fleet.registry import Registry, lock_path
from tests.support.brokers import Mosquitto
from tests.support.command import Fugu
from tests.support.forks import shell_words


@pytest.mark.long
@pytest.mark.parametrize("words", [["fugu", "--help"], ["fugu", "subscribe", "--help"], ["edge_agent", "--help"]])
def test_a_closed_pipe_is_the_end_and_no_failure(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*shell_words(), "-m", *words], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("entry", [library.plan, library.read])
def test_a_missing_recording_is_a_line_of_ours(entry: object, tmp_path: Path) -> None:
    assert callable(entry)
    with pytest.raises(library.FuguError, match=r"night\.csv: No such file or directory$"):
        entry(tmp_path / "night.csv")


def test_a_kind_that_there_is_not_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text(
        'fleet = "home"\ndevice = "watch"\noutbox = "o.db"\nceiling = 1.0\n[broker]\nhost = "127.0.0.1"\n'
        '[[streams]]\npolicy = "p.json"\n[streams.sensor]\nkind = "mqt"\n'
    )
    with pytest.raises(ConfigError, match="no kind is called 'mqt': did you mean mqtt\\?"):
        load(tmp_path / "agent.toml")


def test_a_folder_without_policies_is_wrong_unless_they_are_in_a_registry(tmp_path: Path) -> None:
    """Doctor says what the gateway does."""
    folder = tmp_path / "policies"
    folder.mkdir()
    with pytest.raises(PolicyError, match=r"holds no \.json file: .* or name the registry of signed ones"):
        Catalogue.load(folder, "home")
    assert Catalogue.load(folder, "home", signed=True).charges == 0
    for registry, verdict in ((None, "FAIL"), (tmp_path / "fleet.sqlite", "ok")):
        findings = examine(Installation("home", None, None, folder, registry=registry))
        assert [finding.verdict for finding in findings if finding.check == "policies"] == [verdict]


def test_status_says_that_no_gateway_runs(fugu: Fugu, tmp_path: Path) -> None:
    path = tmp_path / "fleet.sqlite"
    with closing(Registry(path, fleet="home")):
        words = ("fleet", "status", "--registry", path)
        assert "No gateway runs with this registry" in fugu(*words).out
        assert fugu(*words, "--json").json()["gateway"] is False
        running = hold(lock_path(path))
        with running:
            assert is_held(lock_path(path)) is True
            assert "No gateway runs" not in fugu(*words).out
            assert fugu(*words, "--json").json()["gateway"] is True
        assert fugu(*words, "--json").json()["gateway"] is False, "it has ended"


@pytest.mark.long
def test_a_fleet_of_another_name_is_no_success(fugu: Fugu, broker: Mosquitto) -> None:
    done = fugu("subscribe", "--fleet", "hoem", "--broker", f"127.0.0.1:{broker.port}", "--timeout", "0.3")
    assert (done.code, done.out) == (3, "")
    assert done.err == "fugu: nothing of fleet hoem came in 0.3 s: is that its name?\n"
