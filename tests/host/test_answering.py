"""Who answers at a status socket is believed only if no other account can have made it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from fugu.host.answering import StatusSocket, ask
from fugu_cli.main import main
from gateway.health.monitor import ask_gateway
from gateway.store.location import Server
from tests.support.brokers import PATIENCE, wait_until

NOBODY = 65534
STORE = Server("postgresql://fugu@db.example/home")
_FAKE = """
import os, socket, sys
path = sys.argv[1]
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
os.makedirs(os.path.dirname(path), exist_ok=True)
os.umask(0)
made = socket.socket(socket.AF_UNIX)
made.bind(path)
made.listen()
while True:
    asking, _ = made.accept()
    asking.sendall(b'{"fleet": "home", "alarms": [], "devices": {}}')
    asking.close()
"""


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder for temporary files, in which every account may make its own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setattr("gateway.store.location._RUN", tmp_path / "there is no such folder")
        yield Path(folder)


@contextmanager
def answered_by_nobody(path: Path) -> Iterator[None]:
    """Another account's process answers at a path."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a process as another account")
    process = subprocess.Popen([sys.executable, "-c", _FAKE, path])
    try:
        wait_until(path.is_socket, "the other account's socket")
        yield
    finally:
        process.kill()
        process.wait(timeout=60.0)


def test_what_another_account_says_for_a_gateway_is_not_believed(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert STORE.status_path.is_relative_to(shared)
    policies = tmp_path / "policies"
    policies.mkdir()
    file = tmp_path / "gateway.toml"
    file.write_text(f'fleet = "home"\nstore = "{STORE.url}"\npolicies = "{policies}"\n[broker]\nport = 1\n')
    with answered_by_nobody(STORE.status_path):
        with pytest.raises(FuguError, match="account 65534, and is not believed"):
            ask_gateway(STORE)
        assert main(["gateway", "status", str(file)]) != 0
        output = capsys.readouterr()
        assert (output.out, output.err.count("\n")) == ("", 1)
        assert not StatusSocket(STORE.status_path, own_folder=True).is_open


def test_what_another_account_says_for_a_store_in_a_shared_folder_is_not_believed(shared: Path) -> None:
    with answered_by_nobody(shared / "store.sqlite.status"), pytest.raises(FuguError):
        ask_gateway(shared / "store.sqlite")


def test_who_owns_the_folder_is_believed_unless_the_folder_may_be_anybody_s(shared: Path) -> None:
    theirs = shared / "theirs"
    with answered_by_nobody(theirs / "s.status"):
        assert ask(theirs / "s.status") is not None
        with pytest.raises(FuguError):
            ask(theirs / "s.status", owner_of_folder=False)


@pytest.mark.parametrize(("mode", "believed"), [(0o700, True), (0o755, True), (0o770, False), (0o1777, False)])
def test_a_service_s_folder_that_is_mapped_is_of_another_account_and_its_owner_s_alone(
    shared: Path, mode: int, believed: bool
) -> None:
    """As systemd 257 has it with `DynamicUser=`: the folder's account on the disk is not the process's."""
    folder = shared / "service"
    with answered_by_nobody(folder / "s.status"):
        os.chown(folder, 12345, 12345)
        folder.chmod(mode)
        if believed:
            assert ask(folder / "s.status") is not None
        else:
            with pytest.raises(FuguError):
                ask(folder / "s.status")


def test_a_gateway_makes_the_folder_for_its_account_alone(shared: Path) -> None:
    answering = StatusSocket(STORE.status_path, own_folder=STORE.has_own_folder)
    assert answering.is_open
    about = STORE.status_path.parent.stat()
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o700, os.geteuid())
    answering.close()
    again = StatusSocket(STORE.status_path, own_folder=True)
    assert again.is_open


@pytest.mark.parametrize("what", ["open to all", "a link", "a file", "another's"])
def test_a_folder_that_somebody_else_may_have_made_is_not_used(shared: Path, what: str) -> None:
    folder, elsewhere = STORE.status_path.parent, shared / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    match what:
        case "open to all":
            folder.mkdir()
            folder.chmod(0o755)
        case "a link":
            folder.symlink_to(elsewhere)
        case "a file":
            folder.touch()
        case "another's":
            if os.geteuid() != 0:
                pytest.skip("only root can give a folder away")
            folder.mkdir(mode=0o700)
            os.chown(folder, NOBODY, NOBODY)
    assert not StatusSocket(STORE.status_path, own_folder=True).is_open
    assert list(elsewhere.iterdir()) == []


def test_a_long_text_arrives_whole_though_nobody_waits_to_be_asked(tmp_path: Path) -> None:
    answering, texts = StatusSocket(tmp_path / "socket"), []
    asking = threading.Thread(target=lambda: texts.append(ask(tmp_path / "socket")))
    asking.start()
    wait_until(lambda: answering.answer(lambda: "x" * 500_000))
    asking.join(PATIENCE)
    answering.close()
    assert [len(text or "") for text in texts] == [500_000]
