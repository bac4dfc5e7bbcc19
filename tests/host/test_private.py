"""Files that programs write are their owner's alone, whatever the umask of who starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_agent.outbox import Outbox
from fugu.contract.errors import FuguError
from fugu.host.answering import StatusSocket
from fugu.host.checks import private_database
from fugu.host.files import write_public, write_secret
from gateway.fleet.registry import Registry
from gateway.releases.ledger import Ledger
from gateway.store.engine import Lease
from gateway.store.store import Store


@pytest.fixture(params=[0o000, 0o022, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}


@pytest.mark.usefixtures("umask")
def test_every_database_and_socket_is_its_owner_s_alone(tmp_path: Path) -> None:
    with (
        closing(Store(tmp_path / "store", lease=Lease())),
        closing(Ledger(tmp_path / "ledger", lease=Lease())),
        closing(Outbox(tmp_path / "outbox", "home", "watch")),
        closing(Registry(tmp_path / "registry", fleet="home")),
        closing(StatusSocket(tmp_path / "socket")),
    ):
        file_modes = modes(tmp_path)
    assert set(file_modes.values()) == {0o600}, file_modes
    wanted = {
        *("store", "store-wal", "store-shm", "store.lock", "ledger-wal", "outbox", "registry", "registry-wal"),
        "socket",
    }
    assert wanted <= set(file_modes)


def test_a_copy_that_is_put_back_readable_to_all_is_closed_to_others_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    Store(path).close()
    path.chmod(0o644)
    Store(path).close()
    assert set(modes(tmp_path).values()) == {0o600}


@pytest.mark.parametrize(("mode", "verdict"), [(0o600, "ok"), (0o604, "FAIL"), (0o640, "FAIL")])
@pytest.mark.parametrize("name", ["store", "store-wal", "store-shm", "store.lock", "store.status", "store.old"])
def test_doctor_names_whatever_of_a_database_others_may_read(
    tmp_path: Path, name: str, mode: int, verdict: str
) -> None:
    (tmp_path / "store").touch(0o600)
    (tmp_path / name).touch()
    (tmp_path / name).chmod(mode)
    (tmp_path / "store.pause").touch()
    (tmp_path / "store.pause").chmod(0o644)
    findings = list(private_database(tmp_path / "store"))
    assert {finding.check: finding.verdict for finding in findings}.get(f"file {name}", "ok") == verdict
    assert len(findings) == 1 + (verdict == "FAIL" and name != "store")


def test_no_pipe_is_replaced_by_a_file_and_no_link_to_an_open_one(tmp_path: Path) -> None:
    """Root would replace /dev/null and /dev/stdout, for everybody on the machine."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    for name in ("pipe", "stdout"):
        for write in (write_secret, write_public):
            with pytest.raises(FuguError, match=f"cannot write .*{name}: it is a device or a pipe"):
                write(tmp_path / name, "71")
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "stdout").is_symlink()


def test_what_has_no_room_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A policy whose new version did not fit was an empty file."""
    policy = tmp_path / "policy.json"
    policy.write_text("old")
    words = ["plan", "stream", "--q", ".1", "--r", ".4", "--epsilon", "1", "--period", "1"]
    header = ["--for", "home/watch/hr", "--threshold", "70", "--states", "low,high"]
    program = "import resource, sys\nfrom fugu_cli.main import main\n"
    program += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\nsys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *words, *header, "-o", policy], capture_output=True, text=True, check=False
    )
    assert (done.returncode, policy.read_text()) == (1, "old"), done.stderr
    assert f"cannot write {policy}" in done.stderr
