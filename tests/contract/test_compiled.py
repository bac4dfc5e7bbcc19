"""Compiled policies: bytes that are read back, bytes that are none, and documents whose two forms differ."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from typing import Any

import pytest

from fugu.contract.chains import JointChains, JointStream
from fugu.contract.classify import place_of_double
from fugu.contract.compiled import AgentPolicy, read_discretiser, read_policy
from fugu.contract.compiler import compile_board_policy, compile_discretiser, compile_policy
from fugu.contract.discretisers import Baseline, Categories, Cells, Thresholds
from fugu.contract.errors import PolicyError
from fugu.contract.fleet_documents import Address, PolicyDocument, check_compiled, compile_document
from fugu.contract.guarantee import Guarantee
from fugu.contract.noise_table import NoiseTable
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.windows import Blocks
from fugu.core.compiled import read_policy as read_board_policy
from fugu.core.leakage import MOST_NATS
from fugu.core.policy import PolicyError as CompiledError
from fugu.core.states import STEPS, UNIT
from tests.support.device_net import CASES
from tests.support.groups import group, member_policy, shared
from tests.support.measured import measure_policy
from tests.support.signing import policy_document

SYMBOLS = CASES["frames of a tick"].policy
JOINT = JointChains(
    streams=(JointStream(name="hr", states=2, rate=3.0), JointStream(name="light", states=3, rate=0.5)),
    period_us=1_000_000,
    shows=tuple((a, b) for a in range(2) for b in range(3)),
    odds_ratio=4.5,
)
POLICIES: dict[str, AnyPolicy] = {
    **{name: case.policy for name, case in CASES.items()},
    "joint": SYMBOLS.model_copy(update={"chains": JOINT}),
    "sum": member_policy("watch", shared()),
    "points": measure_policy(3),
    "for an hour": SYMBOLS.model_copy(update={"valid_from": 5, "valid_until": 3605}),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_compiled_bytes_are_read_back_and_nothing_less_or_more_is(policy: AnyPolicy) -> None:
    data = compile_policy(policy)
    read = read_policy(data)
    assert (read.fleet, read.device, read.stream, read.version) == ("home", "watch", policy.stream, policy.version)
    assert (read.valid_from, read.valid_until or None) == (policy.valid_from, policy.valid_until)
    assert (read.epoch_us, read.period_us) == tuple(vars(policy.clock).values())
    assert (read.frame_ticks, read.states) == (policy.frame_ticks, len(policy.discretiser.states))
    assert read.discretiser == compile_discretiser(policy.discretiser)
    assert vars(read_discretiser(read.discretiser)).items() <= vars(read).items()
    assert read.points == (not isinstance(policy, Policy))
    if isinstance(policy, Policy):
        assert read.rows == [] if policy.table is None else tuple(map(tuple, policy.table.rows)) == tuple(read.rows)
        assert [window.name for window in read.windows] == [window.name for window in policy.windows]
    for size in range(len(data)):
        with pytest.raises(CompiledError):
            read_policy(data[:size])
    with pytest.raises(CompiledError, match="follow the end"):
        read_policy(data + b"\0")
    with pytest.raises(CompiledError, match="another format"):
        read_policy(b"FGA\2" + data[4:])


def test_joint_classes_and_sums_are_whole() -> None:
    joint = read_policy(compile_policy(POLICIES["joint"]))
    assert (joint.members, joint.steps, joint.column) == ([(9, 2)], 1, 0)
    assert joint.shared == (("hr", 2, (3, 1)), ("light", 3, (1, 2)))
    (shared,) = read_policy(compile_policy(POLICIES["sum"])).sums
    document = group()
    assert (shared.name, shared.digest, shared.helper.hex()) == (document.name, document.digest, document.helper)
    assert (shared.start, shared.length, shared.deadline) == (document.start, document.length, document.deadline)
    assert (shared.noise, shared.honest, Fraction(*shared.rate)) == (document.noise, document.honest, document.rate)


def test_bytes_that_somebody_changed_are_refused_or_another_policy() -> None:
    """Nothing but a refusal comes of them, whatever the bytes are."""
    generator = random.Random(7)
    for name in ("hysteresis and windows", "mean of doubles", "places", "profile of the day", "sum", "joint"):
        data = compile_policy(POLICIES[name])
        for _ in range(150):
            changed = bytearray(data)
            for _ in range(generator.choice((1, 1, 2, 8))):
                changed[generator.randrange(4, len(data))] = generator.randrange(256)
            with suppress(CompiledError):
                assert isinstance(read_policy(bytes(changed)), AgentPolicy)


HUGE = 10**400


@pytest.mark.parametrize(
    "discretiser",
    [
        Cells(origin=(0.0, 0.0), step=(1.0, 1.0), cells=((0, 0), (HUGE, 0)), states=("a", "b")),
        Categories(categories={"a" * 2000: 0}, states=("a", "b")),
    ],
)
def test_what_no_device_can_hold_is_refused_in_one_line(discretiser: Any) -> None:
    policy = SYMBOLS.model_copy(update={"discretiser": discretiser})
    with pytest.raises(PolicyError, match=r"^[^\n]+$"):
        compile_policy(policy)


def test_transitions_of_a_zone_beyond_all_time_are_refused() -> None:
    day = CASES["profile of the day"].policy
    blocks = Blocks(zone="UTC", seconds=3600, offsets=((-HUGE, 0), (HUGE, 3600)))
    window = day.windows[0].model_copy(update={"blocks": blocks})
    with pytest.raises(PolicyError, match="too large for a device"):
        compile_policy(day.model_copy(update={"windows": (window,)}))


def test_a_claim_above_the_largest_is_none_on_an_agent_and_refused_for_a_board() -> None:
    def claiming(epsilon: float) -> Policy:
        return SYMBOLS.model_copy(update={"guarantee": Guarantee(epsilon=epsilon, adversary="informed")})

    beyond = claiming(MOST_NATS * 2)
    assert read_policy(compile_policy(beyond)).guarantee[1] == 0
    assert read_policy(compile_policy(claiming(MOST_NATS))).guarantee[1] > 1 << 1500
    with pytest.raises(PolicyError, match="at most 1000"):
        compile_board_policy(beyond)


# Documents


def counting(**fields: Any) -> dict[str, Any]:
    return {"windows": tuple(window.model_copy(update=fields) for window in SYMBOLS.windows)}


LOUD = {
    "table": ("rows.0.0", {"table": NoiseTable.binary(1000, 1000)}),
    "window": ("windows.0.numerator", counting(scale="1/1000")),
    "threshold": ("edges.0", {"discretiser": Thresholds(edges=(72.6,), states=("low", "high"))}),
    "order of states": ("windows.0.places", counting(states=(0,))),
    "claim": ("guarantee.1", {"guarantee": Guarantee(epsilon=0.001, adversary="universal")}),
    "adversary": ("guarantee.0", {"guarantee": Guarantee(epsilon=60.0, adversary="ignorant")}),
    "another stream": ("stream", {"stream": "pulse"}),
    "another version": ("version", {"version": 4}),
    "another fleet": ("fleet", {"fleet": "work"}),
    "another clock": ("epoch_us", {"clock": SYMBOLS.clock.model_copy(update={"epoch_us": 1})}),
    "an end": ("valid_until", {"valid_until": 7}),
}


def lying(json_form: AnyPolicy, compiled: bytes, **fields: Any) -> PolicyDocument:
    """A document whose bytes are those of another policy than its JSON form."""
    honest = policy_document(json_form, version=3, to=Address(device="watch"), **fields)
    return honest.model_copy(update={"compiled": (compiled.hex(),)})


def refused(document: PolicyDocument, stream: str, where: str) -> None:
    with pytest.raises(PolicyError) as caught:
        check_compiled(document)
    assert str(caught.value).startswith(f"the compiled policy of stream {stream} is not its JSON form: {where} is ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("what", LOUD)
def test_a_document_that_is_mild_to_read_and_loud_to_run_is_refused(what: str) -> None:
    where, fields = LOUD[what]
    loud = SYMBOLS.model_copy(update=fields)
    refused(lying(SYMBOLS, compile_policy(loud)), "hr", where)


@pytest.mark.parametrize("what", [what for what in LOUD if what not in ("another version", "another fleet")])
def test_a_document_that_is_loud_to_read_and_mild_to_run_is_refused(what: str) -> None:
    where, fields = LOUD[what]
    loud = SYMBOLS.model_copy(update=fields)
    refused(lying(loud, compile_policy(SYMBOLS)), loud.stream, where)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data[:-1], "cut short"),
        (lambda data: data + b"\0", "follow the end"),
        (lambda data: b"FGA\4" + data[4:], "another format"),
        (lambda data: compile_board_policy(SYMBOLS), "another format"),
        (flipped, "windows_guarantee.2 is 0|out of range"),
    ],
)
def test_bytes_that_are_no_policy_are_refused(change: Callable[[bytes], bytes], why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        check_compiled(lying(SYMBOLS, change(compile_policy(SYMBOLS))))


def test_every_policy_is_compiled_in_its_order_for_agents_and_boards() -> None:
    other = SYMBOLS.model_copy(update={"stream": "pulse"})
    document = policy_document(SYMBOLS, other, version=3)
    assert check_compiled(document) == (compile_policy(SYMBOLS), compile_policy(other))
    for compiled in ((), document.compiled[:1], document.compiled * 2):
        with pytest.raises(PolicyError, match=f"^{len(compiled)} compiled policies for the 2 of the document"):
            check_compiled(document.model_copy(update={"compiled": compiled}))
    with pytest.raises(PolicyError, match=r"stream hr .* stream is 'pulse', and 'hr'"):
        check_compiled(document.model_copy(update={"compiled": document.compiled[::-1]}))
    board = compile_board_policy(SYMBOLS).hex(), compile_board_policy(other).hex()
    assert check_compiled(document.model_copy(update={"boards": board})) == check_compiled(document)
    with pytest.raises(PolicyError, match="1 compiled policies for the 2"):
        check_compiled(document.model_copy(update={"boards": board[:1]}))
    loud = compile_board_policy(other.model_copy(update=LOUD["table"][1])).hex()
    with pytest.raises(PolicyError, match=r"stream pulse .* rows\.0\.0 is"):
        check_compiled(document.model_copy(update={"boards": (board[0], loud)}))


def test_a_document_for_everyone_names_nobody() -> None:
    document = policy_document(SYMBOLS, version=3, to=Address(everyone=True))
    (compiled,) = check_compiled(document)
    assert read_policy(compiled).device == "device"
    assert compile_document(document) == document


def test_a_grid_that_is_not_on_the_earth_is_refused() -> None:
    data = CASES["places"].policy
    compiled = compile_discretiser(data.discretiser)
    at = compiled.index(struct.pack(">d", 48.0))
    for wrong in (float("nan"), float("inf"), 181.0):
        with pytest.raises(CompiledError, match="not on the earth"):
            read_discretiser(compiled[:at] + struct.pack(">d", wrong) + compiled[at + 8 :])


def test_what_the_reader_alone_refuses() -> None:
    """No policy in its JSON form can be compiled to these."""
    table = compile_policy(SYMBOLS.model_copy(update={"table": NoiseTable(((7, 9), (7, 9)))}))
    at = table.index(struct.pack(">II", 7, 9))
    for row in ((7, 7), (9, 7), (0, 9)):
        with pytest.raises(CompiledError, match="can never emit"):
            read_policy(table[:at] + struct.pack(">II", *row) + table[at + 8 :])
    edges = compile_discretiser(CASES["7 symbols of 3 states"].policy.discretiser)
    first, second = struct.pack(">q", place_of_double(60.0)), struct.pack(">q", place_of_double(80.0))
    with pytest.raises(CompiledError, match="do not increase"):
        read_discretiser(edges.replace(first + second, first + struct.pack(">q", place_of_double(60.0) - 1)))
    day = compile_policy(CASES["profile of the day"].policy)
    at = day.index(struct.pack(">qi", 99_000, 7200))
    for since in (0, -1, 9_000_000):
        with pytest.raises(CompiledError, match="do not increase"):
            read_policy(day[:at] + struct.pack(">q", since) + day[at + 8 :])


def test_a_reading_on_an_edge_is_above_it() -> None:
    on_edge = SYMBOLS.model_copy(update={"discretiser": Thresholds(edges=(72.0,), states=("low", "high"))})
    assert read_board_policy(compile_board_policy(on_edge)).edges == (72,)
    assert read_board_policy(compile_board_policy(on_edge, Fraction(1, 10))).edges == (720,)
    assert read_policy(compile_policy(on_edge)).edges == (place_of_double(72.0),)


def test_the_units_below_a_range_are_the_nearest() -> None:
    for lowest in (0.1, 3.1, 22.7):
        mean = Baseline(baseline_ticks=5, lowest=lowest, highest=200.0, compare="multiple", edges=(1.1,))
        span = Fraction(200) - Fraction(lowest)
        assert read_discretiser(compile_discretiser(mean)).zero == round(Fraction(lowest) * STEPS * UNIT / span)
