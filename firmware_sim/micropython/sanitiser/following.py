"""The signed documents that a board follows: policies, roots, the time, and stops; docs/firmware.md has the rules.

An accepted document is stored first and then put in force, between two ticks.
"""

import asyncio
import hashlib
import time

from fugu.core import messages
from fugu.core.loading import JUDGES, release
from fugu.core.trust import RefusedError
from sanitiser.signatures import all_match

_KINDS = ("root", "policy", "stop", "time")
_PASSING = ("not_yet_valid", "storage", "judge")
_RETRY_MS = 60000
_TIME_MS = 3600000


class Following:
    """Documents that a board of a fleet follows; `image` is burnt in, `trusted` was accepted before.

    `version` is that of the policies that run; `now` returns Unix time in seconds. `switch(trusted, policies)` stores
    the trust, then puts the policies in force; policies may be None. `on_progress` is called often while judging.
    `name` and `fleet` are the beginnings of the topics of this device and of the fleet.
    """

    def __init__(self, image, trusted, version: int, now, switch, on_progress, name: str, fleet: str) -> None:
        self.trusted, self.version = trusted, version
        self._image, self._now, self._switch, self._idle = image, now, switch, on_progress
        self._kinds = {
            fleet + "root": "root",
            name + "policy/set": "policy",
            name + "stop": "stop",
            fleet + "time": "time",
        }
        self.topics = list(self._kinds) if trusted.root else []
        self._waiting, self._answered, self._judged = {}, {}, b""
        self._reason = self._detail = ""
        self._refused = 0
        self._arrived = asyncio.Event()
        self._retry_at = self._time_from = None

    def arrived(self, topic: str, payload) -> None:
        """Take a document that has arrived; the newest of each kind counts. None stands for one that is too large."""
        kind = self._kinds.get(topic)
        if kind is None or payload == b"":
            return
        if kind == "time" and self._time_from and time.ticks_diff(time.ticks_ms(), self._time_from) < 0:
            return
        if payload is None:
            self._refuse(kind, b"", RefusedError("malformed", "larger than a board has room for"))
            return
        if self._answered.get(kind) != hashlib.sha256(payload).digest():
            self._waiting[kind] = payload
            self._arrived.set()

    def silent(self, seconds: int):
        """Return why nothing may be drawn at a Unix time in seconds; None if it may."""
        return self.trusted.silent(seconds, self.version)

    def next_status(self, seconds: int) -> bytes:
        """Return the encoded policy status at a Unix time in seconds."""
        stale = self.trusted.stale(seconds, self._image.FRESH_SECONDS)
        return messages.policy_status(
            self.trusted.version, self._judged, self._reason, self._detail[:200], self._refused, stale
        )

    async def run(self, link) -> None:
        """Judge the documents that arrive, for ever."""
        while True:
            try:
                await asyncio.wait_for_ms(self._arrived.wait(), _RETRY_MS // 4)
            except asyncio.TimeoutError:
                pass
            self._arrived.clear()
            for kind in _KINDS:
                payload = self._waiting.pop(kind, None)
                if payload is not None:
                    begin = time.ticks_ms()
                    self._judge(kind, payload)
                    payload = None
                    await asyncio.sleep_ms(3 * time.ticks_diff(time.ticks_ms(), begin))
            if self._retry_at is not None and time.ticks_diff(time.ticks_ms(), self._retry_at) >= 0 and link.connected:
                self._retry_at = None
                try:
                    await link.ask()  # the board keeps no refused documents, so the broker sends them again
                except OSError:
                    pass

    def _verified(self, checks: list) -> bool:
        return all_match(checks, self._idle)

    def _judge(self, kind: str, payload: bytes) -> None:
        name = hashlib.sha256(payload).digest()
        try:
            try:
                from fugu.core.judge import judge

                moment = max(self._now(), self.trusted.time)
                trusted, content = judge(kind, payload, self._image, self.trusted, moment, self._verified)
                judge = policies = None
                if content is not None:
                    release("fugu.core.judge")
                    from fugu.core.derived import accept

                    trusted, policies = accept(content, self._image, self.trusted, self._idle)
                    accept = None
            except RefusedError:
                raise
            except MemoryError:
                raise RefusedError("judge", "the check of a document needs more memory than there is") from None
            except Exception:  # an unexpected error refuses the document
                raise RefusedError("unexpected", "an error that nobody has foreseen") from None
            finally:
                release(*JUDGES)
            if trusted is not None:
                try:
                    self._switch(trusted, policies)
                except OSError:
                    raise RefusedError("storage", "cannot store what was accepted") from None
                self.trusted = trusted
                if policies is not None:
                    self.version = trusted.version
        except RefusedError as error:
            self._refuse(kind, name, error)
            return
        self._answered[kind] = name
        if kind == "time":
            fresh = self._image.FRESH_SECONDS * 500 or _TIME_MS
            self._time_from = time.ticks_add(time.ticks_ms(), min(fresh, _TIME_MS))
        if kind == "root" and trusted is not None:  # keys that were not known may have signed refused documents
            self._answered = {kind: name}
            self._retry_at = time.ticks_ms()
        if kind == "policy":
            self._judged, self._reason, self._detail = name[:8], "", ""

    def _refuse(self, kind: str, name: bytes, error: RefusedError) -> None:
        self._refused += 1
        self._judged, self._reason, self._detail = name[:8], error.reason, error.detail
        if kind == "time":
            self._time_from = time.ticks_add(time.ticks_ms(), _RETRY_MS)
        if error.reason in _PASSING:
            self._retry_at = time.ticks_add(time.ticks_ms(), _RETRY_MS)
        else:
            self._answered[kind] = name
