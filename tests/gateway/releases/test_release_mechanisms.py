"""Each mechanism: named in the frame, charged by its own rule, with noise of its distribution."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fugu.contract.chains import BinaryChains, BoundedChains, ChainClass
from fugu.contract.discretisers import Baseline
from fugu.contract.errors import FuguError
from fugu.contract.noise_table import SCALE, NoiseTable
from fugu.contract.policy import Policy
from fugu.contract.reports import ReleaseFrame
from fugu.contract.windows import ALONE, Mechanism, Window, has_bound
from fugu.privacy.chain_class import ListedChains, MarkovChain, ReleaseClass
from fugu.privacy.quilts import mqm_approx, mqm_exact
from fugu.privacy.window_mechanisms import WindowRequest, window_noise
from gateway.audit.ledger import audit_ledger
from gateway.releases import allowance as allowance_module
from gateway.releases import maker as maker_module
from gateway.releases.allowance import allowance, charge, noise_problem, smallest_scale
from gateway.releases.audit import TrustedPolicies, verify
from gateway.releases.charges import nats, units_above, units_below
from gateway.releases.config import Reader, ReleaseConfig
from gateway.releases.entries import canonical_bytes, digest, inputs_digest
from gateway.releases.inputs import NoisyInputs
from gateway.releases.jobs import jobs
from gateway.releases.maker import LaterError
from gateway.releases.setup import release_now
from gateway.releases.statistics import Query, two_valued_weights
from gateway.releases.worth import mechanism_notes
from gateway.store.engine import LedgerError
from tests.support.ledgers import key
from tests.support.release_scenes import Bench, scheduled, write_config
from tests.support.scenes import OTHER, TERNARY, catalogue, frames, policy, write_policies
from tests.support.soak import only

CHAIN = ((0.9, 0.1), (0.4, 0.6))
CHAINS = BinaryChains(q=(0.1, 0.1), r=(0.4, 0.4))
TABLE = NoiseTable.binary(SCALE // 10, SCALE // 10)
COMPLETE = {"missing_share": 0.0}
"""No tick is without a reading: every symbol is that of a state."""
FLEET = (policy(1, chains=CHAINS, table=TABLE).model_copy(update=COMPLETE),)
NOBODY = '[audiences.public]\nepsilon = 1.0\nadversary = "ignorant"\n'
SCALES: dict[Mechanism, float] = {
    "chain": 2.657798,  # golden: theta1, error .1, epsilon 1
    "mqm-exact": 10.269050,
    "mqm-approx": 18.803169,
    "wasserstein": 3.0,
    "group": 20.0,
}
LENGTH, WINDOWS = 20, 150


def planned(mechanism: str, **more: object) -> str:
    """A release of level 1, in every window or in the first one."""
    alone = {"once": 0} if mechanism in ALONE else {}
    return scheduled(mechanism=mechanism, **alone, **more)


def noise(frame: ReleaseFrame, symbols: bytes) -> int:
    rule = two_valued_weights(TABLE, (1,))
    noisy = (frame.values[0] - rule.b * frame.observed) / rule.a
    assert noisy == pytest.approx(round(noisy), abs=1e-6)
    return round(noisy) - sum(symbols[frame.first : frame.last + 1])


def distribution_of(drawn: list[int], scale: float) -> float:
    """The probability of draws as unlikely as these, if they were discrete Laplace noise of a scale."""
    edge = max(1, round(2.0 * scale))
    bins = np.arange(-edge, edge + 1, max(1, edge // 4))
    p = np.exp(-1.0 / scale)
    values = np.arange(-60 * edge, 60 * edge + 1)
    weights = (1.0 - p) / (1.0 + p) * p ** np.abs(values)
    expected = np.bincount(np.digitize(values, bins), weights, len(bins) + 1) * len(drawn)
    observed = np.bincount(np.digitize(drawn, bins), minlength=len(bins) + 1)
    return float(
        stats.power_divergence(observed, expected / expected.sum() * len(drawn), lambda_="log-likelihood").pvalue
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_policies(tmp_path / "policies", FLEET)
    return tmp_path


@pytest.mark.parametrize("mechanism", only(["mqm-exact", "wasserstein"], SCALES))
def test_a_gateway_releases_by_each_mechanism(tmp_path: Path, mechanism: Mechanism) -> None:
    bench = Bench(tmp_path, planned(mechanism), audiences=NOBODY, fleet=FLEET)
    sequence = frames([LENGTH] * (WINDOWS + 1))
    symbols = b"".join(frame.symbols for frame in sequence)
    released, count = bench.work(*sequence), 1 if mechanism in ALONE else WINDOWS
    assert (bench.counters["releases_refused"], bench.counters["unexpected"]) == (0, 0)
    assert [frame.first for frame in released] == [LENGTH * n for n in range(count)]
    assert {(frame.mechanism, frame.noise) for frame in released} == {(mechanism, "discrete-laplace")}
    scale = Fraction(released[0].scale)
    assert float(scale) == pytest.approx(SCALES[mechanism], rel=2e-6)
    drawn = [noise(frame, symbols) for frame in released]
    if count > 1:
        assert distribution_of(drawn, float(scale)) > 1e-9
        # Of 150 true draws the statistic is 7 of its deviations above what is needed.
        assert distribution_of(drawn, 4.0 * float(scale)) < 1e-9, "the test of the distribution can fail"

    (account,) = bench.ledger.accounts()
    assert account.mechanism == mechanism
    assert {entry.mechanism for entry in bench.ledger.entries()} == {mechanism}
    assert nats(account.spent) == released[0].charge
    assert account.spent <= account.allowance
    chains = (MarkovChain.stationary(CHAIN),)
    rate = {
        "mqm-exact": lambda: 1.0 / mqm_exact(chains, None, 1.0).scale,
        "mqm-approx": lambda: 1.0 / mqm_approx(chains, None, 1.0).scale,
    }.get(mechanism)
    if rate is not None:
        assert account.allowance == units_below(rate() * (1.0 - 1e-9))
        assert scale == smallest_scale([TABLE], 1, account.allowance)
    if mechanism in ALONE:
        assert account.spent == account.allowance == units_below(1.0)
    else:
        assert account.spent == units_above(charge(TABLE, float(1 / scale)))
    assert verify(bench.ledger).problems == ()
    with pytest.raises(LedgerError, match="does not compose" if mechanism in ALONE else "too much"):
        bench.maker.make(bench.jobs[0], LENGTH if mechanism in ALONE else 5)


@pytest.mark.parametrize("mechanism", only(["wasserstein"], ALONE))
def test_noise_that_covers_one_release_has_its_distribution(tmp_path: Path, mechanism: Mechanism) -> None:
    """Eighty audiences, each told once, with draws that are the same at every run."""
    names = [f"a{n}" for n in range(80)]
    audiences = "".join(NOBODY.replace("public", name) for name in names)
    bench = Bench(tmp_path, *(planned(mechanism, name=n, audience=n) for n in names), audiences=audiences, fleet=FLEET)
    object.__setattr__(bench.schedule._releases.maker, "draw", random.Random(5).randrange)
    sequence = frames([LENGTH] * 3)
    bench.work(*sequence)
    symbols = b"".join(frame.symbols for frame in sequence)
    drawn = [noise(frame, symbols) for frame in bench.frames]
    assert len(drawn) == len(names)
    assert distribution_of(drawn, SCALES[mechanism]) > 1e-3
    assert distribution_of(drawn, 2.0 * SCALES[mechanism]) < 1e-3
    assert verify(bench.ledger).problems == ()


def test_one_by_hand_is_the_only_one(folder: Path) -> None:
    bench = Bench(folder, planned("wasserstein"), audiences=NOBODY, fleet=FLEET)
    bench.scene.record(*frames([LENGTH] * 3))
    bench.ledger.close()
    bench.scene.store.close()
    files = {"config": bench.config, "store": folder / "s.sqlite", "policies": folder / "policies"}
    (frame,) = release_now(**files, ledger=folder / "l.sqlite", name="active", first=20)
    assert (frame.mechanism, frame.scale, frame.charge, frame.first) == ("wasserstein", "3", nats(units_below(1.0)), 20)
    bench.scene.open()
    bench.open()
    bench.work()
    assert (len(bench.frames), bench.counters["releases_refused"]) == (1, 1)
    assert verify(bench.ledger).problems == ()


def test_auto_is_the_least_noise_that_composes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(mechanism="auto"), audiences=NOBODY, fleet=FLEET)
    bench.work(*frames([LENGTH] * 3))
    assert {frame.mechanism for frame in bench.frames} == {"chain"}
    assert float(Fraction(bench.frames[0].scale)) == pytest.approx(SCALES["chain"], rel=1e-6)


@pytest.mark.parametrize(
    ("adversary", "words"),
    [
        ("ignorant", "3.336 by chain, 12.84 by mqm-exact, 23.51 by mqm-approx"),
        ("universal", "quilts cover the ignorant adversary and single ticks alone"),
    ],
)
def test_what_auto_compared_is_said_before_anything_is_released(tmp_path: Path, adversary: str, words: str) -> None:
    config = write_config(tmp_path, scheduled(mechanism="auto"), audiences=NOBODY.replace("ignorant", adversary))
    (reason,) = mechanism_notes(jobs(ReleaseConfig.load(config), catalogue(FLEET))).values()
    assert reason.startswith("mechanism chain: ")
    assert words in reason


@pytest.mark.parametrize(("runs", "gaps", "observed"), [([33], [7], 13), ([3, 5, 30], [0, 6, 1], 0)])
def test_a_clock_set_forward_inside_a_window_stretches_no_distribution_of_a_count(
    tmp_path: Path, runs: list[int], gaps: list[int], observed: int
) -> None:
    """Numbers that skip say nothing of the time that has passed; those missing at an end are in the distribution."""
    bench = Bench(tmp_path, planned("wasserstein"), audiences=NOBODY, fleet=FLEET)
    bench.scene.record(*frames(runs, gaps=gaps))
    bench.now += 100.0
    bench.work()
    bench.now += 100.0
    bench.work()
    assert [frame.observed for frame in bench.frames] == [observed] * (observed > 0)
    assert all(frame.scale in ("2", "3") for frame in bench.frames)
    assert verify(bench.ledger).problems == ()


@pytest.mark.parametrize(
    ("mechanism", "change", "problem"),
    [
        ("mqm-exact", "UPDATE allowances SET allowance=2*allowance", "mechanism mqm-exact allows 0.0778"),
        ("mqm-exact", "UPDATE allowances SET mechanism='chain'", "its mechanism was chain and is mqm-exact"),
        ("mqm-exact", "UPDATE accounts SET mechanism='chain'", "its mechanism was mqm-exact and is chain"),
        ("mqm-exact", "UPDATE entries SET mechanism='chain'", "charged by another mechanism than its account"),
        ("mqm-approx", "UPDATE classes SET chains='[]'", "mechanism mqm-approx allows 0"),
        ("mqm-approx", "UPDATE classes SET chains='?'", "its allowance cannot be computed again"),
        ("chain", "UPDATE allowances SET epsilon=0.5", "mechanism chain allows"),
        ("chain", "UPDATE entries SET scale='1'", "holds another release"),
        ("wasserstein", "UPDATE entries SET basis=replace(basis, 'fffff', '1')", ""),
        (
            "wasserstein",
            "UPDATE entries SET basis=replace(basis, '429496', '129496')",
            "its noise has scale 3, and needs 4",
        ),
        (
            "wasserstein",
            "UPDATE entries SET basis=replace(basis, '\"moved\":null', '\"moved\":1')",
            "its noise is for another window",
        ),
        ("wasserstein", "UPDATE entries SET basis='{}'", "its noise cannot be computed again"),
        ("wasserstein", "UPDATE entries SET exclusive=0", "mechanism wasserstein does not compose"),
        ("group", "UPDATE entries SET basis=replace(basis, '20', '2')", "its noise is for another window"),
        ("group", "UPDATE members SET charge=charge-1", "its release states another charge"),
    ],
)
def test_verify_recomputes_by_the_rule_of_each_mechanism(
    tmp_path: Path, mechanism: str, change: str, problem: str
) -> None:
    bench = Bench(tmp_path, planned(mechanism), audiences=NOBODY, fleet=FLEET)
    bench.work(*frames([LENGTH] * 3))
    assert verify(bench.ledger).problems == ()
    bench.ledger._db.execute(change)
    problems = verify(bench.ledger).problems
    assert any(problem in line for line in problems) if problem else problems == (), problems
    assert all("\n" not in problem for problem in problems)


def test_a_question_about_a_state_that_no_policy_has_stops_no_audit(tmp_path: Path) -> None:
    """The question, its digest, the answer of windows alone and the release are all forged together."""
    bench = Bench(tmp_path, planned("wasserstein"), audiences=NOBODY, fleet=FLEET)
    (frame,) = bench.work(*frames([LENGTH] * 3))
    inputs = canonical_bytes({"windows": [[5.0], [4.0], [1.0], LENGTH], "windows_scale": "3"})
    estimates, _ = NoisyInputs.read(json.loads(inputs), {}).answer(Query("count", (2,)), frame.confidence)
    columns = zip(("values", "standard_errors", "low", "high"), estimates, strict=True)
    numbers: dict[str, Any] = {name: (float(column[0]),) for name, column in columns}
    payload = replace(frame, noise="device-windows", states=("level 2",), **numbers).encode()
    with bench.ledger.snapshot() as rows:
        (number, question), *_ = [(n, json.loads(text)) for n, _, text in rows.documents() if "labels" in text]
    question |= {"labels": [*question["labels"], "level 2"], "query": ["count", [2]]}
    text = canonical_bytes(question)
    bench.ledger._db.execute(
        "UPDATE documents SET document=?, digest=? WHERE id=?", (text.decode(), digest(text), number)
    )
    values = (inputs.decode(), inputs_digest(text, frame.first, inputs), payload)
    bench.ledger._db.execute("UPDATE entries SET inputs=?, inputs_digest=?, payload=?, noise='device-windows'", values)
    (problem,) = verify(bench.ledger, policies=TrustedPolicies(FLEET)).problems
    assert problem.startswith("entry 1: cannot be computed again: ")


@pytest.mark.parametrize("mechanism", ["wasserstein", "group"])
def test_what_does_not_compose_is_charged_the_whole_of_epsilon(tmp_path: Path, mechanism: str) -> None:
    """Also where somebody who changed the charge has changed the stored release with it."""
    bench = Bench(tmp_path, planned(mechanism), audiences=NOBODY, fleet=FLEET)
    (frame,) = bench.work(*frames([LENGTH] * 3))
    with bench.ledger.snapshot() as rows:
        (entry,) = rows.entries()
    whole = units_below(frame.epsilon)
    assert noise_problem(entry, frame, whole) == ""
    for other in (whole - 1, whole + 1):
        assert "not charged the whole of epsilon" in noise_problem(entry, frame, other)
    others: list[dict[str, Any]] = [{"length": LENGTH + 1}, *([{"devices": 2}] if mechanism == "wasserstein" else [])]
    for change in others:
        assert "for another window" in noise_problem(entry, replace(frame, **change), whole)


STRONG = NOBODY.replace("ignorant", "informed")


@pytest.mark.parametrize(
    ("release", "audiences", "text"),
    [
        (
            planned("mqm-exact"),
            STRONG,
            "mechanism mqm-exact protects against the ignorant adversary only, and audience",
        ),
        (planned("mqm-approx"), STRONG, "mechanism mqm-approx protects against the ignorant adversary only"),
        (planned("wasserstein"), STRONG, "mechanism wasserstein protects against the ignorant adversary only"),
        (scheduled(mechanism="group"), NOBODY, "does not compose: give once, the first tick of its only window"),
        (planned("group", stride=5), NOBODY, "does not compose: give once, .* and no stride"),
        (planned("group", scale="5"), NOBODY, "takes all of epsilon: leave out scale and share"),
        (scheduled(share=None, once=0), NOBODY, "mechanism chain composes: once is for those that do not"),
        (planned("wasserstein", query="dwell"), NOBODY, "releases one number, and no dwell"),
        (planned("wasserstein", query="histogram", states=[]), NOBODY, "releases one number, and no histogram"),
        (planned("group", audience="site"), NOBODY, "the site sees the symbols, whatever the mechanism"),
        (scheduled(mechanism="entry"), NOBODY, "releases.0.mechanism"),
    ],
)
def test_what_a_mechanism_does_not_cover_is_refused_in_one_line(
    tmp_path: Path, release: str, audiences: str, text: str
) -> None:
    with pytest.raises(FuguError, match=text) as refused:
        ReleaseConfig.load(write_config(tmp_path, release, audiences=audiences))
    assert "\n" not in str(refused.value)


def fleet_of(chains: ChainClass, table: NoiseTable = TABLE, windows: tuple[Window, ...] = ()) -> list[Policy]:
    return [policy(1, chains=chains, table=table, windows=windows).model_copy(update=COMPLETE)]


COUNTS = (Window(name="w", length=10, stride=10, states=(1,), scale="400"),)
SCARCE = policy(1, chains=CHAINS, table=TABLE).model_copy(update={"missing_share": 0.01})
MEAN = Baseline(baseline_ticks=9, lowest=0, highest=9, compare="difference", edges=(0.0,), states=("below", "above"))
WARMING = policy(1, chains=CHAINS, table=TABLE).model_copy(update={**COMPLETE, "discretiser": MEAN})
WHEEL = [[[0.1, 0.0, 0.9], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
"""A part of its state is handed on without loss for a tick: no eigengap, but quilts."""


@pytest.mark.parametrize(
    ("release", "fleet", "text"),
    [
        (
            planned("mqm-exact"),
            fleet_of(BoundedChains(states=2, odds_ratio=4.0)),
            "needs transition matrices, not a bound",
        ),
        (planned("mqm-approx", chains=WHEEL), fleet_of(BoundedChains(states=3, odds_ratio=4.0), TERNARY), "gap is 0"),
        (planned("mqm-exact", chains=WHEEL), fleet_of(CHAINS), "its own chains have 3 states"),
        (planned("wasserstein"), fleet_of(BinaryChains(q=(0.1, 0.2), r=(0.4, 0.4))), "needs chains, not an interval"),
        (
            planned("wasserstein", length=2000),
            fleet_of(CHAINS),
            "the exact distribution of so long a window does not fit",
        ),
        (planned("wasserstein"), fleet_of(CHAINS, windows=COUNTS), "watch/hr releases windows of its own"),
        (
            planned("wasserstein"),
            [policy(1, chains=CHAINS, table=TABLE)],
            "a tick of watch/hr without a reading has no",
        ),
        (planned("wasserstein"), [SCARCE], "Declare a missing state, or, without a baseline, missing_share 0"),
        (planned("wasserstein", states=["above"]), [WARMING], "without a baseline, missing_share 0"),
        (planned("group"), fleet_of(CHAINS, windows=COUNTS), "composes with nothing, and watch/hr releases windows"),
        (
            planned("mqm-exact") + scheduled("more"),
            fleet_of(CHAINS),
            "by mqm-exact and by chain: give them one mechanism",
        ),
        (planned("group") + planned("group", name="more"), fleet_of(CHAINS), "group does not compose with anything"),
        (planned("group") + scheduled("more"), fleet_of(CHAINS), "by group and by chain"),
        (
            planned("wasserstein"),
            fleet_of(BoundedChains(states=3, odds_ratio=4.0), TERNARY),
            "needs transition matrices, not a bound",
        ),
    ],
)
def test_what_the_policies_do_not_cover_is_refused_in_one_line(
    tmp_path: Path, release: str, fleet: list[Policy], text: str
) -> None:
    config = ReleaseConfig.load(write_config(tmp_path, release, audiences=NOBODY))
    with pytest.raises(FuguError, match=text) as refused:
        jobs(config, catalogue(fleet))
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("release")


ROOMS = [[[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]]]


@pytest.mark.parametrize("mechanism", ["mqm-exact", "mqm-approx", "wasserstein"])
def test_a_release_about_three_states_has_chains_of_its_own(tmp_path: Path, mechanism: Mechanism) -> None:
    """Its policies declare odds ratios only, of which these mechanisms know nothing; the ledger names the chains."""
    fleet = fleet_of(BoundedChains(states=3, odds_ratio=60.0), TERNARY)
    bench = Bench(tmp_path, planned(mechanism, chains=ROOMS), audiences=NOBODY, fleet=fleet)
    bench.work(*frames([LENGTH] * 3))
    listed = ListedChains(transitions=tuple(tuple(map(tuple, rows)) for rows in ROOMS))
    (account,) = bench.ledger.accounts()
    assert account.allowance == allowance(listed, 1.0, "ignorant", mechanism)
    assert {frame.mechanism for frame in bench.frames} == {mechanism}
    assert verify(bench.ledger, policies=TrustedPolicies(fleet)).problems == ()
    audit = audit_ledger(bench.ledger)
    assert [stream.wrong for stream in audit.streams] == [False]
    both = Reader(name="anna", audiences=("public", "press"), epsilon=9.0, adversary="ignorant")
    press = NOBODY.replace("public", "press")
    config = ReleaseConfig.load(write_config(tmp_path, planned(mechanism, chains=ROOMS), audiences=NOBODY + press))
    with pytest.raises(FuguError, match="no audience beside public, whose release active about watch/hr has"):
        both.check(config, catalogue(fleet))
    assert both.model_copy(update={"audiences": ("public",)}).check(config, catalogue(fleet))[0].epsilon == 1.0


@pytest.mark.parametrize("mechanism", ["chain", "auto", "group"])
def test_chains_of_a_release_are_for_mechanisms_that_take_them(tmp_path: Path, mechanism: str) -> None:
    with pytest.raises(FuguError, match=f"mechanism {mechanism} takes the classes of policies: no chains"):
        ReleaseConfig.load(write_config(tmp_path, planned(mechanism, chains=ROOMS), audiences=NOBODY))
    with pytest.raises(FuguError, match="every row of transition must sum to 1"):
        ReleaseConfig.load(write_config(tmp_path, planned("mqm-exact", chains=[[[0.5, 0.4], [0.5, 0.5]]])))


def test_symbols_of_two_tables_are_two_numbers(tmp_path: Path) -> None:
    other = policy(2, chains=CHAINS, table=NoiseTable.binary(SCALE // 5, SCALE // 5)).model_copy(update=COMPLETE)
    fleet = (*FLEET, other)
    for mechanism, expected in (("wasserstein", 0), ("group", 1)):
        (tmp_path / mechanism).mkdir()
        bench = Bench(tmp_path / mechanism, planned(mechanism), audiences=NOBODY, fleet=fleet)
        bench.work(*frames([10] * 5, versions=[1, 2]))
        assert (len(bench.frames), bench.counters["releases_refused"]) == (expected, 1 - expected)


def test_a_reader_of_what_does_not_compose_belongs_to_no_other_audience(tmp_path: Path) -> None:
    models = catalogue(FLEET)
    press = NOBODY.replace("public", "press")
    config = ReleaseConfig.load(
        write_config(tmp_path, planned("wasserstein"), scheduled("b", "press"), audiences=NOBODY + press)
    )
    jobs(config, models)
    reader = Reader(name="anna", audiences=("public",), epsilon=1.0, adversary="ignorant")
    assert [bound.epsilon for bound in reader.check(config, models)] == [1.0]
    for other, text in (
        ({"audiences": ("public", "press"), "epsilon": 9.0}, "may belong to no audience beside public, whose release"),
        ({"epsilon": 0.9}, "its limit is 0.9"),
        ({"adversary": "informed"}, "by wasserstein, which has no bound against it"),
    ):
        with pytest.raises(FuguError, match=text):
            reader.model_copy(update=other).check(config, models)


def test_a_release_that_does_not_compose_is_not_forgotten_with_its_configuration(tmp_path: Path) -> None:
    """It was made, and taken out of the file: who read it still may not read another audience's releases."""
    press = NOBODY.replace("public", "press")
    bench = Bench(tmp_path, planned("wasserstein"), audiences=NOBODY + press, fleet=FLEET)
    bench.work(*frames([LENGTH] * 4))
    assert [frame.mechanism for frame in bench.frames] == ["wasserstein"]
    both = Reader(name="anna", audiences=("public", "press"), epsilon=9.0, adversary="ignorant")
    file = {"format": "fugu/2", "fleet": "home", "readers": [both.model_dump(mode="json")]}
    (tmp_path / "readers.json").write_text(json.dumps(file))
    write_config(tmp_path, scheduled("b", "press"), audiences='readers = "readers.json"\n' + NOBODY + press)
    assert both.check(ReleaseConfig.load(bench.config), catalogue(FLEET))
    with pytest.raises(FuguError, match="no audience beside public, which has had a release about watch/hr"):
        bench.reopen()


def test_between_exact_distributions_that_take_long_other_things_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is computed once, and kept."""
    fleet = tuple(FLEET[0].model_copy(update={"device": name}) for name in ("ring", "watch"))
    bench = Bench(tmp_path, planned("wasserstein"), audiences=NOBODY, fleet=fleet)
    for device, gap in (("ring", 1), ("watch", 2)):
        bench.scene.record(*frames([LENGTH * 2], gaps=[gap]), device=device)
    (job,) = bench.jobs
    now, asked = [0.0], list[str]()
    distance = allowance_module._distance

    def slow(chains: ReleaseClass, hits: tuple[int, ...], ticks: int, observed: int) -> Fraction:
        if f"{observed:x}" not in asked:
            asked.append(f"{observed:x}")
            now[0] += 30.0
        return distance(chains, hits, ticks, observed)

    monkeypatch.setattr(allowance_module, "_distance", slow)
    monkeypatch.setattr(maker_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for turn in (1, 2):
        with pytest.raises(LaterError):
            bench.maker.make(job, 0, seconds=1.0)
        assert len(asked) == turn
        assert bench.ledger.newest_entry == 0
    assert bench.maker.make(job, 0, seconds=1.0).number == 1
    assert len(set(asked)) == 2
    assert verify(bench.ledger).problems == ()


def test_every_device_of_a_sum_has_an_account_by_the_rule(tmp_path: Path) -> None:
    other = BinaryChains(q=(0.3, 0.3), r=(0.4, 0.4))
    fleet = (*FLEET, policy(1, device="ring", chains=other, table=TABLE))
    bench = Bench(tmp_path, planned("mqm-approx"), audiences=NOBODY, fleet=fleet)
    for device in ("watch", "ring"):
        bench.scene.record(*frames([LENGTH] * 3), device=device)
    bench.work()
    assert [frame.devices for frame in bench.frames] == [2, 2, 2] or [frame.devices for frame in bench.frames] == [2, 2]
    allowed = {account.key.device: account.allowance for account in bench.ledger.accounts()}
    assert allowed["ring"] > allowed["watch"]
    assert bench.ledger.account(key()).spent <= allowed["watch"]
    assert verify(bench.ledger).problems == ()


def test_the_table_of_the_manual(tmp_path: Path) -> None:
    """The same window under every mechanism, as the plan and the gateway find it."""
    page = (Path(__file__).parents[3] / "docs" / "releases.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| ([\d.]+) \| ([\d.]+) \| (\S+) \| (yes|no) \|$", page, re.MULTILINE)
    assert [row[0] for row in rows] == list(SCALES)
    for name, counted, symbols, against, further in rows:
        mechanism = next(scaled_name for scaled_name in SCALES if scaled_name == name)
        composes = mechanism not in ALONE
        request = WindowRequest(CHAINS, 1.0, None if composes else 100, "count", "ignorant", (1,))
        assert f"{window_noise(request, mechanism).scale:.3f}" == counted
        (tmp_path / name).mkdir()
        bench = Bench(tmp_path / name, planned(mechanism, length=100), audiences=NOBODY, fleet=FLEET)
        bench.work(*frames([60] * 2))
        assert [f"{float(Fraction(frame.scale)):.3f}" for frame in bench.frames] == [symbols]
        assert (against == "all", further == "yes") == (has_bound(mechanism, "universal"), composes)


@pytest.mark.parametrize("change", [{"chains": BinaryChains(q=(0.1, 0.1), r=(0.3, 0.4))}, {"table": OTHER}])
def test_the_noise_of_one_release_is_for_the_policies_of_the_auditor(tmp_path: Path, change: dict[str, Any]) -> None:
    bench = Bench(tmp_path, planned("wasserstein"), audiences=NOBODY, fleet=FLEET)
    bench.work(*frames([LENGTH] * 3))
    assert verify(bench.ledger, policies=TrustedPolicies(FLEET)).problems == ()
    other = TrustedPolicies([FLEET[0].model_copy(update=change)])
    assert "entry 1: its noise is not for the table and the class of chains of watch" in (
        verify(bench.ledger, policies=other).problems
    )
