"""Policies of measurements: every field that can be wrong, both forms, and the promise at its boundaries."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from fugu.contract.errors import GuaranteeError, PolicyError
from fugu.contract.frames import MAX_TICK
from fugu.contract.measure_frames import MAX_MEASURE_TICKS
from fugu.contract.measure_policy import MAX_TABLES, MeasurePolicy, sparse_rows
from fugu.contract.measure_table import Staircase, StaircaseNoise, TimedTable, states_in
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policies import AnyPolicy, read_policy
from fugu.contract.policy import Policy
from tests.support.measured import measure_policy
from tests.support.scenes import policy as symbol_policy

Document = dict[str, Any]
POLICY = measure_policy(2, epsilon=0.5)
EXPOSED = NoiseTable(tuple(array("I", [low]) for low in (1, 1, 1, SCALE - 1)), ((0, 0), (1, 1)))


def document(**changes: Any) -> Document:
    """The JSON form with some fields replaced."""
    document: Document = json.loads(POLICY.to_json())
    return document | changes


def read(changed: Document) -> MeasurePolicy:
    return MeasurePolicy.from_json(json.dumps(changed))


def coded(noise: Any, number: int = 1, constraint: int = 0b1111, **changes: int) -> str:
    """A table as a policy carries it."""
    version = changes.get("version", 1)
    return TimedTable(
        version, number, constraint, changes.get("first", 0), changes.get("until", MAX_TICK + 1), noise
    ).text


def test_a_policy_comes_back_and_says_what_it_is() -> None:
    assert MeasurePolicy.from_json(POLICY.to_json()) == POLICY
    assert read_policy(POLICY.to_json()) == POLICY
    document = json.loads(POLICY.to_json())
    assert (document["format"], document["kind"]) == ("fugu/2", "points")


@pytest.mark.parametrize("older", [{"policy_format": 1}, {"policy_format": 2}, {"format": "fugu/1"}, {}])
@pytest.mark.parametrize("kind", [symbol_policy, lambda: POLICY])
def test_a_policy_of_an_older_version_is_refused_in_a_line(older: Document, kind: Callable[[], AnyPolicy]) -> None:
    document = {name: value for name, value in json.loads(kind().to_json()).items() if name != "format"} | older
    with pytest.raises(PolicyError) as refusal:
        read_policy(json.dumps(document))
    assert str(refusal.value) == (
        "not of format fugu/2, as this program's files are: make the policy anew with fugu plan"
    )


@pytest.mark.parametrize(
    "graph",
    [{"complete": True}, {"categories": ["a", 1, "a", 1]}, {"radius": 1.5}, {"transition": True}, {"edges": [[0, 3]]}],
)
def test_every_kind_of_graph_comes_back(graph: Document) -> None:
    policy = measure_policy(2, graph=graph, factor=9)
    again = MeasurePolicy.from_json(policy.to_json())
    assert again == policy
    assert again.measurement == policy.measurement
    again.verify(1.0)
    assert json.loads(policy.to_json())["graph"] == graph


def test_policies_of_symbols_have_no_field_of_the_other_kind() -> None:
    plan = symbol_policy()
    again = read_policy(plan.to_json())
    assert again == plan
    fields = json.loads(plan.to_json())
    assert "coordinates" not in fields
    assert "fallback" not in fields
    assert list(fields) == [
        *("format", "kind", "fleet", "device", "stream", "version", "valid_from", "valid_until", "clock"),
        *("frame_ticks", "discretiser", "missing_share", "useful_for", "table", "chains", "guarantee"),
    ]
    with pytest.raises(PolicyError, match="kind: must be"):
        MeasurePolicy.from_json(plan.to_json())
    with pytest.raises(PolicyError, match="kind: must be"):
        Policy.from_json(POLICY.to_json())


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 100_000, '{"kind": 3}', '{"format": 2}', '{"format": "fugu/2"}', "\x00", "{}"]
)
def test_what_is_no_policy_of_either_kind_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        read_policy(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"kind": "symbols"}, "kind: must be 'points'"),
        ({"frame_ticks": 0}, "frame_ticks: must be at least 1"),
        ({"frame_ticks": MAX_MEASURE_TICKS + 1}, "frame_ticks: must be at most 1024"),
        ({"epsilon": 0.0}, "epsilon: must be above 0"),
        ({"epsilon": 20.5}, "epsilon: must be at most 20"),
        ({"epsilon": "1"}, "epsilon: must be a number"),
        ({"epsilon": True}, "epsilon: must be a number"),
        ({"factor": 0}, "factor: must be at least 1"),
        ({"factor": 1001}, "factor: must be at most 1000"),
        ({"factor": 1.5}, "factor: .*whole number"),
        ({"delta": 1.0}, "delta: must be below 1"),
        ({"delta": -0.1}, "delta: must be at least 0"),
        ({"objective": "luck"}, "objective: "),
        ({"resolution": [0.0, 1.0]}, "resolution.0: must be above 0"),
        ({"resolution": [1.0, 2e9]}, "resolution.1: must be at most 1000000000"),
        ({"resolution": [1.0]}, "coordinates and resolution have different dimensions"),
        ({"coordinates": [[0, 0], [0, 1], [1, 0]]}, r"have \(4, 3, 4, 4\) states"),
        ({"coordinates": [[0, 0], [0, 1], [1, 0], [1]]}, "different dimensions"),
        ({"coordinates": [[0, 0], [0, 1], [1, 0], [1, 1.5]]}, "coordinates.3.1: .*whole number"),
        ({"coordinates": [[0, 0], [0, 1], [1, 0], [1, 65536]]}, "coordinates.3.1: must be below 65536"),
        ({"coordinates": [[0, 0], [0, 1], [1, 0], []]}, "coordinates.3: .*at least 1"),
        ({"coordinates": [[0] * 4] * 4}, "coordinates.0: .*at most 3"),
        ({"initial": [0.25, 0.25, 0.25]}, r"have \(4, 4, 4, 3\) states"),
        ({"initial": [0.25, 0.25, 0.25, 0.3]}, "initial sums to 1.05, not 1"),
        ({"initial": [1.25, 0.25, -0.25, -0.25]}, "initial.0: "),
        ({"transition": [[[0, 1.0]], [[0, 1.0]], [[0, 1.0]]]}, r"have \(4, 4, 3, 4\) states"),
        (
            {"transition": [[[0, 1.0]], [[0, 1.0]], [[0, 1.0]], [[4, 1.0]]]},
            "row 3 names a state twice, or one that does not",
        ),
        ({"transition": [[[0, 1.0]], [[0, 1.0]], [[0, 1.0]], [[1, 0.5], [1, 0.5]]]}, "row 3 names a state twice"),
        ({"transition": [[[0, 1.0]], [[0, 1.0]], [[0, 1.0]], [[0, 0.5]]]}, "row 3 sums to 0.5, not 1"),
        ({"transition": [[[0, 1.0]], [[0, 1.0]], [[0, 1.0]], []]}, "row 3 sums to 0, not 1"),
        (
            {"transition": [[[0, 1.0]], [[0, 1.0]], [[0, 1.0]], [[0, 0.0], [1, 1.0]]]},
            "transition.3.0.1: must be above 0",
        ),
        ({"graph": {}}, "graph"),
        ({"graph": {"complete": False}}, "graph"),
        ({"graph": {"complete": True, "transition": True}}, "graph"),
        ({"graph": {"radius": -1.0}}, "graph"),
        ({"graph": {"edges": [[0, 1, 2]]}}, "graph"),
        ({"graph": {"categories": [True, False, True, False]}}, "graph"),
        ({"stream_loss": {"epsilon": 0.0, "adversary": "ignorant"}}, "stream_loss.epsilon"),
        ({"stream_loss": {"epsilon": 1.0, "adversary": "nobody"}}, "stream_loss.adversary"),
        ({"fallback": ""}, "a table: "),
        ({"fallback": "ü"}, "a table: "),
        ({"fallback": "AAAA"}, "a table: schema 0, expected 8"),
        ({"fallback": coded(EXPOSED, 1, 0)}, "the fallback has number 0"),
        ({"fallback": coded(EXPOSED, 0, 0, version=2)}, "another version"),
        ({"tables": [coded(EXPOSED, 2)]}, "the other tables 1, 2, ... in order"),
        ({"tables": [coded(EXPOSED, 1), coded(EXPOSED, 1)]}, "in order"),
        ({"tables": [coded(EXPOSED, 1, version=2)]}, "another version"),
        ({"tables": [coded(EXPOSED, number) for number in range(1, MAX_TABLES + 2)]}, "tables: .*at most 16"),
        ({"tables": ["x"]}, "a table: "),
        ({"noise": "none"}, "noise: is no key"),
        ({"device": "release"}, "reserved"),
        ({"valid_until": 1, "valid_from": 5}, "valid_until is not after valid_from"),
    ],
)
def test_a_wrong_field_is_refused_in_one_line(changes: Document, text: str) -> None:
    with pytest.raises(PolicyError, match=text) as refusal:
        read(document(**changes))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "field", ["coordinates", "resolution", "transition", "initial", "graph", "epsilon", "factor", "fallback"]
)
def test_a_missing_field_is_refused(field: str) -> None:
    changed = document()
    del changed[field]
    with pytest.raises(PolicyError, match=f"{field}: is missing"):
        read(changed)


def test_both_sides_of_the_ceiling() -> None:
    POLICY.verify(0.5)
    POLICY.verify()
    with pytest.raises(
        GuaranteeError, match=r"epsilon 0\.5 of each point of stream place is above this device's ceiling"
    ):
        POLICY.verify(0.4999)


def test_a_promise_that_the_tables_do_not_keep_is_refused() -> None:
    """The tables were made for 0.5: they keep that and anything weaker, and nothing stronger."""
    read(document(epsilon=0.6)).verify(1.0)
    with pytest.raises(GuaranteeError, match="a fallback table has to protect every pair"):
        read(document(epsilon=0.49)).verify(1.0)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"tables": [coded(EXPOSED)]}, GuaranteeError, "table 1: some point tells"),
        ({"fallback": coded(EXPOSED, 0, 0)}, GuaranteeError, "some point tells two possible states apart"),
        (
            {"tables": [coded(EXPOSED, 1, 0b0111)]},
            PolicyError,
            "table 1 is for a set of states that is never the possible one",
        ),
        ({"tables": [coded(EXPOSED, 1, 0)]}, PolicyError, "table 1 is for a set of states that is never"),
        ({"tables": [coded(EXPOSED, 1, 0b11111)]}, PolicyError, "never"),
        ({"fallback": coded(EXPOSED, 0, 0b1111)}, PolicyError, "for every set of possible states"),
        ({"fallback": coded(EXPOSED, 0, 0, first=1)}, PolicyError, "from tick 0 on"),
        ({"fallback": coded(EXPOSED, 0, 0, until=MAX_TICK)}, PolicyError, "for ever"),
        ({"graph": {"edges": [[0, 9]]}}, PolicyError, r"edge \(0, 9\)"),
        ({"graph": {"categories": ["a"]}}, PolicyError, "1 categories for 4 states"),
    ],
)
def test_what_only_the_tables_show_is_refused(changes: Document, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        read(document(**changes)).verify(1.0)


def test_a_staircase_may_be_a_fallback() -> None:
    square = Staircase(((-1, -1), (1, -1), (1, 1), (-1, 1)), Fraction(61, 100))
    good = StaircaseNoise(0b1111, square, (0, 0), (1, 1))
    read(document(fallback=coded(good, 0, 0))).verify(1.0)
    steep = StaircaseNoise(0b1111, Staircase(square.vertices, Fraction(60, 100)), (0, 0), (1, 1))
    with pytest.raises(GuaranteeError, match="higher than e"):
        read(document(fallback=coded(steep, 0, 0))).verify(1.0)


def test_tables_for_a_walk_that_begins_somewhere_are_for_its_sets() -> None:
    """From a corner: one state, then three, then all four; a table for any of the sets of several is taken."""
    policy = measure_policy(2, start=0, epsilon=0.5)
    assert [states_in(mask) for mask in (0b0001, 0b0111, 0b1111)] == [[0], [0, 1, 2], [0, 1, 2, 3]]
    fields = json.loads(policy.to_json())
    noise = policy.measure_tables[0].noise
    for constraint, good in ((0b0111, True), (0b1111, True), (0b0110, False), (0b1001, False)):
        changed = read(fields | {"tables": [coded(noise, 1, constraint)]})
        _judge(partial(changed.verify, 1.0), good, PolicyError)
    with pytest.raises(GuaranteeError, match="table 1: a table for one possible state protects nothing"):
        read(fields | {"tables": [coded(noise, 1, 0b0001)]}).verify(1.0)


def _judge(what: Callable[[], None], good: bool, error: type[Exception]) -> None:
    if good:
        what()
        return
    with pytest.raises(error):
        what()


def test_sparse_rows_leave_out_what_cannot_happen() -> None:
    assert sparse_rows([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]]) == (((0, 0.5), (2, 0.5)), ((1, 1.0),))
