"""All that can be wrong with a running gateway, declared once; and which of it is so now, without any I/O.

Health message, metrics, alert rules, page and doctor render `KINDS`; a test holds docs/protocol.md and
deploy/examples/alerts.yml to it. An alarm begins with the first note under its code and name, and ends when nothing has
been noted for as long as its code holds, so that what comes and goes is one alarm. It is never ended by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fugu.contract.errors import Reason, printable
from fugu.contract.reports import MAX_NAMES, AlarmCode, HealthAlarm

__all__ = ["KINDS", "Alarm", "Alarms"]

_MOST_NAMES = 200
"""Names of a code that are told apart; whoever may publish can make up more. The rest share one without a name."""
_MOST_DETAIL = 190
_HOUR = 3600.0
_DAY = 24 * _HOUR
_GAUGE = "fugu_gateway_alarms"
_MALFORMED = (
    *(Reason.MALFORMED, Reason.UNKNOWN_SCHEMA, Reason.WRONG_TYPE, Reason.WRONG_LENGTH, Reason.OUT_OF_RANGE),
    *(Reason.TRAILING_BYTES, Reason.WRONG_KIND, Reason.SYMBOL_OUT_OF_RANGE, Reason.POINT_MISMATCH),
    *(Reason.UNKNOWN_WINDOW, Reason.WINDOW_MISMATCH, Reason.OVERSIZED),
)


class Kind(NamedTuple):
    """A kind of alarm.

    Attributes:
        words, advice: what is so, and what to do.
        holds: seconds after which it ends if nothing more is noted.
        about: whether its names are those of devices, or of something else.
        counter: of the gateway; the alarm is noted whenever it grows.
        reasons: of messages of a device; the alarm is noted whenever one is refused for one of them.
        metric: an expression in the metrics that says the same, for its alert rule.
        patience: how long the alert rule waits.
        explained: its advice begins with the detail of the first one.
    """

    severity: Literal["critical", "warning"]
    words: str
    advice: str
    holds: float = 10.0
    about: Literal["device", "other"] = "other"
    counter: str = ""
    reasons: tuple[Reason, ...] = ()
    metric: str = ""
    patience: str = ""
    explained: bool = False


KINDS = {
    AlarmCode.CONFLICT: Kind(
        *("critical", "a device has sent two frames that say different things of one tick"),
        "there may be two of it: find the copy, and enrol the device anew under another name",
        holds=7 * _DAY,
        about="device",
    ),
    AlarmCode.STOPPED: Kind(
        *("critical", "a device was told to stop, because it contradicted itself"),
        "it draws nothing until a newer policy document for it is signed: find the copy first",
        about="device",
    ),
    AlarmCode.UNKNOWN_DEVICE: Kind(
        *("warning", "somebody publishes under a name that no policy knows"),
        "give its policy to the gateway, or take its account from the broker",
        holds=_HOUR,
        about="device",
        reasons=(Reason.UNKNOWN_DEVICE,),
    ),
    AlarmCode.POLICY_REFUSED: Kind(
        *("warning", "a device has refused the newest policy document that it was sent, and keeps the one before"),
        "see fugu fleet status for the reason; it keeps the policy before until it is sent another",
        about="device",
    ),
    AlarmCode.FUTURE: Kind(
        *("warning", "frames are from ticks that have not come"),
        "set the device's clock: what it sends is from ticks that have not come",
        holds=_HOUR,
        about="device",
        reasons=(Reason.FROM_THE_FUTURE,),
    ),
    AlarmCode.MALFORMED: Kind(
        *("warning", "a device sends messages that cannot be read, or do not fit its policy"),
        "see its version and policy, and what else publishes under its name; such messages are passed over",
        holds=_HOUR,
        about="device",
        reasons=_MALFORMED,
    ),
    AlarmCode.FLOOD: Kind(
        *("warning", "more messages come under a device's name than are taken beside those of the others"),
        "see what publishes under its name, or take its account from the broker; others go on",
        holds=600.0,
        about="device",
    ),
    AlarmCode.REPEATS: Kind(
        *("warning", "a device sends what is stored again and again: more than 600 frames a minute"),
        "see its log, and what else publishes under its name; it sends what is stored again and again",
        holds=600.0,
        about="device",
    ),
    AlarmCode.SILENT: Kind(
        "warning",
        "a device that used to send frames has sent none for ten minutes, or for three of its frames if that is longer",
        "see whether it runs and reaches the broker: fugu-agent --doctor on the device",
        about="device",
        patience="5m",
    ),
    AlarmCode.RELEASE_REFUSED: Kind(
        *("warning", "a window was not released: its audience has been told enough, or it cannot be computed"),
        "what was refused is not released later: fugu gateway ledger show has what each audience is allowed",
        holds=_DAY,
        explained=True,
    ),
    AlarmCode.STORE: Kind(
        *("critical", "the store takes nothing"),
        "look at the store's disk: devices keep their frames until it takes them",
        holds=60.0,
        counter="store_errors",
        metric="increase(fugu_gateway_frames_unstored_total[10m]) > 0",
    ),
    AlarmCode.LEDGER: Kind(
        *("critical", "the ledger cannot be used"),
        "look at the ledger's disk, and run fugu check ledger; releases wait until then",
        holds=60.0,
        counter="ledger_errors",
    ),
    AlarmCode.STUCK: Kind(
        *("critical", "the gateway has not finished a round of work for two minutes"),
        "look at the disk and at the gateway's log, then restart the gateway",
        metric="fugu_gateway_round_age_seconds > 120",
    ),
    AlarmCode.BROKER: Kind(
        *("critical", "the gateway has no connection to the broker"),
        "see whether the broker runs and is reached: fugu doctor",
        metric="fugu_gateway_connected == 0",
        patience="1m",
    ),
    AlarmCode.SHARD: Kind(
        *("warning", "a shard of the gateway does not run, or has ended and was started again"),
        "read the gateway's log: it is started again; its devices keep their frames until then",
        holds=_HOUR,
        counter="shards_restarted",
    ),
    AlarmCode.CERTIFICATE: Kind(
        *("warning", "a certificate ends within 30 days"), "renew it before it ends", holds=60.0
    ),
    AlarmCode.CLOCK: Kind(
        *("critical", "the gateway signs no time, as its clock may be wrong, or a device says that it is far ahead"),
        "set the gateway's clock right; a device that is named then needs fugu-agent set-back",
    ),
}
"""By code, in the order in which alarms are told."""


def alert_rules() -> str:
    """Render the rules of deploy/examples/alerts.yml that are alarms."""
    return "\n".join(_rule(code, kind) for code, kind in KINDS.items())


def _rule(code: AlarmCode, kind: Kind) -> str:
    name = "".join(word.capitalize() for word in code.split("-"))
    rule = f"""\
      - alert: Fugu{name}
        expr: {kind.metric}{kind.metric and " or "}{_GAUGE}{{code="{code}"}} > 0
{f"        for: {kind.patience}" if kind.patience else ""}
        labels: {{severity: {kind.severity}}}
        annotations:
          summary: "{kind.words[0].upper()}{kind.words[1:]}"
          description: "{kind.advice[0].upper()}{kind.advice[1:]}"
"""
    return rule.replace("\n\n", "\n")


@dataclass(slots=True)
class Alarm:
    """Something that an operator has to look at; `since` is in Unix seconds, `detail` of the first time.

    `name` is of a device, or what else the code is about; empty for the gateway's own, and for too many names.
    """

    code: AlarmCode
    name: str
    since: float
    count: int
    detail: str
    last: float

    @property
    def advice(self) -> str:
        """Advice, in a sentence."""
        return KINDS[self.code].advice

    def __str__(self) -> str:
        words = [self.code, *([self.name] if self.name else []), *([f"({self.detail})"] if self.detail else [])]
        return f"{' '.join(words)}: {self.advice}"


class Alarms:
    """All alarms of a gateway, of one thread; `seconds` is a clock that only goes forward, `wall` Unix time."""

    def __init__(self, seconds: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._wall = wall
        self._alarms: dict[tuple[AlarmCode, str], Alarm] = {}
        self._names: dict[AlarmCode, int] = {}
        self._begun: list[Alarm] = []

    @staticmethod
    def holds(code: AlarmCode) -> float:
        """Seconds after which an alarm ends if nothing more is noted."""
        return KINDS[code].holds

    def note(self, code: AlarmCode, name: str = "", detail: str = "", *, times: int = 1, age: float = 0.0) -> None:
        """Note what happened `age` seconds ago, or still holds; `times` is 0 for what holds, which counts once."""
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
        """Findings that have begun since the last step, and those that end now."""
        now = self._seconds()
        ended = [alarm for alarm in self._alarms.values() if now - alarm.last > KINDS[alarm.code].holds]
        for alarm in ended:
            del self._alarms[alarm.code, alarm.name]
            self._names[alarm.code] -= 1
        begun, self._begun = self._begun, []
        return begun, ended

    def current(self) -> list[Alarm]:
        """Those that there are, in the order of their codes, then by name."""
        order = list(KINDS)
        return sorted(self._alarms.values(), key=lambda alarm: (order.index(alarm.code), alarm.name))

    def summary(self) -> tuple[HealthAlarm, ...]:
        """The same for the health message: of each code one, with its first few names."""
        found: dict[AlarmCode, list[Alarm]] = {}
        for alarm in self.current():
            found.setdefault(alarm.code, []).append(alarm)
        return tuple(_together(code, alarms) for code, alarms in found.items())


def _together(code: AlarmCode, alarms: Iterable[Alarm]) -> HealthAlarm:
    every = list(alarms)
    names = tuple(alarm.name for alarm in every if alarm.name)
    kind, detail = KINDS[code], printable(every[0].detail)[:_MOST_DETAIL]
    return HealthAlarm(
        code,
        int(min(alarm.since for alarm in every)),
        sum(alarm.count for alarm in every),
        names[:MAX_NAMES],
        len(every) - len(names[:MAX_NAMES]) - (not names),
        f"{detail}. {kind.advice[0].upper()}{kind.advice[1:]}" if kind.explained and detail else kind.advice,
    )
