"""Shares in the sums of a group: a count, a share of noise and a mask, of which only a sum over homes becomes known.

Before a window begins, its masks are drawn and encrypted to the group's helper (`edge_agent.reporter`), and its shares
of noise are drawn. A count begins at share - mask mod 2^64: it is uniform at every moment, and the count itself is
never stored. The masks are forgotten once they are encrypted. Nothing is on the disk before the report is complete. A
share is 0 in most windows, so an earlier look at the masked count, and the report that follows, would reveal the count.

A window is reported if one process, under one policy and one shift, ran from before its first tick to its end, whatever
was observed. After a restart, a new policy, a change of the clock, or without a helper's key, the home is missing from
the sum of the window. None of that depends on a reading. Windows go by wall ticks, and none is reported twice, also
after the clock has gone back.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edge_agent.outbox import Outbox, StoredKey
from edge_agent.plan import StreamPlan
from edge_agent.randomiser import Entropy
from fugu.contract.calendar import DAY
from fugu.contract.compiled import SharedSum
from fugu.contract.envelope import Envelope
from fugu.contract.errors import FrameError, FuguError, Reason
from fugu.contract.group_frames import OpeningKey, Report, SealedMasks, header, pack_numbers, unpack_numbers
from fugu.core.shares import Shares, random_bits
from fugu.core.windows import Secret
from fugu.host.child import Answer, Child, OnAnswer, Queue
from fugu.host.files import write_secret

__all__ = ["Helpers", "StreamSums", "device_key"]

_log = logging.getLogger(__name__)
SEED_BYTES = 32
_AHEAD_US = 600_000_000
"""Masks are drawn at most this long before their window, and not before the window before begins."""
_PATIENCE_SECONDS = 60.0
_WORD = 1 << 64


def device_key(outbox: str | Path) -> bytes:
    """Read the seed of the device's own Ed25519 key, beside the outbox; make it if there is none. Raises FuguError."""
    path = Path(f"{outbox}.key")
    try:
        seed = path.read_bytes()
    except FileNotFoundError:
        seed = os.urandom(SEED_BYTES)
        write_secret(path, seed, for_service=True)
    except OSError as error:
        raise FuguError(f"cannot read {path}: {error.strerror}", Reason.STORAGE) from None
    if len(seed) != SEED_BYTES:
        raise FuguError(
            f"{path} is no key of a device: remove it, and have the new digits admitted by the helper", Reason.STORAGE
        )
    return seed


@dataclass(frozen=True, slots=True)
class _OpeningKey:
    """An opening key that has arrived: its message, the bytes that the helper has signed, and the signature."""

    message: OpeningKey
    signed: bytes
    signature: bytes


class Helpers:
    """The helpers' newest opening keys, and the process that encrypts to them; used from the agent's loop.

    A key is used, and becomes the newest, only after a process has checked the helper's signature. `queue` takes work
    for the loop. Which key is the newest, and since which tick it is known, is stored over a restart.
    """

    def __init__(self, outbox: Outbox, fleet: str, device: str, queue: Queue) -> None:
        self._outbox = outbox
        self._fleet = fleet
        self._device = device
        self._reporter = Child("edge_agent.reporter", "the process that encrypts reports", _PATIENCE_SECONDS, queue)
        self._seed = b""
        self._stored_keys: dict[str, StoredKey | None] = {}
        self._helper_keys: dict[str, bytes] = {}
        self._arrived_keys: dict[str, _OpeningKey] = {}
        self._unchecked: dict[str, _OpeningKey] = {}
        self._opening_keys: dict[str, _OpeningKey] = {}
        self._busy: set[str] = set()
        self._logged_troubles: set[str] = set()

    def follow(self, plans: Sequence[StreamPlan]) -> None:
        """Follow the groups of these plans: check the keys that have arrived for them, and drop other keys.

        Nothing is read, so that nothing fails after plans were stored: `begin_sums` has read which keys are the newest.
        """
        self._helper_keys = {group_sum.name: group_sum.helper for plan in plans for group_sum in plan.sums}
        self._opening_keys = {group: key for group, key in self._opening_keys.items() if group in self._helper_keys}
        self._unchecked |= {group: key for group, key in self._arrived_keys.items() if group in self._helper_keys}
        self._check_keys()

    def begin_sums(self, plan: StreamPlan, entropy: Entropy, shift: int) -> StreamSums:
        """Begin the sums of a stream; call it before `follow`, for each stream.

        FuguError if a window has changed, or the device has no key. sqlite3.Error if the outbox fails.
        """
        self._stored_keys |= {window_sum.name: self._outbox.opening_key(window_sum.name) for window_sum in plan.sums}
        self._seed = self._seed or device_key(self._outbox.path)
        last_numbers = [self._outbox.register_window(plan.stream, window_sum) for window_sum in plan.sums]
        return StreamSums(plan, last_numbers, entropy, self, shift)

    def take_key(self, group: str, payload: bytes) -> bool:
        """Take an opening key that has arrived for a group; False if malformed, for another group, or of many signers.

        The newest to arrive is checked next.
        """
        try:
            envelope = Envelope.decode(payload)
            message = OpeningKey.decode(envelope.payload)
        except FrameError:
            return False
        is_for_group = envelope.kind == "opening-key" and (message.fleet, message.group) == (self._fleet, group)
        if not is_for_group or len(envelope.signatures) != 1:
            return False
        opening_key = _OpeningKey(message, envelope.message, envelope.signatures[0].signature)
        self._arrived_keys[group] = self._unchecked[group] = opening_key
        self._check_keys()
        return True

    def has_key(self, group_sum: SharedSum, tick: int) -> bool:
        """True if the newest key is at most a day, a window and a deadline old at a tick, where a window begins.

        False while a process runs for the group: on a slow machine processes would pile up.
        """
        key, stored_key = self._opening_keys.get(group_sum.name), self._stored_keys.get(group_sum.name)
        if group_sum.name in self._busy or key is None or stored_key is None or stored_key.made != key.message.made:
            return False
        day_ticks = -(-DAY * 1_000_000 // group_sum.period_us)
        return tick - stored_key.tick <= group_sum.length + group_sum.deadline_ticks + day_ticks

    def seal(self, plan: SharedSum, number: int, on_sealed: Callable[[tuple[int, ...], SealedMasks], None]) -> None:
        """Draw and encrypt the masks of a window. The loop then calls `on_sealed` with both, or never if that fails."""
        key = self._opening_keys[plan.name]
        policy_digest, key_digest = plan.digest, key.message.digest
        header_bytes = header(self._fleet, self._device, policy_digest, key_digest, number)

        def take_answer(answer: Answer) -> None:
            masks, member, ciphertext, signature = map(bytes.fromhex, answer.values())
            on_sealed(unpack_numbers(masks), SealedMasks(self._device, key_digest, member, ciphertext, signature))

        self._ask(plan.name, key, header_bytes, plan.counts, take_answer)

    def note_key_tick(self, group: str, tick: int) -> None:
        """Store the tick at which the newest key of a group was first there."""
        key, stored_key = self._opening_keys.get(group), self._stored_keys.get(group)
        if key is not None and (stored_key is None or stored_key.made < key.message.made):
            self._outbox.keep_opening_key(group, StoredKey(key.message.made, tick))
            self._stored_keys[group] = StoredKey(key.message.made, tick)

    def _check_keys(self) -> None:
        """Begin to check waiting keys, one at a time for each group."""
        for group in [group for group in self._unchecked if group in self._helper_keys and group not in self._busy]:
            key = self._unchecked.pop(group)
            if self._is_newer(group, key):
                self._ask(group, key, b"", 0, partial(self._use_key, group, key))

    def _use_key(self, group: str, key: _OpeningKey, _answer: Answer) -> None:
        if self._is_newer(group, key):
            self._opening_keys[group] = key

    def _is_newer(self, group: str, key: _OpeningKey) -> bool:
        """True if a key is newer than the group's key in use, and not older than the newest that was ever used."""
        held_key, stored_key = self._opening_keys.get(group), self._stored_keys.get(group)
        is_newest = held_key is None or held_key.message.made < key.message.made
        return group in self._helper_keys and is_newest and (stored_key is None or stored_key.made <= key.message.made)

    def _ask(self, group: str, key: _OpeningKey, header_bytes: bytes, mask_count: int, on_answer: OnAnswer) -> None:
        self._busy.add(group)
        fields = [self._helper_keys[group], key.signed, key.signature, key.message.key, self._seed, header_bytes]
        request = json.dumps([mask_count, *(field.hex() for field in fields)]).encode()
        self._reporter.ask((), request, partial(self._take_answer, group, on_answer))

    def _take_answer(self, group: str, on_answer: OnAnswer, answer: Answer) -> None:
        self._busy.discard(group)
        if "refused" not in answer:
            on_answer(answer)
        elif (trouble := f"group {group}: {answer['detail']}; nothing is reported") not in self._logged_troubles:
            self._logged_troubles.add(trouble)
            _log.warning("%s", trouble)
        self._check_keys()


class _WindowCounts(Secret):
    """The masked counts of a window under way."""

    __slots__ = ("_counts", "number", "observed", "sealed")
    kind = "share of a sum"

    def __init__(self, number: int, counts: list[int], sealed: SealedMasks) -> None:
        self.number = number
        self._counts = counts
        self.observed = [0] * len(counts)
        self.sealed = sealed

    def add(self, block: int, state_place: int | None) -> None:
        """Count one tick of a block, for a state that is counted or not; the work is the same for all states."""
        self.observed = [tick_count + (index == block) for index, tick_count in enumerate(self.observed)]
        self._counts = [(count + (index == state_place)) % _WORD for index, count in enumerate(self._counts)]

    def take_parts(self) -> bytes:
        """Return the masked counts as bytes, and forget them."""
        count_bytes = pack_numbers(self._counts)
        self._counts = []
        return count_bytes


class _Sum:
    """One sum of a stream: its window under way (`open`), and the masked counts of the next."""

    def __init__(self, plan: SharedSum, last_window: int) -> None:
        self.plan = plan
        self.last_window = last_window
        self.shares = Shares(plan.noise, plan.honest)
        self.asked_window = -1
        self.next: _WindowCounts | None = None
        self.open: _WindowCounts | None = None


class StreamSums:
    """The sums of one stream, from now on: windows that began before are not reported.

    `shift` is how many ticks the numbers are ahead of the wall clock.
    """

    def __init__(
        self, plan: StreamPlan, last_numbers: Sequence[int], entropy: Entropy, helpers: Helpers, shift: int
    ) -> None:
        self._version = plan.version
        self._helpers = helpers
        self._shift = shift
        self._next_wall = 0
        self._bits = random_bits(lambda buffer: entropy(memoryview(buffer)))
        self._sums = [_Sum(sum_plan, number) for sum_plan, number in zip(plan.sums, last_numbers, strict=True)]
        self._ended_windows: list[tuple[_Sum, _WindowCounts]] = []

    def observe(self, tick: int, state: int | None) -> None:
        """Count a tick, later than every tick before, and its state, None if it has none."""
        wall_tick = tick - self._shift
        self._move_to(wall_tick)
        for sum_ in self._sums:
            if sum_.open is not None:
                sum_.open.add(*sum_.plan.count_index_at(wall_tick, state))
        self._next_wall = wall_tick + 1

    def advance(self, tick: int) -> list[Report]:
        """Return the reports of windows that end before `tick`, the next tick of the stream; each once.

        Also ask for the masks of the windows that begin next.
        """
        self._move_to(tick - self._shift)
        ended_windows, self._ended_windows = self._ended_windows, []
        for sum_ in self._sums:
            self._helpers.note_key_tick(sum_.plan.name, tick)
            window_number = max(sum_.plan.window_at(self._next_wall - 1) + 1, sum_.last_window + 1, 0)
            first_tick = sum_.plan.first(window_number)
            lead_ticks = min(sum_.plan.length, -(-_AHEAD_US // sum_.plan.period_us))
            is_due = first_tick - self._next_wall <= lead_ticks and sum_.asked_window < window_number
            if is_due and self._helpers.has_key(sum_.plan, first_tick + self._shift):
                sum_.asked_window = window_number
                self._helpers.seal(sum_.plan, window_number, partial(self._take_masks, sum_, window_number))
        return [self._make_report(sum_, counts) for sum_, counts in ended_windows]

    def _take_masks(self, sum_: _Sum, window_number: int, masks: Sequence[int], sealed: SealedMasks) -> None:
        """Take the masks of a window, unless it has begun."""
        if sum_.plan.first(window_number) >= self._next_wall:
            counts = [(sum_.shares.draw(self._bits) - mask) % _WORD for mask in masks]
            sum_.next = _WindowCounts(window_number, counts, sealed)

    def _move_to(self, wall_tick: int) -> None:
        """Begin and end windows: `wall_tick` is the next tick that may be counted."""
        self._next_wall = wall_tick
        for sum_ in self._sums:
            for _ in range(2):  # the window under way may end, and so may the next
                if sum_.open is not None and sum_.open.number < sum_.plan.window_at(wall_tick):
                    self._ended_windows.append((sum_, sum_.open))
                    sum_.open = None
                if sum_.open is None and sum_.next is not None and sum_.next.number <= sum_.plan.window_at(wall_tick):
                    sum_.open, sum_.next = sum_.next, None

    def _make_report(self, sum_: _Sum, counts: _WindowCounts) -> Report:
        sum_.last_window = counts.number
        head_fields = self._version, sum_.plan.name, -1, counts.number, sum_.plan.digest
        return Report(*head_fields, tuple(counts.observed), counts.take_parts(), counts.sealed)
