"""Who can reach a service of this machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from edge_agent.doctor import private_socket
from fugu.host.checks import loopback_only
from tests.support.brokers import free_port


@pytest.mark.parametrize(("address", "verdict"), [("127.0.0.1", "ok"), ("127.4.4.4", "ok"), ("0.0.0.0", "warn")])
def test_where_a_port_of_this_machine_is_open(address: str, verdict: str) -> None:
    with socket.create_server((address, free_port())) as server:
        port = server.getsockname()[1]
        finding = loopback_only("local broker", port)
        assert finding.verdict == verdict
        assert (f"listener {port} 127.0.0.1" in finding.text) == (verdict == "warn")
    assert "nothing listens" in loopback_only("local broker", port).text


@pytest.mark.parametrize(
    ("local", "verdict"),
    [
        ("00000000000000000000000001000000", "ok"),
        ("0000000000000000FFFF00000100007F", "ok"),
        ("00000000000000000000000000000000", "warn"),
        ("0000000000000000FFFF00000101A8C0", "warn"),
    ],
)
def test_addresses_of_ipv6_as_a_little_endian_kernel_writes_them(tmp_path: Path, local: str, verdict: str) -> None:
    (tmp_path / "tcp6").write_text(
        "  sl  local_address                         remote_address                        st tx_queue\n"
        f"   0: {local}:075B 00000000000000000000000000000000:0000 0A 00000000:00000000\n"
        "   1: 00000000000000000000000000000000:075B 00000000000000000000000000000000:0000 01 00000000:00000000\n"
    )
    assert loopback_only("local broker", 0x075B, net_folder=tmp_path).verdict == verdict
    assert "nothing listens" in loopback_only("local broker", 1, net_folder=tmp_path).text


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert "does not say" in loopback_only("local broker", 1883, net_folder=tmp_path).text


def test_a_socket_that_others_may_open(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    assert private_socket("local broker", path).verdict == "warn"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o666)
        assert private_socket("local broker", path).verdict == "warn"
        path.chmod(0o660)
        assert private_socket("local broker", path).verdict == "ok"
    path.unlink()
    path.touch()
    assert private_socket("local broker", path).verdict == "FAIL"
