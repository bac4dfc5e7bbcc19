"""Sends the frames of the outbox, a few at a time, until they are known to be safe elsewhere."""

from __future__ import annotations

import time

from edge_agent.outbox import Outbox
from edge_agent.plan import AgentPlan
from fugu.contract.frames import Committed
from fugu.contract.group_frames import Report
from fugu.contract.topics import Kind, topic_of
from fugu.mqtt import Link

__all__ = ["Sender"]

IN_FLIGHT = 20
RESEND_SECONDS = 10.0
RESEND_SECONDS_MAX = 3600.0


class Sender:
    """Sends the frames of one device, and forgets them; used from the agent's loop.

    Args:
        plan: has the device's names, and says when frames may be forgotten (`forget`, `grace_seconds`).
        key: key of the gateway's watermarks; None takes anybody's watermarks, with the grace period.
    """

    def __init__(self, outbox: Outbox, link: Link, plan: AgentPlan, watermark_key: bytes | None = None) -> None:
        if watermark_key is not None:
            outbox.set_watermark_key(watermark_key)
        self._outbox = outbox
        self._link = link
        self._plan = plan
        self._address = plan.fleet, plan.device
        self._watermark_key = watermark_key
        self._sent_through = 0
        self._resend_ids: list[int] = []
        self._in_flight: dict[tuple[int, int], int] = {}  # by the link's client, and its message id
        self._progress_time = time.monotonic()
        self._patience_seconds = RESEND_SECONDS
        self._sent_at: dict[int, float] = {}
        # The last frame that was sent again because no answer came, and how many frames were sent again then.
        self._probe_end = self._probe_count = 0

    def pump(self) -> None:
        """Send frames until `IN_FLIGHT` are unanswered; call this while connected."""
        self._resend_unanswered()
        while len(self._in_flight) < IN_FLIGHT and self._send_next():
            pass

    def note_connection(self) -> None:
        """Note a new connection, and send publications of earlier clients again; the link's client re-sends its own.

        Frames that the broker may have lost follow after `RESEND_SECONDS`.
        """
        lost_keys = [key for key in self._in_flight if key[0] != self._link.client_count]
        self._resend_ids = sorted({*self._resend_ids, *map(self._in_flight.pop, lost_keys)})
        self._progress_time = time.monotonic()
        self._patience_seconds = RESEND_SECONDS

    def _send_next(self) -> bool:
        is_first_send = not self._resend_ids
        frame_before = self._sent_through if is_first_send else self._resend_ids[0] - 1
        if (frame := self._outbox.frames.next(frame_before)) is None:
            self._resend_ids.clear()
            return not is_first_send
        frame_id, sequence, payload = frame
        stream, _, window = sequence.partition("/")
        kind: Kind = "report" if payload[0] == Report.SCHEMA else "window" if window else "symbols"
        topic = topic_of(kind, *self._address, stream)
        if (mid := self._link.publish(topic, payload)) is None:
            return False
        if is_first_send:
            self._sent_through = frame_id
        else:
            self._resend_ids.pop(0)
        self._in_flight[self._link.client_count, mid] = frame_id
        self._sent_at[frame_id] = time.monotonic()
        return True

    def take_answer(self, client: int, mid: int, accepted: bool) -> None:
        """Note that the broker has answered a publication, by the number of the link's client and the message id."""
        frame_id = self._in_flight.pop((client, mid), None)
        if frame_id is not None and accepted and self._plan.forget == "puback":
            self._outbox.frames.forget(frame_id)
            self._sent_at.pop(frame_id, None)
            self._note_progress()

    def take_watermark(self, watermark: Committed) -> bool:
        """Forget the frames that a watermark says are durable, of those that have been sent since the start.

        With a key, False if the watermark is not the gateway's, or not newer than every one before. After sqlite3.Error
        nothing is lost.
        """
        if self._watermark_key is not None and not (
            watermark.counter > self._outbox.counter and watermark.is_authentic(self._watermark_key, *self._address)
        ):
            return False
        now = time.monotonic()
        for commit in watermark.streams:
            forgotten_count, missing_ids = self._outbox.frames.forget_committed(
                commit.stream,
                commit.through,
                commit.gaps,
                sent_through=self._sent_through,
                grace_seconds=self._plan.grace_seconds if self._watermark_key is None else 0.0,
            )
            if forgotten_count:
                self._note_progress()
            overdue_ids = [i for i in missing_ids if now - self._sent_at.get(i, -RESEND_SECONDS) >= RESEND_SECONDS / 2]
            self._resend_ids = sorted({*self._resend_ids, *(i for i in overdue_ids if i <= self._sent_through)})
        if self._watermark_key is not None:
            self._outbox.counter = watermark.counter
        if self._probe_end and not self._resend_ids:
            oldest = self._outbox.frames.next(0)
            if oldest is None or oldest[0] > self._probe_end:
                self._send_oldest_again(2 * self._probe_count, latest_time=now - RESEND_SECONDS / 2)
        return True

    def _note_progress(self) -> None:
        self._progress_time = time.monotonic()
        self._patience_seconds = RESEND_SECONDS
        self._sent_at = {i: seconds for i, seconds in self._sent_at.items() if i > self._sent_through - 10 * IN_FLIGHT}

    def _resend_unanswered(self) -> None:
        """Send the oldest frames again if no watermark has covered any for a while; once these are durable, the others.

        The gateway sees a gap by the frames that follow; but no frame follows while a device drains its outbox.
        """
        now = time.monotonic()
        if self._in_flight or self._resend_ids or now - self._progress_time < self._patience_seconds:
            return
        self._progress_time = now
        self._patience_seconds = min(2 * self._patience_seconds, RESEND_SECONDS_MAX)
        self._send_oldest_again(IN_FLIGHT, latest_time=now)

    def _send_oldest_again(self, max_frames: int, latest_time: float) -> None:
        """Queue at most `max_frames` of the oldest frames that were sent up to a time, to be sent again."""
        self._probe_end = frame_id = 0
        while len(self._resend_ids) < max_frames and (frame := self._outbox.frames.next(frame_id)) is not None:
            frame_id = frame[0]
            if frame_id > self._sent_through or self._sent_at.get(frame_id, latest_time) > latest_time:
                break
            self._resend_ids.append(frame_id)
            self._probe_end = frame_id
        self._probe_count = len(self._resend_ids)
