"""Names and labels that a terminal would obey, wherever they come in: refused, and never in an error's text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fugu.contract.errors import FuguError, PolicyError, cause
from fugu.contract.measure_policy import CategoryGraph
from fugu.contract.policies import read_policy
from tests.support.measured import measure_policy
from tests.support.scenes import policy

UNPRINTABLE = [
    *("\x1b[31mred\x1b[0m", "a\nb", "\u202eevil", "a\x00", "a\u2066b", "\x9b2J", "\u2028", "\ud800", "a\u00a0b")
]
PRINTABLE = ["a b", "<img src=x onerror=alert(1)>", "Zürich", "睡眠", "__proto__", "🐡"]


def _named(name: str, field: str) -> dict[str, Any]:
    """The JSON form of a policy in which something has a name."""
    document = json.loads((measure_policy(2, epsilon=0.5) if field in ("unit", "category") else policy()).to_json())
    match field:
        case "state":
            document["discretiser"]["states"][0] = name
        case "missing":
            document["discretiser"] |= {"states": ["level 0", "level 1", name], "missing": name}
        case "key":
            document["discretiser"] = {
                "kind": "categories",
                "categories": {name: 0, "on": 1},
                "states": ["off", "on"],
                "missing": None,
            }
        case "unit":
            document["unit"] = name
        case "category":
            document["graph"] = {"categories": [name] * len(document["coordinates"])}
        case "unknown":
            document[name] = 1
    return document


@pytest.mark.parametrize("name", UNPRINTABLE)
@pytest.mark.parametrize("field", ["state", "missing", "key", "unit", "category", "unknown"])
def test_a_policy_with_a_name_that_a_terminal_obeys_is_refused_in_a_printable_line(name: str, field: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy(json.dumps(_named(name, field)))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", PRINTABLE)
def test_any_letters_and_signs_are_names(name: str) -> None:
    read_policy(json.dumps(_named(name, "state")))
    assert CategoryGraph(categories=(name,)).categories == (name,)


def test_an_error_shows_what_it_cannot_print() -> None:
    assert cause(FuguError("no file \x1b[31mhome\u202e")) == r"no file \x1b[31mhome\u202e"
