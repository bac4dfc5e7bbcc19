"""Which alarms there are: decided here from what others note, without any I/O, and by clocks that are passed in.

An alarm begins with the first thing noted under its code and name. It ends when nothing has been noted for as long as
its code holds, so that what comes and goes is one alarm. It is never ended by hand: what it is about has to end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fugu.contract.health import MAX_NAMES, AlarmCode, HealthAlarm

__all__ = ["Alarm", "Alarms"]

_MOST_NAMES = 200
"""Names of a code that are told apart; whoever may publish can make up more. The rest share one without a name."""
_HOUR = 3600.0
_DAY = 24 * _HOUR
_HOLDS = {
    AlarmCode.CONFLICT: 7 * _DAY,
    AlarmCode.STOPPED: 10.0,
    AlarmCode.UNKNOWN_DEVICE: _HOUR,
    AlarmCode.POLICY_REFUSED: 10.0,
    AlarmCode.FUTURE: _HOUR,
    AlarmCode.FLOOD: 600.0,
    AlarmCode.REPEATS: 600.0,
    AlarmCode.SILENT: 10.0,
    AlarmCode.RELEASE_REFUSED: _DAY,
    AlarmCode.STORE: 60.0,
    AlarmCode.LEDGER: 60.0,
    AlarmCode.STUCK: 10.0,
    AlarmCode.BROKER: 10.0,
    AlarmCode.SHARD: _HOUR,
    AlarmCode.CERTIFICATE: 60.0,
}
_ADVICE = {
    AlarmCode.CONFLICT: "there may be two of it: find the copy, and enrol the device anew under another name",
    AlarmCode.STOPPED: "it draws nothing until a newer policy document for it is signed: find the copy first",
    AlarmCode.UNKNOWN_DEVICE: "give its policy to the gateway, or take its account from the broker",
    AlarmCode.POLICY_REFUSED: "fugu fleet status says why; it keeps the policy before until it is sent another",
    AlarmCode.FUTURE: "set the device's clock: what it sends is from ticks that have not come",
    AlarmCode.FLOOD: "see what publishes under its name, or take its account from the broker; others go on",
    AlarmCode.REPEATS: "see its log, and what else publishes under its name; it sends what is stored again and again",
    AlarmCode.SILENT: "see whether it runs and reaches the broker: fugu-agent --doctor on the device",
    AlarmCode.RELEASE_REFUSED: "read the gateway's log: what was refused is not released later",
    AlarmCode.STORE: "look at the store's disk: devices keep their frames until it takes them",
    AlarmCode.LEDGER: "look at the ledger's disk, and run fugu check ledger; releases wait until then",
    AlarmCode.STUCK: "look at the disk and at the gateway's log, then restart the gateway",
    AlarmCode.BROKER: "see whether the broker runs and is reached: fugu doctor",
    AlarmCode.SHARD: "read the gateway's log: it is started again; its devices keep their frames until then",
    AlarmCode.CERTIFICATE: "renew it before it ends",
}
_ORDER = list(AlarmCode)


@dataclass(slots=True)
class Alarm:
    """Something that an operator has to look at.

    Attributes:
        name: whose it is: of a device, or what else the code is about; empty for the gateway's own, and for names that
            were too many.
        since: when it began, in Unix seconds.
        count: how often it has happened since.
        detail: what is known beyond that, in a few words; of the first time.
    """

    code: AlarmCode
    name: str
    since: float
    count: int
    detail: str
    last: float

    @property
    def advice(self) -> str:
        """What to do, in a sentence."""
        return _ADVICE[self.code]

    def __str__(self) -> str:
        """In a line."""
        words = [self.code, *([self.name] if self.name else []), *([f"({self.detail})"] if self.detail else [])]
        return f"{' '.join(words)}: {self.advice}"


class Alarms:
    """All alarms of a gateway; one thread uses it.

    Args:
        seconds: a clock that only goes forward.
        wall: Unix time in seconds.
    """

    def __init__(self, seconds: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._wall = wall
        self._alarms: dict[tuple[AlarmCode, str], Alarm] = {}
        self._names: dict[AlarmCode, int] = {}
        self._begun: list[Alarm] = []

    @staticmethod
    def holds(code: AlarmCode) -> float:
        """Seconds after which an alarm ends if nothing more is noted."""
        return _HOLDS[code]

    def note(self, code: AlarmCode, name: str = "", detail: str = "", *, times: int = 1, age: float = 0.0) -> None:
        """Something has happened, or still holds.

        Args:
            times: how often it has happened; 0 for what holds, which counts once.
            age: seconds ago.
        """
        key = (code, name)
        if (alarm := self._alarms.get(key)) is None:
            if self._names.get(code, 0) >= _MOST_NAMES and name:
                return self.note(code, times=times, age=age)
            self._names[code] = self._names.get(code, 0) + 1
            now = self._seconds() - age
            alarm = self._alarms[key] = Alarm(code, name, self._wall() - age, 0, detail, now)
            self._begun.append(alarm)
            times = max(times, 1)
        alarm.count += times
        alarm.last = max(alarm.last, self._seconds() - age)
        return None

    def step(self) -> tuple[list[Alarm], list[Alarm]]:
        """What has begun since the last step, and what ends now."""
        now = self._seconds()
        ended = [alarm for alarm in self._alarms.values() if now - alarm.last > _HOLDS[alarm.code]]
        for alarm in ended:
            del self._alarms[alarm.code, alarm.name]
            self._names[alarm.code] -= 1
        begun, self._begun = self._begun, []
        return begun, ended

    def current(self) -> list[Alarm]:
        """Those that there are, in the order of their codes, then by name."""
        return sorted(self._alarms.values(), key=lambda alarm: (_ORDER.index(alarm.code), alarm.name))

    def summary(self) -> tuple[HealthAlarm, ...]:
        """The same for the health message: of each code one, with its first few names."""
        found: dict[AlarmCode, list[Alarm]] = {}
        for alarm in self.current():
            found.setdefault(alarm.code, []).append(alarm)
        return tuple(_together(code, alarms) for code, alarms in found.items())


def _together(code: AlarmCode, alarms: Iterable[Alarm]) -> HealthAlarm:
    every = list(alarms)
    names = tuple(alarm.name for alarm in every if alarm.name)
    return HealthAlarm(
        code,
        int(min(alarm.since for alarm in every)),
        sum(alarm.count for alarm in every),
        names[:MAX_NAMES],
        len(every) - len(names[:MAX_NAMES]) - (not names),
        _ADVICE[code],
    )
