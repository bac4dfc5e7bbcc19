"""Learning a class from symbols: what is true of the simulated chains is in it, and noise makes it wide, not narrow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fugu.chains.learning import baum_welch
from fugu.contract.chains import BoundedChains, odds_ratio
from fugu.contract.errors import FuguError
from fugu.contract.frames import SymbolFrame
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.planning.chain_source import file_source
from fugu.privacy.chain_class import ChainClassError
from fugu.privacy.learned_class import LearnedModel, log_ratios, transition_of
from gateway.history.export import export_history
from gateway.history.learning import e_step, joined_sequences, learn_class, read_sequences
from gateway.history.tasks import Group, Source
from tests.support.command import Fugu
from tests.support.histories import ALWAYS, CHAIN, fill_store, symbols_of
from tests.support.scenes import Scene, frames, policy

SLOW = np.array([[0.98, 0.02], [0.04, 0.96]])
FAST = np.array([[0.9, 0.1], [0.2, 0.8]])
TERNARY = np.array([[0.9, 0.06, 0.04], [0.05, 0.85, 0.1], [0.1, 0.1, 0.8]])


def learned(
    folder: Path, devices: int, ticks: int, *chains: NDArray[np.float64], table: NoiseTable | None = None
) -> LearnedModel:
    """Model learned from a fleet whose devices follow some chains in turn."""
    fields = {} if table is None else {"table": table}
    folder.mkdir(exist_ok=True)
    fill_store(folder / "s.sqlite", [f"d{i}" for i in range(devices)], ticks, chains=chains, **fields)
    return learn_class(Source(folder / "s.sqlite", ALWAYS))


def odds(chain: NDArray[np.float64]) -> float:
    return odds_ratio(tuple(map(tuple, chain.tolist())))


@pytest.mark.long
def test_one_chain_is_found_and_its_class_is_little_wider(tmp_path: Path) -> None:
    model = learned(tmp_path, 10, 30_000, CHAIN)
    assert odds(CHAIN) <= model.chains.odds_ratio < 2 * odds(CHAIN)
    width = np.array(model.high) - np.array(model.low)
    assert (np.abs(np.array(model.transition) - CHAIN) < width).all()
    assert (width < 0.02).all()
    assert (model.devices, model.ticks, model.period_seconds) == (10, 300_000, 10.0)
    assert [scale.ticks for scale in model.scales][:2] == [2048, 4096]
    assert min(scale.p_value for scale in model.scales) > 1e-3
    assert (model.since, model.until) == ("2023-11-14T22:13:20Z", "2023-11-18T09:33:20Z")


@pytest.mark.long
def test_it_is_the_chain_that_expectation_maximisation_finds(tmp_path: Path) -> None:
    model = learned(tmp_path, 1, 20_480, CHAIN)
    emission = [[0.75, 0.25], [0.25, 0.75]]
    fields = {"lengths": [2048] * 10, "transition": [[0.8, 0.2], [0.2, 0.8]]}
    wanted = baum_welch(symbols_of(20_480, 0), emission, **fields, iterations=1000, tolerance=1e-12)
    np.testing.assert_allclose(model.transition, wanted.transition, atol=2e-3)  # the first distribution is another


@pytest.mark.long
def test_a_class_covers_devices_that_differ(tmp_path: Path) -> None:
    model = learned(tmp_path, 10, 30_000, SLOW, FAST)
    assert odds(SLOW) <= model.chains.odds_ratio < 8 * odds(SLOW)
    assert max(scale.p_value for scale in model.scales) < 1e-6


@pytest.mark.long
def test_a_class_covers_rates_that_change_with_time(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite", policies=(policy(1, table=NoiseTable.binary(SCALE // 4, SCALE // 4)),))
    parts = [symbols_of(8192, i, (SLOW, FAST)[i % 2]).astype(np.uint8) for i in range(24)]
    for i, part in enumerate(parts):
        scene.record(*(SymbolFrame(1, -1, 8192 * i + at, part[at : at + 4096].tobytes()) for at in (0, 4096)))
    model = learn_class(Source(scene.path, ALWAYS))
    assert odds(SLOW) <= model.chains.odds_ratio < 20 * odds(SLOW)
    assert model.known < odds(SLOW)
    assert model.scales[0].p_value < 1e-6


@pytest.mark.long
def test_fewer_symbols_make_a_wider_class(tmp_path: Path) -> None:
    few, many = (learned(tmp_path / str(ticks), 2, ticks, CHAIN) for ticks in (10_000, 80_000))
    assert few.chains.odds_ratio > 1.2 * many.chains.odds_ratio > odds(CHAIN)


@pytest.mark.long
def test_states_by_the_kind_and_tables_by_the_version(tmp_path: Path) -> None:
    model = learned(tmp_path, 4, 10_000, TERNARY, table=NoiseTable.randomised_response(3, SCALE // 6))
    np.testing.assert_allclose(model.transition, TERNARY, atol=0.03)
    assert odds(TERNARY) <= model.chains.odds_ratio < 3 * odds(TERNARY)


@pytest.mark.long
@pytest.mark.parametrize(
    ("ticks", "table", "why"),
    [
        (3_000, NoiseTable.binary(SCALE // 4, SCALE // 4), "too few to tell whether the chain changes"),
        (20_000, NoiseTable.binary(SCALE * 49 // 100, SCALE * 49 // 100), "ticks are needed"),
        (20_000, NoiseTable.binary(SCALE // 2, SCALE // 2), "do not tell|ticks are needed|never left"),
    ],
)
def test_symbols_that_tell_too_little_make_no_class_and_say_so(
    tmp_path: Path, fugu: Fugu, ticks: int, table: NoiseTable, why: str
) -> None:
    fill_store(tmp_path / "s.sqlite", ["watch"], ticks, table=table)
    done = fugu("gateway", "learn", tmp_path / "s.sqlite", "-o", tmp_path / "class.json", "--json")
    assert done.code == 1
    assert done.err.startswith("fugu: warning: no class: ")
    assert done.json()["chains"] is None
    with pytest.raises(ChainClassError, match=why):
        file_source(tmp_path / "class.json")


@pytest.mark.long
def test_a_plan_is_made_for_a_learned_class(fugu: Fugu, tmp_path: Path) -> None:
    fill_store(tmp_path / "s.sqlite", [f"d{i}" for i in range(4)], 20_000)
    export_history(tmp_path / "s.sqlite", None, ALWAYS, tmp_path / "exported")
    file = tmp_path / "class.json"
    for source in ("exported", "s.sqlite"):
        done = fugu("gateway", "learn", tmp_path / source, "--stream", "hr", "-o", file)
        assert (done.code, done.err) == (0, "")
        assert "Learned from the symbols of stream hr of 4 devices, 80000 ticks" in done.out
    model = LearnedModel.from_json(file.read_bytes())
    names = ("--for", "home/new/hr")
    planned = fugu("plan", "stream", "--model", file, "--epsilon", 2, *names, "-o", tmp_path / "p.json")
    assert (planned.code, planned.err) == (0, "")
    assert "learned from the symbols of stream hr" in planned.out
    source = file_source(file)
    assert isinstance(source.chains, BoundedChains)
    assert source.chains == model.chains
    assert (source.period_seconds, source.warnings) == (10.0, ())
    assert fugu("plan", "window", "--model", file, "--epsilon", 2, "--length", 60).code == 0


@pytest.mark.long
def test_a_spoilt_file_is_refused_in_a_line(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "class.json"
    model = learned(tmp_path, 4, 20_000, CHAIN)
    for field, value in (("states", 3), ("refused", "why"), ("chains", None), ("low", ((0.5,),))):
        file.write_text(model.model_copy(update={field: value}).to_json())
        done = fugu("plan", "stream", "--model", file, "--epsilon", 1)
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert "file of a learned class" in done.err


def test_streams_that_do_not_agree_are_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    scene.record(*frames([100]))
    scene.record(*frames([100]), stream="steps")
    with pytest.raises(FuguError, match="name it with --stream, one of hr, steps"):
        learn_class(Source(scene.path, ALWAYS))
    scene.record(SymbolFrame(3, 99, 100, bytes([0, 1, 2]), bits=2))
    with pytest.raises(FuguError, match="has other states or ticks"):
        learn_class(Source(scene.path, ALWAYS, stream="hr"))


def test_sequences_have_their_tables_whatever_is_taken_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.history.learning.SEQUENCE_TICKS", 16)
    monkeypatch.setattr("gateway.history.tasks._MOST_STREAMS", 1)
    scene = Scene(tmp_path / "s.sqlite")
    scene.record(*frames([20, 30, 7] * 4, gaps=[0, 3, 90], versions=[1, 2]))
    scene.record(*frames([50, 50], seed=2), device="ring")
    parts = [read_sequences(group) for group in Group.all(Source(scene.path, ALWAYS))]
    whole = joined_sequences(parts)
    assert whole.ticks == sum(part.ticks for part in parts) == 20 * 4 + 30 * 4 + 7 * 4 + 100
    chain, distribution = np.array([[0.9, 0.1], [0.3, 0.7]]), np.array([0.5, 0.5])
    at_once = e_step(whole, chain, distribution)
    monkeypatch.setattr("gateway.history.learning._CHUNK", 40)
    for some in (parts, [whole.take([i]) for i in range(len(whole.tables))], [whole]):
        expectations = [e_step(part, chain, distribution) for part in some]
        assert sum(moves.log_likelihood for moves in expectations) == pytest.approx(at_once.log_likelihood, rel=1e-12)
        np.testing.assert_allclose(sum(moves.moves for moves in expectations), at_once.moves, rtol=1e-12)


def test_log_ratios_are_the_chain_in_other_words() -> None:
    np.testing.assert_allclose(transition_of(log_ratios(TERNARY), 3), TERNARY, rtol=1e-14)
