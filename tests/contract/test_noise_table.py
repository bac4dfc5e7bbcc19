"""Noise tables and classes of chains: what is refused, and why."""

from __future__ import annotations

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass, odds_ratio
from fugu.contract.errors import Reason
from fugu.contract.measure_table import TimedTable
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import SymbolTable
from tests.support.refusals import refused_for

ONE_HALF = SCALE // 2
JSON: TypeAdapter[NoiseTable] = TypeAdapter(SymbolTable)


def test_a_word_below_the_threshold_is_the_lower_symbol() -> None:
    """Symbol = number of thresholds <= word: the word equal to a threshold is already the next symbol."""
    table = NoiseTable.binary(1, SCALE - 1)
    assert table.rows == ((SCALE - 1,), (SCALE - 1,))
    assert table.weights() == ((SCALE - 1, 1), (SCALE - 1, 1))
    assert table.flip_weights == (1, SCALE - 1)


def test_rows_sum_to_the_number_of_words() -> None:
    table = NoiseTable(rows=((10, 20, 30), (1, 2, SCALE - 1)))
    assert (table.states, table.symbols) == (2, 4)
    assert table.weights() == ((10, 10, 10, SCALE - 30), (1, 1, SCALE - 3, 1))


def test_randomised_response_keeps_with_what_is_left() -> None:
    table = NoiseTable.randomised_response(3, 1000)
    assert table.weights() == ((SCALE - 2000, 1000, 1000), (1000, SCALE - 2000, 1000), (1000, 1000, SCALE - 2000))


@pytest.mark.parametrize(
    "rows",
    [
        ((0,), (ONE_HALF,)),
        ((SCALE,), (ONE_HALF,)),
        ((ONE_HALF,), (-1,)),
        ((ONE_HALF, ONE_HALF), (1, 2)),
        ((2, 1), (1, 2)),
    ],
)
def test_a_symbol_that_a_state_can_never_emit_is_refused(rows: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="would reveal that the state was another"):
        NoiseTable(rows=rows)


@pytest.mark.parametrize("thresholds", [(0, ONE_HALF), (ONE_HALF, 0), (SCALE, 1), (1, SCALE)])
def test_a_flip_probability_of_zero_or_one_is_refused(thresholds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="would reveal that the state was another"):
        NoiseTable.binary(*thresholds)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "at least 2 states"),
        (((1,),), "at least 2 states"),
        (((1,), (1, 2)), "same number"),
        (((), ()), "2 to 255 symbols"),
        ((tuple(range(1, 256)),) * 2, "2 to 255 symbols"),
    ],
)
def test_a_table_of_the_wrong_shape_is_refused(rows: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NoiseTable(rows=rows)


@pytest.mark.parametrize("text", ['{"rows":[[1.0],[2]]}', '{"rows":[["1"],[2]]}', '{"rows":[[true],[2]]}'])
def test_a_threshold_that_is_no_integer_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        JSON.validate_json(text)


def test_a_table_survives_json_and_unknown_fields_are_refused() -> None:
    table = NoiseTable.binary(3, 5)
    assert JSON.validate_json(JSON.dump_json(table)) == table
    with pytest.raises(ValidationError, match="Extra inputs"):
        JSON.validate_json(json.dumps({"rows": [[1], [2]], "seed": 1}))


def test_a_table_of_points_is_no_table_of_a_policy_of_symbols() -> None:
    points = NoiseTable(((ONE_HALF,), (ONE_HALF,)), ((0,), (1,)))
    with pytest.raises(ValidationError, match="a table of points"):
        JSON.validate_python(points)
    assert JSON.validate_python(symbols := NoiseTable(points.rows)) is symbols


def test_a_table_of_symbols_is_no_table_of_a_measured_stream() -> None:
    symbols = NoiseTable(((ONE_HALF,), (ONE_HALF,)))
    with refused_for(Reason.WRONG_LENGTH, match="points"):
        TimedTable(1, 0, 0, 0, 1, symbols)
    assert TimedTable(1, 0, 0, 0, 1, NoiseTable(symbols.rows, ((0,), (1,)))).noise.rows == symbols.rows


def test_symbols_and_points_are_drawn_alike() -> None:
    """The output of a word is the number of thresholds that are not above it, from both sides of each."""
    rows = ((10, 20, SCALE - 1), (1, 2, 3))
    table = NoiseTable(rows, ((0, 0), (0, 1), (1, 0), (1, 1)))
    for state, row in enumerate(rows):
        for output, threshold in enumerate(row):
            assert table.draw(state, threshold - 1) == NoiseTable(rows).draw(state, threshold - 1) == output
            assert table.draw(state, threshold) == NoiseTable(rows).draw(state, threshold) == output + 1
        assert sum(table.row_weights(state)) == SCALE


def test_flip_thresholds_belong_to_tables_of_two_by_two() -> None:
    with pytest.raises(ValueError, match="3x3"):
        _ = NoiseTable.randomised_response(3, 7).flip_weights


@pytest.mark.parametrize("interval", [(0.0, 0.5), (0.5, 1.0), (0.6, 0.5), (-0.1, 0.2)])
def test_a_probability_outside_the_open_interval_is_refused(interval: tuple[float, float]) -> None:
    with pytest.raises(ValidationError, match="q must be an interval"):
        BinaryChains(q=interval, r=(0.1, 0.1))
    with pytest.raises(ValidationError, match="r must be an interval"):
        BinaryChains(q=(0.1, 0.1), r=interval)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(word: str) -> None:
    with pytest.raises(ValidationError):
        BinaryChains.model_validate_json(f'{{"kind":"binary","q":[0.1,{word}],"r":[0.1,0.2]}}')
    with pytest.raises(ValidationError):
        BoundedChains.model_validate_json(f'{{"kind":"bounded","states":3,"odds_ratio":{word}}}')


def test_the_kind_tells_the_class() -> None:
    adapter: TypeAdapter[BinaryChains | BoundedChains] = TypeAdapter(ChainClass)
    binary = adapter.validate_json('{"kind":"binary","q":[0.1,0.2],"r":[0.1,0.2]}')
    bounded = adapter.validate_json('{"kind":"bounded","states":3,"odds_ratio":9.0}')
    assert (binary.states, bounded.states) == (2, 3)
    assert adapter.validate_json(bounded.model_dump_json()) == bounded


def test_the_odds_ratio_is_rounded_up_and_of_the_worst_pair() -> None:
    assert odds_ratio(((0.5, 0.5), (0.5, 0.5))) == 1.0
    exact = 3 * 7 / 1
    ratio = odds_ratio(((0.75, 0.25), (0.125, 0.875)))
    assert exact <= ratio <= exact * (1 + 1e-14)
    three = ((0.5, 0.25, 0.25), (0.25, 0.5, 0.25), (0.125, 0.125, 0.75))
    assert 12.0 <= odds_ratio(three) <= 12.0 * (1 + 1e-14)


def test_a_typical_member_must_be_a_member() -> None:
    rows = ((0.75, 0.25), (0.125, 0.875))
    assert BoundedChains(states=2, odds_ratio=21.0, transition=rows).transition == rows
    with pytest.raises(ValidationError, match=r"above the 20\.9"):
        BoundedChains(states=2, odds_ratio=20.9, transition=rows)
    with pytest.raises(ValidationError, match="2 rows, not 3"):
        BoundedChains(states=3, odds_ratio=99.0, transition=rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (((1.0, 0.0), (0.5, 0.5)), "not positive"),
        (((0.6, 0.5), (0.5, 0.5)), "sums to 1.1"),
        (((0.5, 0.25, 0.25), (0.5, 0.5)), "has 3 entries"),
        (((1 - 1e-9, 1e-320), (0.5, 0.5)), "too large"),
    ],
)
def test_a_transition_without_a_finite_odds_ratio_is_refused(rows: tuple[tuple[float, ...], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        odds_ratio(rows)


def test_the_two_numbers_of_a_table_of_two_states_are_said_as_decimals_and_integers() -> None:
    assert NoiseTable.binary(SCALE // 4, 1).flips == (
        ("rho0 = Pr(symbol 1 | state 0)", "0.2500000000  (1073741824 of 2^32)"),
        ("rho1 = Pr(symbol 0 | state 1)", "0.0000000002  (1 of 2^32)"),
    )
    assert NoiseTable.randomised_response(3, 100).flips == ()
