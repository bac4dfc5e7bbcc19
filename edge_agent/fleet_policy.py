"""The signed documents that an enrolled device follows: root documents, policies, tables, the time, and stops.

Each message is judged in a process of its own while ticks go on. An accepted document is stored first, then put in
force between two ticks. The file of trust is replaced as a whole, so that a crash leaves exactly one document in force.
A refused document changes nothing but the status, which says why.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from edge_agent.plan import Managed, StreamPlan
from fugu.contract.errors import FuguError, Reason, StatusCode, printable
from fugu.contract.frames import JUDGED_BYTES, MAX_DETAIL, MAX_REASON, PolicyStatus
from fugu.contract.topics import topic_of
from fugu.core.trust import unpack
from fugu.host.child import Answer, Child, Queue
from fugu.host.clock import known_synchronised
from fugu.host.files import write_secret
from fugu.host.process import NOTICES

__all__ = ["FleetPolicy"]

JUDGE_SECONDS = 120.0
RETRY_SECONDS = 60.0
TIME_STORED_SECONDS = 3600
"""A signed time is stored only if it is this much newer than the stored one: gateways sign one every few minutes."""
DAY_SECONDS = 86_400
"""How far a signed time may be ahead, as in `fugu.contract.trust`, which a running agent does not load."""
MOST_WAITING = 16
_PASSING = frozenset({Reason.NOT_YET_VALID, Reason.STORAGE, Reason.JUDGE, Reason.CONFIG})
"""Reasons for a refusal that may not hold a minute later, for the same document."""

Switch = Callable[[Sequence[StreamPlan], Callable[[], None]], None]
"""switch(plans, store): check that streams can go on under the plans, call `store`, then put the plans in force."""


class FleetPolicy:
    """Documents that an enrolled device follows.

    A FuguError of `switch` refuses the document. `offer_table` returns whether a stream's table was taken. `now` is the
    device's clock, in seconds of Unix time, and `is_clock_synchronised` tells whether a time server is known to steer
    the wall clock. `refused` counts useless messages by reason.
    """

    def __init__(
        self,
        fleet: str,
        device: str,
        managed: Managed,
        queue: Queue,
        switch: Switch,
        offer_table: Callable[[str, bytes], bool],
        now: Callable[[], float] = time.time,
        is_clock_synchronised: Callable[[], bool] = known_synchronised,
    ) -> None:
        self.managed = managed
        self.trusted = managed.trusted
        self._stored_time = managed.trusted.time
        self._switch = switch
        self._offer_table = offer_table
        self._now = now
        self._is_synchronised = is_clock_synchronised
        self._is_far_ahead = False
        self._status_topic = topic_of("policy_status", fleet, device)
        self._policy_topic = topic_of("policy_set", fleet, device)
        self._kinds = {topic_of("root", fleet): "root", self._policy_topic: "policy", topic_of("time", fleet): "time"}
        self._kinds[topic_of("stop", fleet, device)] = "stop"
        self._kinds |= {topic_of("table", fleet, device, stream): "table" for stream in managed.streams}
        self.topics = tuple(self._kinds)
        self._waiting: dict[str, bytes] = {}
        self._judge = Child("edge_agent.judge", "the check of a document", JUDGE_SECONDS, queue)
        self._is_judging = False
        self._newest_judgement = b"", "", ""  # digest of the document, reason and detail of a refusal
        self._refused_count = 0
        self.refused: Counter[str] = Counter()
        self._retries: dict[str, tuple[float, bytes]] = {}
        self._unsettled: dict[str, bytes] = {}  # by topic: the newest refused policy and the newest stop
        # By topic: digest of the newest judged document, and why it was refused.
        self._answers: dict[str, tuple[bytes, str]] = {}
        self._last_status: PolicyStatus | None = None

    def take_document(self, topic: str, payload: bytes) -> bool:
        """Queue an arrived document for judgement; the newest of each topic counts. False for an unknown topic.

        Root documents are judged first: other documents may be signed by their keys. A judged document that is re-sent
        is judged again only if it is a table, or its refusal may pass. So every other document has its turn.
        """
        if (kind := self._kinds.get(topic)) is None:
            return False
        digest, last_reason = self._answers.get(topic, (b"", ""))
        is_repeated = digest == _digest(payload) and last_reason not in _PASSING
        has_room = kind != "table" or topic in self._waiting or len(self._waiting) < MOST_WAITING
        if is_repeated or not payload:
            self.refused["repeated" if is_repeated else "empty"] += 1
        elif not has_room:
            self.refused["too_many"] += 1
        else:
            self.refused["superseded"] += topic in self._waiting
            self._waiting[topic] = payload
            if kind == "root":
                self._waiting = {topic: self._waiting.pop(topic), **self._waiting}
            self._judge_next()
        return True

    def maintain(self, now: float) -> None:
        """Judge refused documents again if the reason may have passed; `now` is a monotonic time in seconds."""
        for topic, (retry_time, payload) in list(self._retries.items()):
            if now >= retry_time and not self._is_judging:
                self._waiting.setdefault(topic, payload)
                self._retries[topic] = math.inf, payload
                self._judge_next()

    def silence_code(self, seconds: float) -> StatusCode | None:
        """Return the code of a stop or an expired policy at a Unix time in seconds; `None` if drawing is allowed."""
        code = self.trusted.silent(int(seconds), self.trusted.version)
        return None if code is None else StatusCode(code)

    def is_gateway_ahead(self, seconds: float) -> bool:
        """True if a signed time was refused as too far ahead, or the newest is a day ahead of Unix time `seconds`."""
        return self._is_far_ahead or (self.trusted.time > seconds + DAY_SECONDS and self._is_synchronised())

    def next_status(self, seconds: float, is_reconnected: bool) -> tuple[str, bytes] | None:
        """Return topic and bytes of the policy status at a Unix time; `None` if unchanged on the same connection."""
        trusted = self.trusted
        is_stale = trusted.stale(int(seconds), self.managed.fresh_seconds or 0)
        status = PolicyStatus(trusted.version, *self._newest_judgement, self._refused_count, is_stale)
        if status == self._last_status and not is_reconnected:
            return None
        self._last_status = status
        return self._status_topic, status.encode()

    def close(self) -> None:
        """Drop waiting documents, and end the process that judges."""
        self._waiting.clear()
        self._judge.close()

    # Judgement

    def _judge_next(self) -> None:
        """Judge the document that has waited longest, unless another is being judged."""
        if self._is_judging or not self._waiting:
            return
        topic = next(iter(self._waiting))
        payload = self._waiting.pop(topic)
        self._is_judging = True
        kind, now, is_synchronised = self._kinds[topic], int(self._now()), self._is_synchronised()
        now = now if kind == "time" else max(now, self.trusted.time)
        arguments = (self.managed.config, kind, str(now), str(os.getpid()), "sure" if is_synchronised else "unsure")
        self._judge.ask(arguments, payload, lambda answer: self._take_answer(topic, payload, answer))

    def _take_answer(self, topic: str, payload: bytes, answer: Answer) -> None:
        """Take the judge's answer, in the agent's loop."""
        self._is_judging = False
        try:
            if "refused" in answer:
                self._refuse(topic, payload, answer["refused"], answer["detail"])
            else:
                self._accept(topic, payload, answer)
        except FuguError as error:
            self._refuse(topic, payload, error.reason, str(error), "a sensor of this device cannot be opened")
        except sqlite3.Error as error:
            self._refuse(topic, payload, Reason.STORAGE, str(error))
        self._judge_next()

    def _refuse(
        self,
        topic: str,
        payload: bytes,
        reason: str,
        detail: str,
        config_words: str = "this device cannot use its configuration",
    ) -> None:
        self.refused[reason] += 1
        self._is_far_ahead = self._is_far_ahead or reason == Reason.FAR_AHEAD
        kind, digest = self._kinds[topic], _digest(payload)
        if reason in (Reason.CONFIG, Reason.STORAGE):  # it may name files, or the length of a recording
            public_words = config_words if reason == Reason.CONFIG else "cannot store what was accepted"
            public_detail = f"{public_words}: its own log says why"
            if self._newest_judgement[1:] != (reason, public_detail):
                NOTICES.warning("a %s is refused: %s", kind, detail)
            detail = public_detail
        is_repeated = self._answers.get(topic) == (digest, reason)
        self._refused_count += kind != "policy" or not is_repeated
        self._newest_judgement = digest, reason[:MAX_REASON], printable(detail)[:MAX_DETAIL]
        if kind == "policy" and not is_repeated:
            NOTICES.warning("a policy is refused (%s): %s; what is in force stays", *self._newest_judgement[1:])
        if kind in ("policy", "stop"):
            self._unsettled[topic] = payload
        if kind != "table":
            self._answers[topic] = digest, reason
        if kind in ("policy", "root", "stop") and reason in _PASSING:
            self._retries[topic] = time.monotonic() + RETRY_SECONDS, payload
        elif topic in self._retries and self._retries[topic][1] == payload:
            del self._retries[topic]

    def _accept(self, topic: str, payload: bytes, answer: Answer) -> None:
        kind = self._kinds[topic]
        if kind == "table":
            if not self._offer_table(answer["stream"], base64.b64decode(answer["table"])):
                self._refused_count += 1
                self.refused["table"] += 1
            return
        if answer["changes"]:
            running_version = self.trusted.version
            trust_state = unpack(bytes.fromhex(answer["state"]))
            if kind == "stop":  # also if the file of trust is lost, or an older one
                trust_state = self.trusted.with_changes(stopped=max(trust_state.stopped, self.trusted.stopped))
            if trust_state.version < running_version + (kind == "policy"):
                refusal = f"version {running_version} is in force, not in the file of trust"
                self._refuse(topic, payload, Reason.REPLAYED, refusal)
                return
            if kind != "root":  # a new root document resets the time
                trust_state = trust_state.with_changes(time=max(trust_state.time, self.trusted.time))
            stored_time, trust_path, state_bytes = trust_state.time, Path(self.managed.trust), bytes(trust_state.pack())
            if kind == "policy":
                plans = [StreamPlan.of(policy, sensor) for policy, sensor in answer["plans"]]
                self._switch(plans, lambda: write_secret(trust_path, state_bytes))
            elif kind != "time" or trust_state.time >= self._stored_time + TIME_STORED_SECONDS:
                write_secret(trust_path, state_bytes)
            else:
                stored_time = self._stored_time
            self.trusted, self._stored_time = trust_state, stored_time
            if kind == "root":  # documents that its keys may have signed are judged again
                self._answers = {name: judged for name, judged in self._answers.items() if name == self._policy_topic}
                # Keys that were not known yet may have signed these, and a new root document forgets stops.
                self._waiting |= {name: self._waiting.get(name, again) for name, again in self._unsettled.items()}
        self._answers[topic] = _digest(payload), ""
        self._is_far_ahead = self._is_far_ahead and kind not in ("time", "root")
        self._retries.pop(topic, None)
        if kind == "stop":
            self._unsettled[topic] = payload
        if kind == "policy":
            self._newest_judgement = _digest(payload), "", ""
            self._unsettled.pop(topic, None)
            if answer["changes"]:
                NOTICES.info("policy version %d is in force", self.trusted.version)


def _digest(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()[:JUDGED_BYTES]
