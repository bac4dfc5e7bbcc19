"""Watermarks on a device: what may delete a frame, and what may not."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge_agent.config import load
from edge_agent.outbox import Outbox
from edge_agent.plan import AgentPlan
from edge_agent.sender import IN_FLIGHT, RESEND_SECONDS, Sender
from edge_agent.sensors.source import ConfigError
from fugu.contract.frames import Committed, Gap, StreamCommit
from fugu.contract.topics import parse_topic
from fugu.mqtt import Broker
from tests.support.agents import agent_plan, stream_plan
from tests.support.signing import Keys

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
PLAN = stream_plan(frame_ticks=1)
FRAMES = 5


class Link:
    """A connection that takes everything, or so much."""

    client_count = 1

    def __init__(self, most: int = 1_000_000) -> None:
        self.sent: list[bytes] = []
        self.most = most

    def publish(self, topic: str, payload: bytes) -> int | None:
        assert parse_topic(topic).kind == "symbols"
        if len(self.sent) >= self.most:
            return None
        self.sent.append(payload)
        return len(self.sent)


def outbox_of(folder: Path, frames: int = FRAMES) -> Outbox:
    """An outbox with so many frames of one tick each, if it is new."""
    outbox = Outbox(folder / "outbox.sqlite", "home", "watch")
    last = outbox.register(PLAN)
    for tick in range(last + 1, frames if last < 0 else 0):
        outbox.append(PLAN, tick, b"\1")
    return outbox


def plan(**changes: Any) -> AgentPlan:
    """Of a device that keeps nothing longer than it has to."""
    return agent_plan(Path(), Broker(), PLAN, **{"forget": "committed", **changes})


def sender_of(outbox: Outbox, link: Link | None = None, key: bytes | None = KEY, grace: float = 3600.0) -> Sender:
    """A sender that has sent what the link took."""
    sender = Sender(outbox, link or Link(), plan(grace_seconds=grace), key)
    sender.pump()
    return sender


def watermark(through: int, counter: int = 1, *gaps: Gap, key: bytes = KEY, **names: str) -> Committed:
    addressed = {"fleet": "home", "device": "watch", **names}
    bare = Committed((StreamCommit("hr", through, gaps),), counter)
    return bare.with_tag(key, addressed["fleet"], addressed["device"])


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(replace(watermark(FRAMES), tag=b""), id="without a tag"),
        pytest.param(watermark(FRAMES, key=OTHER_KEY), id="under another key"),
        pytest.param(watermark(FRAMES, device="ring"), id="of another device"),
        pytest.param(watermark(FRAMES, fleet="away"), id="of another fleet"),
    ],
)
def test_a_forged_watermark_deletes_no_frame(tmp_path: Path, forged: Committed) -> None:
    with closing(outbox_of(tmp_path)) as outbox:
        sender = sender_of(outbox)
        assert not sender.take_watermark(forged)
        assert outbox.frames.depth() == FRAMES
        assert outbox.counter == 0
        assert sender.take_watermark(watermark(0)), "and the gateway is heard afterwards"


def test_a_replayed_watermark_deletes_no_frame_not_after_a_restart_either(tmp_path: Path) -> None:
    """A frame was lost at the gateway after an older watermark had covered it: the newer one says so."""
    older, newer = watermark(4, 7), watermark(4, 8, Gap(1, 3))
    with closing(outbox_of(tmp_path)) as outbox:
        sender = sender_of(outbox)
        assert sender.take_watermark(newer)
        assert outbox.frames.depth() == 2
        for _ in range(3):
            assert not sender.take_watermark(older)
            assert not sender.take_watermark(newer)
    with closing(outbox_of(tmp_path)) as outbox:
        assert outbox.frames.depth() == 2
        sender = sender_of(outbox)
        assert not sender.take_watermark(older)
        assert outbox.frames.depth() == 2
        assert sender.take_watermark(watermark(4, 9))
        assert outbox.frames.depth() == 0


@pytest.mark.parametrize("key", [KEY, None])
def test_a_watermark_above_what_was_sent_deletes_no_more_than_that(tmp_path: Path, key: bytes | None) -> None:
    """A device keeps all that the gateway cannot have; after a restart that is everything, until it is sent."""
    with closing(outbox_of(tmp_path)) as outbox:
        link = Link(most=2)
        sender = sender_of(outbox, link, key, grace=0.0)
        assert sender.take_watermark(watermark(2**40, 1))
        assert outbox.frames.depth() == FRAMES - 2
        link.most = 3
        sender.pump()
        assert sender.take_watermark(watermark(2**40, 2))
        assert outbox.frames.depth() == FRAMES - 3
    with closing(outbox_of(tmp_path)) as outbox:
        sender = sender_of(outbox, Link(most=0), key, grace=0.0)
        assert sender.take_watermark(watermark(2**40, 3))
        assert outbox.frames.depth() == FRAMES - 3


def test_a_device_that_is_enrolled_anew_counts_anew(tmp_path: Path) -> None:
    """So that a counter that ran ahead can be left behind, and what was said under the old key is worth nothing."""
    with closing(outbox_of(tmp_path)) as outbox:
        sender = sender_of(outbox)
        assert sender.take_watermark(watermark(0, 2**63))
        assert not sender.take_watermark(watermark(2, 5))
    with closing(outbox_of(tmp_path)) as outbox:
        sender = sender_of(outbox, key=OTHER_KEY)
        assert not sender.take_watermark(watermark(FRAMES, 2**64 - 1))
        assert sender.take_watermark(watermark(2, 5, key=OTHER_KEY))
        assert not sender.take_watermark(watermark(3, 5, key=OTHER_KEY))
        assert outbox.frames.depth() == FRAMES - 3


# What the broker says, and what nobody says


@pytest.mark.parametrize(("forget_early", "accepted", "depth"), [
    (True, True, FRAMES - 1), (True, False, FRAMES), (False, True, FRAMES), (False, False, FRAMES),
])  # fmt: skip
def test_a_broker_s_answer_deletes_a_frame_only_if_it_has_it_and_that_is_enough(
    tmp_path: Path, forget_early: bool, accepted: bool, depth: int
) -> None:
    with closing(outbox_of(tmp_path)) as outbox:
        sender = Sender(outbox, Link(), plan(forget="puback" if forget_early else "committed"))
        sender.pump()
        sender.take_answer(1, 2, accepted)
        assert outbox.frames.depth() == depth


def test_frames_of_which_nobody_says_anything_are_sent_again_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("edge_agent.sender.time", SimpleNamespace(monotonic=lambda: now[0]))
    with closing(outbox_of(tmp_path)) as outbox:
        link = Link()
        sender = sender_of(outbox, link)
        first = list(link.sent)
        for number in range(FRAMES):
            sender.take_answer(1, number + 1, True)
        sender.pump()
        assert link.sent == first, "not at once"
        now[0] += RESEND_SECONDS
        sender.pump()
        assert link.sent == [*first, *first]
        assert outbox.frames.depth() == FRAMES


def test_of_many_frames_that_a_gateway_has_lost_the_rest_follows_once_the_first_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No frame follows that would tell of the gap: twenty at a time would take ten seconds each."""
    now, many = [0.0], 500
    monkeypatch.setattr("edge_agent.sender.time", SimpleNamespace(monotonic=lambda: now[0]))
    with closing(outbox_of(tmp_path, many)) as outbox:
        sender = sender_of(outbox, link := Link())
        message_id = counter = 0

        def deliver() -> None:
            nonlocal message_id
            while message_id < len(link.sent):
                message_id += 1
                sender.take_answer(1, message_id, True)
                sender.pump()

        deliver()
        assert len(link.sent) == many
        now[0] += RESEND_SECONDS
        sender.pump()
        while outbox.frames.depth():
            assert 0 < len(link.sent) - message_id <= IN_FLIGHT
            deliver()
            counter += 1
            assert sender.take_watermark(watermark(len(link.sent) - many - 1, counter))
            sender.pump()
        assert counter <= 6
        assert len(link.sent) == 2 * many, "each once more"


def test_what_was_under_way_when_the_link_began_anew_is_sent_again(tmp_path: Path) -> None:
    """A slow broker is taken for one of MQTT 3.1.1, which needs a new client: nobody answers what the old one sent."""
    with closing(outbox_of(tmp_path, IN_FLIGHT + 5)) as outbox:
        link = Link()
        sender = Sender(outbox, link, plan(forget="puback"))
        sender.pump()
        first = list(link.sent)
        assert len(first) == IN_FLIGHT
        sender.note_connection()
        sender.pump()
        assert link.sent == first, "the client of before sends them again by itself"
        link.client_count, link.sent = 2, []
        sender.note_connection()
        sender.take_answer(1, 1, True)  # waited behind the connection
        sender.pump()
        assert link.sent == first
        for number in range(IN_FLIGHT):
            sender.take_answer(2, number + 1, True)
        sender.pump()
        assert len(link.sent) == IN_FLIGHT + 5
        assert outbox.frames.depth() == 5


# The enrolment's file


def device(folder: Path, mode: int, **fields: Any) -> Path:
    """The configuration of an enrolled device, whose enrolment has a mode."""
    config = Keys().enrolled(folder, sensor='{kind = "stdin"}', **fields)
    (folder / "enrolment.json").chmod(mode)
    return config


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601, 0o620])
def test_an_enrolment_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    config = device(tmp_path, mode, key=KEY.hex())
    with pytest.raises(ConfigError) as refused:
        load(config)
    assert str(refused.value) == (
        f"enrolment enrolment.json holds a secret that others may read (mode {mode:04o}): chmod 600 it, "
        "and if others may have read it, enrol the device anew"
    )


@pytest.mark.parametrize(("mode", "fields"), [(0o600, {"key": KEY.hex()}), (0o400, {"key": KEY.hex()}), (0o644, {})])
def test_an_enrolment_without_a_secret_or_for_the_owner_alone_is_taken(
    tmp_path: Path, mode: int, fields: dict[str, str]
) -> None:
    managed = load(device(tmp_path, mode, **fields)).managed
    assert managed.key == fields.get("key")
    assert KEY.hex() not in repr(managed)


def test_what_systemd_hands_over_is_taken_whatever_its_mode_seems_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lets the service read its credentials by an access list, which a mode shows as the group's right."""
    config = device(tmp_path, 0o440, key=KEY.hex())
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert load(config).managed is not None


@pytest.mark.parametrize("key", ["", "00" * 31, "00" * 33, "XY" * 32, "A0" * 32])
def test_a_key_that_is_none_is_refused_without_being_told(tmp_path: Path, key: str) -> None:
    enrolment = tmp_path / "enrolment.json"
    config = device(tmp_path, 0o600, key=KEY.hex())
    enrolment.write_text(enrolment.read_text().replace(KEY.hex(), key))
    with pytest.raises(Exception, match="enrolment: key: must be of the form") as refused:
        load(config)
    assert not key or key not in str(refused.value)
