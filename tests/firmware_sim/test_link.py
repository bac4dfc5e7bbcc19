"""A board's connection: TLS that checks certificate and name, QoS 1 over a restart of the broker, and back-off."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from firmware_sim.build import Burnt, build
from fugu.contract.errors import StatusCode
from fugu.contract.frames import Status
from fugu.contract.topics import topic_of
from fugu.mqtt import Broker
from tests.support.board_policies import board_policy
from tests.support.boards import SUPPORT, BoardProcess, micropython
from tests.support.brokers import Mosquitto, free_port, wait_until
from tests.support.processes import Recorder, by_tick
from tests.support.shipped import Shipped


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker with a certificate for localhost, and its authority in `ca.pem` beside that of another."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    files = f"cafile {tmp_path}/ca.pem\ncertfile {tmp_path}/cert.pem\nkeyfile {tmp_path}/key.pem\n"
    with Mosquitto(tmp_path, f"{files}allow_anonymous true\n") as broker:
        yield broker


@pytest.mark.long
def test_a_board_talks_only_to_the_broker_of_its_certificate(secured: Mosquitto, tmp_path: Path) -> None:
    policy = board_policy(frame_ticks=5, period_us=20_000)
    policy = policy.model_copy(
        update={"clock": policy.clock.model_copy(update={"epoch_us": time.time_ns() // 10**9 * 10**6})}
    )
    log = secured.folder / "mosquitto.log"
    for number, (ca, host) in enumerate((("other.pem", "localhost"), ("ca.pem", "127.0.0.1"))):
        image = tmp_path / f"image{number}"
        build([policy], image, Burnt(host=host, port=secured.port, ca=(tmp_path / ca).read_bytes()))
        refused = log.read_text().count("SSL")
        board = BoardProcess(image)
        wait_until(lambda before=refused: log.read_text().count("SSL") > before + 1, "two refusals")
        board.kill()
    assert " as home-watch" not in log.read_text()
    image = tmp_path / "image"
    build([policy], image, Burnt(host="localhost", port=secured.port, ca=(tmp_path / "ca.pem").read_bytes()))
    broker = Broker("localhost", secured.port, ca_file=str(tmp_path / "ca.pem"), max_backoff=1)
    frames, statuses = Recorder(broker), Recorder(broker, topic_of("status", "home", "watch"))
    board = BoardProcess(image)
    wait_until(lambda: len(frames.payloads) > 3, "frames over TLS")
    secured.restart()
    count = len(frames.payloads)
    wait_until(lambda: len(frames.payloads) > count + 3, "frames after a restart of the broker")
    board.kill()
    wait_until(
        lambda: Status.decode(statuses.payloads[-1]).codes == (StatusCode.CONNECTION_LOST,), "the will of the board"
    )
    board = BoardProcess(image)
    wait_until(lambda: Status.decode(statuses.payloads[-1]).online, "the board again")
    wait_until(lambda: not Status.decode(statuses.payloads[-1]).codes, "the board again")
    assert board.stop() == 0
    assert board.log == ""
    received = frames.frames()
    by_tick(received)  # asserts that no tick has two symbols
    last = -1
    for frame in sorted(set(received), key=lambda frame: frame.first):
        assert frame.previous == last, "a frame is missing"
        last = frame.first + len(frame.symbols) - 1


@pytest.mark.long
def test_a_board_connects_to_a_deployed_broker_if_that_was_made_for_boards(tmp_path: Path) -> None:
    policy = board_policy(frame_ticks=5, period_us=20_000)
    for words in (("--boards",), ()):
        folder = tmp_path / f"for{len(words)}"
        broker = Shipped(folder, *words)
        account, _ = broker.add("device", "watch"), broker.add("subscriber", "site", "--audience", "site")
        burnt = Burnt(host="127.0.0.1", port=broker.port, username="watch", ca=(account / "ca.pem").read_bytes())
        secret = (account / "password").read_text().strip()
        build([policy], folder / "image", replace(burnt, password=secret))
        with broker:
            heard = Recorder(broker.address("site"))
            board = BoardProcess(folder / "image")
            if words:
                wait_until(lambda heard=heard: heard.payloads, "frames")
            else:
                log = broker.folder.parent / "broker" / "mosquitto.log"
                wait_until(lambda log=log: "unsupported protocol" in log.read_text(), "a refusal")
                assert not heard.payloads
            board.kill()
            heard.link.stop()


def test_a_board_waits_longer_each_time_that_nobody_accepts_its_connection() -> None:
    waits = list(map(int, micropython(SUPPORT / "board_waits.py", free_port(), 9).split()))
    for wait, factor in zip(waits, (1, 2, 4, 8, 16, 32, 60, 60, 60), strict=True):
        assert 500 * factor <= wait < 1012 * factor
    assert len({wait % 500 for wait in waits}) > 1, "all boards would come back at the same moment"


def slow_broker(server: socket.socket) -> None:
    """Accept connections, and send each a message in two pieces; between them the board looks for a silence."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(4096)
            connection.sendall(b"\x20\x02\0\0")
            time.sleep(0.5)
            connection.sendall(b"\x30\x08\0\x01")
            time.sleep(1.0)
            connection.sendall(b"thello")
            time.sleep(1.0)


def test_a_message_in_pieces_is_read_to_its_end_whenever_a_silence_is_looked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=slow_broker, args=(server,), daemon=True).start()
        assert micropython(SUPPORT / "board_slow.py", server.getsockname()[1], seconds=60.0) == "[b'hello'] 1\n"
