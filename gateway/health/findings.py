"""Everything that can be wrong with a running gateway, declared once, without any I/O.

Health message, metrics, alert rules, page and doctor render `KINDS`; a test compares docs/protocol.md and
deploy/examples/alerts.yml with it. An alarm begins with the first note under its code and name. It ends when nothing
has been noted for the time that its kind says, so that a recurring fault is one alarm. An alarm is never ended by hand.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from fugu.contract.errors import Reason
from fugu.contract.reports import AlarmCode

__all__ = ["KINDS"]


_HOUR = 3600.0
_DAY = 24 * _HOUR
_MALFORMED = (
    *(Reason.MALFORMED, Reason.UNKNOWN_SCHEMA, Reason.WRONG_TYPE, Reason.WRONG_LENGTH, Reason.OUT_OF_RANGE),
    *(Reason.TRAILING_BYTES, Reason.WRONG_KIND, Reason.SYMBOL_OUT_OF_RANGE, Reason.POINT_MISMATCH),
    *(Reason.UNKNOWN_WINDOW, Reason.WINDOW_MISMATCH, Reason.OVERSIZED),
)


class Kind(NamedTuple):
    """A kind of alarm.

    Attributes:
        words: what is wrong.
        advice: what to do.
        holds: seconds without a note after which the alarm ends.
        about: whether the alarm's names are devices, or something else.
        counter: a counter of the gateway; the alarm is noted whenever it grows. '' for none.
        reasons: reasons for which a device's messages are refused; the alarm is noted at each such refusal.
        metric: an expression of the metrics for the alert rule of the finding; '' for the number of its alarms.
        patience: how long the alert rule waits; '' for not at all.
        explained: whether the advice in the health message begins with the detail of the first alarm.
    """

    words: str
    advice: str
    severity: Literal["critical", "warning"] = "warning"
    holds: float = 10.0
    about: Literal["device", "other"] = "other"
    counter: str = ""
    reasons: tuple[Reason, ...] = ()
    metric: str = ""
    patience: str = ""
    explained: bool = False


KINDS = {
    AlarmCode.CONFLICT: Kind(
        "a device has sent two frames that say different things of one tick",
        "there may be two of it: find the copy, and enrol the device anew under another name",
        severity="critical",
        holds=7 * _DAY,
        about="device",
    ),
    AlarmCode.STOPPED: Kind(
        "a device was told to stop, because it contradicted itself",
        "it draws nothing until a newer policy document for it is signed: find the copy first",
        severity="critical",
        about="device",
    ),
    AlarmCode.UNKNOWN_DEVICE: Kind(
        "somebody publishes under a name that no policy knows",
        "give its policy to the gateway, or take its account from the broker",
        holds=_HOUR,
        about="device",
        reasons=(Reason.UNKNOWN_DEVICE,),
    ),
    AlarmCode.POLICY_REFUSED: Kind(
        "a device has refused the newest policy document that it was sent, and keeps the one before",
        "see fugu fleet status for the reason; it keeps the policy before until it is sent another",
        about="device",
    ),
    AlarmCode.FUTURE: Kind(
        "frames are from ticks that have not come",
        "set the device's clock: what it sends is from ticks that have not come",
        holds=_HOUR,
        about="device",
        reasons=(Reason.FROM_THE_FUTURE,),
    ),
    AlarmCode.MALFORMED: Kind(
        "a device sends messages that cannot be read, or do not fit its policy",
        "see its version and policy, and what else publishes under its name; such messages are passed over",
        holds=_HOUR,
        about="device",
        reasons=_MALFORMED,
    ),
    AlarmCode.FLOOD: Kind(
        "more messages come under a device's name than are taken beside those of the others",
        "see what publishes under its name, or take its account from the broker; others go on",
        holds=600.0,
        about="device",
    ),
    AlarmCode.REPEATS: Kind(
        "a device sends what is stored again and again: more than 600 frames a minute",
        "see its log, and what else publishes under its name; it sends what is stored again and again",
        holds=600.0,
        about="device",
    ),
    AlarmCode.SILENT: Kind(
        "a device that used to send frames has sent none for ten minutes, or for three of its frames if that is longer",
        "see whether it runs and reaches the broker: fugu-agent --doctor on the device",
        about="device",
        patience="5m",
    ),
    AlarmCode.RELEASE_REFUSED: Kind(
        "a window was not released: its audience has been told enough, or it cannot be computed",
        "what was refused is not released later: fugu gateway ledger show has what each audience is allowed",
        holds=_DAY,
        explained=True,
    ),
    AlarmCode.STORE: Kind(
        "the store takes nothing",
        "look at the store's disk: devices keep their frames until it takes them",
        severity="critical",
        holds=60.0,
        counter="store_errors",
        metric="increase(fugu_gateway_frames_unstored_total[10m]) > 0",
    ),
    AlarmCode.LEDGER: Kind(
        "the ledger cannot be used",
        "look at the ledger's disk, and run fugu check ledger; releases wait until then",
        severity="critical",
        holds=60.0,
        counter="ledger_errors",
    ),
    AlarmCode.STUCK: Kind(
        "the gateway has not finished a round of work for two minutes",
        "look at the disk and at the gateway's log, then restart the gateway",
        severity="critical",
        metric="fugu_gateway_round_age_seconds > 120",
    ),
    AlarmCode.BROKER: Kind(
        "the gateway has no connection to the broker",
        "see whether the broker runs and is reached: fugu doctor",
        severity="critical",
        metric="fugu_gateway_connected == 0",
        patience="1m",
    ),
    AlarmCode.SHARD: Kind(
        "a shard of the gateway does not run, or has ended and was started again",
        "read the gateway's log: it is started again; its devices keep their frames until then",
        holds=_HOUR,
        counter="shards_restarted",
    ),
    AlarmCode.CERTIFICATE: Kind("a certificate ends within 30 days", "renew it before it ends", holds=60.0),
    AlarmCode.CLOCK: Kind(
        "the gateway signs no time, as its clock may be wrong, or a device says that it is far ahead",
        "set the gateway's clock right; a device that is named then needs fugu-agent set-back",
        severity="critical",
    ),
    AlarmCode.SUBSCRIPTIONS: Kind(
        "the broker has more shared subscriptions than accounts, which take its time",
        "run fugu doctor on the broker's machine, which names the account by the broker's log, and remove the account",
        holds=60.0,
    ),
}
"""By code, in the order in which alarms are shown."""
