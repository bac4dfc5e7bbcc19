"""An enrolled device's dealings with what is signed: policies, tables, the time, and what stops it.

Each message is judged in a process of its own while ticks go on. An accepted document is stored first, then put in
force between two ticks. The file of trust is replaced as a whole, so that a crash leaves exactly one document in force.
What is refused changes nothing but the status, which says why.
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
from typing import Any

from edge_agent.plan import Managed, StreamPlan
from fugu.contract.errors import FuguError, Reason, StatusCode, printable
from fugu.contract.frames import JUDGED_BYTES, MAX_DETAIL, MAX_REASON, PolicyStatus
from fugu.contract.topics import topic_of
from fugu.core.trust import unpack
from fugu.host.child import Child
from fugu.host.clock import known_synchronised
from fugu.host.files import write_secret
from fugu.host.process import NOTICES

__all__ = ["FleetPolicy"]

JUDGE_SECONDS = 120.0
RETRY_SECONDS = 60.0
TIME_STORED_SECONDS = 3600
"""A signed time is on the disk only if it is so much newer than the one there: gateways sign one every few minutes."""
DAY_SECONDS = 86_400
"""By how much a signed time may be ahead, as in `fugu.contract.trust`, which a running agent does not load."""
MOST_WAITING = 16
_PASSING = frozenset({Reason.NOT_YET_VALID, Reason.STORAGE, Reason.JUDGE, Reason.CONFIG})
"""Reasons that may be gone a minute later, with the same document."""

Switch = Callable[[Sequence[StreamPlan], Callable[[], None]], None]
"""switch(plans, store): check that the streams can go on under new plans, call `store`, then put the plans in force."""


class FleetPolicy:
    """Documents that an enrolled device follows.

    FuguErrors of `switch` refuse the document. `offer_table` returns whether a stream's table was taken. `now` is Unix
    time in seconds, by the device's clock, and `is_clock_synchronised` whether that is known to be so. `refused`
    counts useless messages by reason.
    """

    def __init__(
        self,
        fleet: str,
        device: str,
        managed: Managed,
        queue: Callable[[Callable[[], None]], None],
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
        self._sure = is_clock_synchronised
        self._far = False
        self._status_topic = topic_of("policy_status", fleet, device)
        self._policy_topic = topic_of("policy_set", fleet, device)
        self._kinds = {topic_of("root", fleet): "root", self._policy_topic: "policy", topic_of("time", fleet): "time"}
        self._kinds[topic_of("stop", fleet, device)] = "stop"
        self._kinds |= {topic_of("table", fleet, device, stream): "table" for stream in managed.streams}
        self.topics = tuple(self._kinds)
        self._waiting: dict[str, bytes] = {}
        self._judge = Child("edge_agent.judge", "the check of a document", JUDGE_SECONDS, queue)
        self._busy = False
        self._judged = b""
        self._reason = ""
        self._detail = ""
        self._refused = 0
        self.refused: Counter[str] = Counter()
        self._again: dict[str, tuple[float, bytes]] = {}
        self._newest_refused = b""
        self._answers: dict[str, tuple[bytes, str]] = {}  # the newest of each topic, and why it was refused
        self._said: PolicyStatus | None = None

    def arrived(self, topic: str, payload: bytes) -> bool:
        """Take what has arrived; False if it is nothing of ours. The newest of each topic counts.

        Root documents are judged first: what came with them may be signed by their keys. What was judged is not judged
        again when a broker re-sends it: where connections are short, nothing else would have its turn.
        """
        if (kind := self._kinds.get(topic)) is None:
            return False
        digest, last_reason = self._answers.get(topic, (b"", ""))
        is_repeated = digest == _name(payload) and last_reason not in _PASSING
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
            self._next()
        return True

    def maintain(self, now: float) -> None:
        """Look again at documents that were refused for what may have passed; `now` is a monotonic time in seconds."""
        for topic, (due, payload) in list(self._again.items()):
            if now >= due and not self._busy:
                self._waiting.setdefault(topic, payload)
                self._again[topic] = math.inf, payload
                self._next()

    def silent(self, seconds: float) -> StatusCode | None:
        """Why nothing may be drawn, at a Unix time in seconds: the gateway's stop, or an expired policy."""
        code = self.trusted.silent(int(seconds), self.trusted.version)
        return None if code is None else StatusCode(code)

    def ahead(self, seconds: float) -> bool:
        """True if the gateway's time is more than a day ahead of this device's clock, which is synchronised."""
        return self._far or (self.trusted.time > seconds + DAY_SECONDS and self._sure())

    def next_status(self, seconds: float, is_reconnected: bool) -> tuple[str, bytes] | None:
        """Topic and bytes of the status at a Unix time, if it is new or `is_reconnected`."""
        trusted = self.trusted
        is_stale = trusted.stale(int(seconds), self.managed.fresh_seconds or 0)
        status = PolicyStatus(trusted.version, self._judged, self._reason, self._detail, self._refused, is_stale)
        if status == self._said and not is_reconnected:
            return None
        self._said = status
        return self._status_topic, status.encode()

    def close(self) -> None:
        """End what is under way."""
        self._waiting.clear()
        self._judge.close()

    # Judgement

    def _next(self) -> None:
        """Judge what has waited longest, unless something is being judged."""
        if self._busy or not self._waiting:
            return
        topic = next(iter(self._waiting))
        payload = self._waiting.pop(topic)
        self._busy = True
        kind, now, is_synchronised = self._kinds[topic], int(self._now()), self._sure()
        now = now if kind == "time" else max(now, self.trusted.time)
        arguments = (self.managed.config, kind, str(now), str(os.getpid()), "sure" if is_synchronised else "unsure")
        self._judge.ask(arguments, payload, lambda answer: self._decided(topic, payload, answer))

    def _decided(self, topic: str, payload: bytes, answer: dict[str, Any]) -> None:
        """Take the judge's answer, in the agent's loop."""
        self._busy = False
        try:
            if "refused" in answer:
                self._refuse(topic, payload, answer["refused"], answer["detail"])
            else:
                self._accept(topic, payload, answer)
        except FuguError as error:
            self._refuse(topic, payload, error.reason, str(error))
        except sqlite3.Error as error:
            self._refuse(topic, payload, Reason.STORAGE, f"cannot store what was accepted: {error}")
        self._next()

    def _refuse(self, topic: str, payload: bytes, reason: str, detail: str) -> None:
        self.refused[reason] += 1
        self._far = self._far or reason == Reason.FAR_AHEAD
        kind, digest = self._kinds[topic], _name(payload)
        is_repeated = self._answers.get(topic) == (digest, reason)
        self._refused += kind != "policy" or not is_repeated
        self._judged, self._reason, self._detail = digest, reason[:MAX_REASON], printable(detail)[:MAX_DETAIL]
        if kind == "policy":
            if not is_repeated:
                NOTICES.warning("a policy is refused (%s): %s; what is in force stays", self._reason, self._detail)
            self._newest_refused = payload
        if kind != "table":
            self._answers[topic] = digest, reason
        if kind in ("policy", "root") and reason in _PASSING:
            self._again[topic] = time.monotonic() + RETRY_SECONDS, payload
        elif topic in self._again and self._again[topic][1] == payload:
            del self._again[topic]

    def _accept(self, topic: str, payload: bytes, answer: dict[str, Any]) -> None:
        kind = self._kinds[topic]
        if kind == "table":
            if not self._offer_table(answer["stream"], base64.b64decode(answer["table"])):
                self._refused += 1
                self.refused["table"] += 1
            return
        if answer["changes"]:
            running_version = self.trusted.version
            trust_state = unpack(bytes.fromhex(answer["state"]))
            if trust_state.version < running_version + (kind == "policy"):
                refusal = f"version {running_version} is in force, not in the file of trust"
                self._refuse(topic, payload, Reason.REPLAYED, refusal)
                return
            if kind != "root":  # which forgets the time
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
            if kind == "root":  # what is signed by its keys is judged anew
                self._answers = {name: judged for name, judged in self._answers.items() if name == self._policy_topic}
            if kind == "root" and self._newest_refused:  # it may be of keys that were not known yet
                self._waiting.setdefault(self._policy_topic, self._newest_refused)
        self._answers[topic] = _name(payload), ""
        self._far = self._far and kind not in ("time", "root")
        if kind in ("policy", "root"):
            self._again.pop(topic, None)
        if kind == "policy":
            self._judged, self._reason, self._detail = _name(payload), "", ""
            self._newest_refused = b""
            if answer["changes"]:
                NOTICES.info("policy version %d is in force", self.trusted.version)


def _name(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()[:JUDGED_BYTES]
