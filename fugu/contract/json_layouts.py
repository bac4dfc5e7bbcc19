"""Layouts of the payloads that are JSON, as JSON Schema: flat objects, but for health and descriptions.

A message of one number has `value`, `low` and `high`. One of a number for each state, or coordinate, has `value_` and
so on, with its label (or 0, 1, 2) behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from fugu.contract._document import FORMAT_NAME
from fugu.contract.frames import MAX_TICK
from fugu.contract.health import MAX_ADVICE, MAX_COUNT, MAX_NAME, MAX_NAMES, AlarmCode
from fugu.contract.layouts import Schema
from fugu.contract.mechanisms import ADVERSARIES, Mechanism
from fugu.contract.release_frames import Noise, QueryKind
from fugu.contract.topics import NAME_PATTERN
from fugu.contract.window_frames import MAX_WINDOW_TICKS, WINDOW_NAME_PATTERN

__all__ = ["JSON_LAYOUTS"]


def _object(properties: dict[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """An object of these properties; those that end in `_` stand for all whose names begin so, and may be left out."""
    fixed = {name: schema for name, schema in properties.items() if not name.endswith("_")}
    found: Schema = {"type": "object", "properties": fixed}
    found["required"] = [name for name in fixed if name not in set(optional)]
    if begun := {f"^{name}": schema for name, schema in properties.items() if name.endswith("_")}:
        found["patternProperties"] = begun
    return found | {"additionalProperties": False}


def _is(kind: str, about: str = "", **more: Any) -> Schema:
    return {"type": kind, **({"description": about} if about else {}), **more}


def _number(about: str, **more: Any) -> Schema:
    return _is("number", about, **more)


def _whole(low: int, high: int, about: str) -> Schema:
    return _is("integer", about, minimum=low, maximum=high)


def _word(words: Iterable[str], about: str) -> Schema:
    return _is("string", about, enum=[str(word) for word in words])


def _label(about: str = "") -> Schema:
    return _is("string", about, minLength=1, maxLength=64)


def _name(about: str) -> Schema:
    return _is("string", about, pattern=NAME_PATTERN)


def _time(about: str) -> Schema:
    return _is("string", about, format="date-time", pattern="Z$")


def _probability(about: str) -> Schema:
    return _number(about, minimum=0, maximum=1.001)


def _numbers(**about: str) -> dict[str, Schema]:
    """A number of each name, or one of each name and label."""
    plain = {name: _number(text) for name, text in about.items()}
    return plain | {f"{name}_": _number(f"{text[:-1]}, by label.") for name, text in about.items()}


_CONFIDENCE = _number("Of the interval.", exclusiveMinimum=0, exclusiveMaximum=1)
_LABELS = _is("array", "Labels of the states.", items=_label(), minItems=1, maxItems=255, uniqueItems=True)
_TICK = _whole(0, MAX_TICK, "Its number.")
_PROTECTION = _whole(0, 2**16, "The least number of possible states that any one was hidden among; 0: nothing came.")
_EPSILON = _number("What the policy promises of a tick, in nats.", exclusiveMinimum=0)
_PROMISE = {
    "epsilon": _EPSILON,
    "adversary": _word(ADVERSARIES, "Against whom."),
    "useful": _is("boolean", "Whether the plan that made the policy found this worth knowing."),
}
_MEASURED = _PROMISE | {"epsilon": {**_EPSILON, "type": ["number", "null"]}}

_STATE_ESTIMATE = _object(
    {
        "time": _time("Of the newest tick."),
        "since": _time("Of the first one."),
        "tick": _TICK,
        "ticks": _whole(1, MAX_TICK, "How many there are."),
        "state": _label("The most likely one at the newest tick."),
        "probability": _probability("That it is this one."),
        "share_": _probability("Of the state whose label follows: its mean probability over the ticks."),
        "unit": _is("null"),
        **_PROMISE,
    }
)
_PLACE_ESTIMATE = _object(
    {
        "time": _time("Of the tick."),
        "tick": _TICK,
        "latitude": _number("Degrees.", minimum=-90, maximum=90),
        "longitude": _number("Degrees.", minimum=-180, maximum=180),
        "accuracy": _number("Metres: the true place is this near with posterior probability .95.", minimum=0),
        "semi_major": _number("Metres: of an ellipse about the place that holds the true one as likely.", minimum=0),
        "semi_minor": _number("Metres: its other half-axis.", minimum=0),
        "orientation": _number("Of the longer one, degrees clockwise from north.", minimum=0, exclusiveMaximum=180),
        "protection": _PROTECTION,
        **_MEASURED,
    }
)
_VALUE_ESTIMATE = _object(
    {
        "time": _time("Of the tick."),
        "tick": _TICK,
        **_numbers(value="Posterior mean.", low="Its interval of probability .95.", high="Its interval's end."),
        "unit": _is("string", "Of the values.", minLength=1, maxLength=32) | {"type": ["string", "null"]},
        "protection": _PROTECTION,
        **_MEASURED,
    },
    optional=("value", "low", "high"),
)
_WINDOW_COUNT = _object(
    {
        "time": _time("End of the window."),
        "since": _time("Its beginning."),
        "window": _is("string", "Its name in the policy.", pattern=WINDOW_NAME_PATTERN),
        "states": _LABELS,
        **_numbers(value="Ticks in the states, with noise.", low="Its interval.", high="Its interval's end."),
        "confidence": _CONFIDENCE,
        "observed": _whole(1, MAX_WINDOW_TICKS, "Ticks that the device has observed."),
        "unit": {"const": "ticks"},
        **_PROMISE,
    },
    optional=("value", "low", "high"),
)
_RELEASE = _object(
    {
        "time": _time("End of the window."),
        "since": _time("Its beginning."),
        "name": _name("Of the release."),
        "stream": _name("What was counted."),
        "audience": _name("Whom the promise is for."),
        "query": _word(get_args(QueryKind), "What was asked."),
        "states": _LABELS,
        "devices": _whole(1, 2**32 - 1, "Counted together."),
        "first": _whole(0, MAX_TICK, "First tick of the window, by the wall clock."),
        "length": _whole(1, MAX_TICK + 1, "Its number of ticks."),
        "observed": _whole(0, (MAX_TICK + 1) * (2**32 - 1), "Ticks that had a symbol or were counted, of all."),
        **_numbers(
            value="An unbiased estimate.",
            low="Its interval.",
            high="Its interval's end.",
            standard_error="Of randomised response and noise together.",
        ),
        "unit": _word(("ticks", "share"), "Of the values."),
        "confidence": _CONFIDENCE,
        **_PROMISE,
        "epsilon": _number("What the audience is promised, over all releases, in nats.", exclusiveMinimum=0),
        "mechanism": _word(get_args(Mechanism), "By whose rule that is kept."),
        "noise": _word(get_args(Noise), "Who adds the noise."),
        "scale": _is("string", "Of the noise.", pattern="^[1-9][0-9]{0,18}(/[1-9][0-9]{0,18})?$"),
        "charge": _number("What this adds to the loss of each tick, in nats.", minimum=0),
        "entry": _whole(1, 2**62, "Number of its entry in the gateway's ledger."),
        "noisy": {"const": True},
    },
    optional=("value", "low", "high", "standard_error"),
)


def _count(about: str) -> Schema:
    return _whole(0, MAX_COUNT, about)


_ALARM = _object(
    {
        "code": _word(AlarmCode, "What is wrong."),
        "since": _count("When the oldest of them began, in Unix seconds."),
        "count": _count("How often it has happened since."),
        "names": _is("array", "Whose it is.", items={"type": "string", "maxLength": MAX_NAME}, maxItems=MAX_NAMES),
        "others": _count("How many more there are."),
        "advice": _is("string", "What to do.", maxLength=MAX_ADVICE),
    }
)
_HEALTH = _object(
    {
        "format": {"const": FORMAT_NAME},
        "online": _is("boolean", "False is the last will: nothing else is known then."),
        "time": _count("Of this message, in Unix seconds."),
        "since": _count("When the gateway started, in Unix seconds."),
        "devices": _count("That have policies."),
        "heard": _count("Of them, those that have sent a frame since the start."),
        "frames": _count("That were stored since the start."),
        "refused": _count("Messages that could not be used since the start."),
        "alarms": _is("array", "Of each code at most one.", items=_ALARM, maxItems=len(AlarmCode)),
    },
    optional=("time", "since", "devices", "heard", "frames", "refused", "alarms"),
)

JSON_LAYOUTS: dict[str, Schema] = {
    "StateEstimate": _STATE_ESTIMATE,
    "PlaceEstimate": _PLACE_ESTIMATE,
    "ValueEstimate": _VALUE_ESTIMATE,
    "WindowCount": _WINDOW_COUNT,
    "ReleaseFrame": _RELEASE,
    "Health": _HEALTH,
}
"""By the name of a message, as the register of docs/privacy.md has it; descriptions say their own."""
