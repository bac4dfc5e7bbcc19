"""Commands that take a store take one on a server, and say the same of it as of a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gateway.store.location import Server, ledger_beside
from tests.support.brokers import free_port
from tests.support.command import Fugu
from tests.support.gateway_files import gateway_file
from tests.support.scenes import Scene, frames

SAY_THE_SAME = (
    ("gateway", "history", "watch", "hr", "--store", "{store}", "--json"),
    ("gateway", "history", "ring", "hr", "--store", "{store}"),
    ("gateway", "export", "{store}", "{folder}", "--json"),
    ("gateway", "smooth", "{store}", "-o", "{folder}", "--json"),
)


@pytest.mark.long
@pytest.mark.processes
def test_what_is_told_of_a_store_on_a_server_is_what_is_told_of_a_file(
    tmp_path: Path, server: Server, fugu: Fugu
) -> None:
    for place in (tmp_path / "s.sqlite", server):
        scene = Scene(place, lag=4)
        scene.record(*frames([10, 3, 7, 10], gaps=(0, 5)))
        scene.store.close()
    for number, words in enumerate(SAY_THE_SAME):
        answers = []
        for kind, store in (("file", str(tmp_path / "s.sqlite")), ("server", server.url)):
            folder = tmp_path / f"{kind}{number}"
            done = fugu(*(word.format(store=store, folder=folder) for word in words))
            answers.append((done.code, done.out, done.err.replace(server.name, "s.sqlite")))
        assert answers[0] == answers[1], words
        assert number == 1 or answers[0][0] == 0, words


@pytest.mark.processes
def test_a_doctor_looks_at_a_server_and_a_status_names_it(server: Server, fugu: Fugu, tmp_path: Path) -> None:
    file = gateway_file(tmp_path / "gateway.toml", free_port(), store=server)
    done = fugu("doctor", file)
    assert f"there is no store {server.name}" in done.out
    Scene(server).store.close()
    assert f"{server.name} can be reached" in fugu("doctor", file).out
    done = fugu("gateway", "status", server.url)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"fugu: no gateway answers for the store {server.name}: ")


def test_a_password_on_the_command_line_is_refused_and_not_repeated(fugu: Fugu) -> None:
    done = fugu("gateway", "forget", "watch", "--store", "postgresql://fugu:secret@db.example/home")
    assert (done.code, done.err.startswith("fugu: no password in the store's URL")) == (2, True)
    assert "secret" not in done.err


def test_without_psycopg_it_is_named(fugu: Fugu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gateway.store.postgresql", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    done = fugu("gateway", "history", "watch", "hr", "--store", "postgresql://fugu@127.0.0.1:1/home")
    assert done.code == 1
    assert done.err == "fugu: a store on a server needs psycopg: pip install 'fugu-edge[postgres]'\n"


def test_the_ledger_is_beside_its_store(fugu: Fugu, tmp_path: Path) -> None:
    assert ledger_beside(tmp_path / "home.db") == tmp_path / "home-ledger.db"
    assert ledger_beside(Server("postgresql://fugu@db.example/home")).name == "postgresql://db.example/home ledger"
    done = fugu("check", "ledger")
    assert (done.code, done.err.startswith("fugu: which ledger? say --ledger, or --store")) == (2, True)
    done = fugu("check", "ledger", "--store", tmp_path / "home.db")
    assert (done.code, done.err) == (1, "fugu: there is no ledger home-ledger.db\n")
