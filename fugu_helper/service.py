"""The running helper: it answers requests, and makes an opening key each day. Nothing is stored."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fugu.contract.errors import FrameError, FuguError
from fugu.contract.group_frames import MAX_PAGE_BYTES, OpeningRequest
from fugu.contract.topics import topic_of
from fugu.host.child import Answer, run_forked
from fugu.host.process import Notifier, Wake
from fugu.mqtt import Broker, Link
from fugu_helper.members import Members
from fugu_helper.opening import Group, GroupFacts

__all__ = ["Helper", "lock_memory"]

_log = logging.getLogger(__name__)
_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_STEP_SECONDS = 60.0
_ROUND_SECONDS = 1.0
_LOCK_ALL = 1 | 2 | 4  # MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT
_NOT_DUMPABLE = 4  # PR_SET_DUMPABLE


class Helper:
    """A helper, configured by a file. `unix_clock` is its wall clock and `uptime_clock` a monotonic one, in seconds."""

    def __init__(
        self,
        path: Path,
        unix_clock: Callable[[], float] = time.time,
        uptime_clock: Callable[[], float] = lambda: time.clock_gettime(_BOOTTIME),
    ) -> None:
        config = run_forked(partial(_read_config, path), f" while reading {path}", FuguError)()
        root_key = Ed25519PrivateKey.from_private_bytes(Path(config["root"]).read_bytes())
        self._unix, self._uptime = unix_clock, uptime_clock
        self._clock_offset = unix_clock() - uptime_clock()
        self._members = Members(Path(config["members"]))
        self._members.load()
        self._fleet: str = config["fleet"]
        self._groups = {
            documents[0].name: Group(documents, root_key, self._find_member)
            for documents in (list(map(_group_facts, group)) for group in config["groups"])
        }
        self._group_names = {topic_of("group_request", self._fleet, name): name for name in self._groups}
        self._lock = threading.Lock()
        self._wake = Wake()
        self._stopping = False
        self._link = Link(
            Broker(**config["broker"]),
            client_id=f"{self._fleet}-helper",
            subscriptions=tuple(self._group_names),
            max_payload=MAX_PAGE_BYTES,
            on_connected=lambda: self._publish(self._groups.values()),
            on_message=lambda topic, payload, _retained: self._on_request(topic, payload),
        )

    def stop(self) -> None:
        """Ask the helper to end; a signal handler may call this."""
        self._stopping = True
        self._wake.set()

    def run(self, notifier: Notifier | None = None) -> None:
        """Serve until stopped. Raises LinkError for credentials that cannot be read."""
        notifier = notifier or Notifier()
        self._maintain()
        self._link.start()
        notifier.ready()
        _log.info("helper of %s: %d members", ", ".join(self._groups), len(self._members))
        try:
            while not self._stopping:
                notifier.alive(time.monotonic())
                self._link.maintain()
                self._maintain()
                self._wake.wait(_ROUND_SECONDS)
            notifier.stopping()
        finally:
            self._link.stop()

    def _maintain(self) -> None:
        """Make and publish the keys that are due; first drop all keys if the wall clock was set by over a minute."""
        with self._lock:
            offset = self._unix() - self._uptime()
            if abs(clock_step := offset - self._clock_offset) > _STEP_SECONDS:
                _log.warning("the wall clock was set by %+.0f s: all opening keys are dropped", clock_step)
                for group in self._groups.values():
                    group.forget()
            self._clock_offset = offset
            groups = [group for group in self._groups.values() if group.maintain(self._unix(), self._uptime())]
        self._publish(groups)

    def _publish(self, groups: Iterable[Group]) -> None:
        """Publish documents and opening keys of groups, retained; under the lock, so that the newest key comes last."""
        with self._lock:
            for group in groups:
                self._link.publish(topic_of("group_document", self._fleet, group.name), group.document, retain=True)
                if opening_key := group.opening_key:
                    self._link.publish(topic_of("group_key", self._fleet, group.name), opening_key, retain=True)

    def _on_request(self, topic: str, payload: bytes) -> None:
        """Take a page of a request, in the network thread: no other message is read meanwhile, so none piles up."""
        if (group_name := self._group_names.get(topic)) is None:
            return
        try:
            request = OpeningRequest.decode(payload)
        except FrameError:
            return
        with self._lock:
            answer = self._groups[group_name].add_page(request, self._uptime())
        if answer is not None:
            self._link.publish(topic_of("group_answer", self._fleet, group_name), answer)

    def _find_member(self, name: str, public_key: bytes) -> str:
        try:
            return self._members.find(name, public_key)
        except FuguError as error:
            _log.error("%s; nobody is a member until it can be", error)
            return ""


def lock_memory() -> bool:
    """Keep this process's memory off the disk: no swap, no core file. True if the system allows it."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        is_undumpable = libc.prctl(_NOT_DUMPABLE, 0, 0, 0, 0) == 0
        return bool(libc.mlockall(_LOCK_ALL) == 0 and is_undumpable)
    except (OSError, AttributeError):
        return False


def _group_facts(document: dict[str, Any]) -> GroupFacts:
    encoded = {name: bytes.fromhex(document[name]) for name in ("digest", "envelope")}
    return GroupFacts(**{**document, **encoded})


def _read_config(path: Path) -> Answer:
    from fugu_helper.config import config_document  # in the child alone

    return config_document(path)
