"""Publications are computed again from the ledger alone, and all that does not fit is found."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.noise_table import SCALE, NoiseTable
from gateway.releases.audit import TrustedPolicies, verify
from gateway.releases.entries import canonical_bytes, digest, inputs_digest
from gateway.releases.inputs import canonical_table, read_table
from gateway.releases.ledger import Ledger
from gateway.releases.statistics import Tally
from gateway.store.engine import LedgerError
from tests.support.ledgers import inputs_of
from tests.support.release_scenes import Bench, scheduled
from tests.support.scenes import frames, policy

ALL = (
    scheduled(scale="20"),
    scheduled("share", query="frequency", scale="20"),
    scheduled("all", query="histogram", states=[], scale="20"),
    scheduled("stays", query="dwell", scale="2"),
)
LAVISH = '[audiences.public]\nepsilon = 50.0\nadversary = "informed"\n'


def bench_of(folder: Path, *releases: str, windows: int = 3) -> Bench:
    """Releases of two devices with different tables; afterwards, their symbols are gone."""
    bench = Bench(folder, *releases, audiences=LAVISH)
    for device in ("watch", "ring"):
        bench.scene.record(*frames([20] * (windows + 1)), device=device)
    bench.work()
    assert len(bench.frames) == windows * len(releases)
    for device in ("watch", "ring"):
        with bench.scene.store.transaction():
            bench.scene.store.aged.forget(device)
    return bench


def change_inputs(ledger: Ledger, number: int, change: Callable[[dict[str, Any]], object], *, all_fits: bool) -> None:
    """Change what an entry was computed from, and its digest as well or not."""
    with ledger.snapshot() as rows:
        questions = {digest: text.encode() for digest, _, text in rows.documents()}
        (entry,) = (row for row in rows.entries() if row["number"] == number)
    document = json.loads(entry["inputs"])
    document = change(document) or document
    fits = inputs_digest(questions[entry["question"]], entry["first"], canonical_bytes(document))
    values = (canonical_bytes(document).decode(), fits if all_fits else entry["inputs_digest"], number)
    ledger._db.execute("UPDATE entries SET inputs=?, inputs_digest=? WHERE number=?", values)


def test_a_count_keeps_little_and_its_question_and_tables_once(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, scheduled(scale="20"), windows=5)
    with bench.ledger.snapshot() as rows:
        sizes = [len(row["inputs"]) + len(row["inputs_digest"]) for row in rows.entries()]
        assert max(sizes) < 300
        assert len(list(rows.documents())) == 3


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return bench_of(tmp_path_factory.mktemp("six"), *ALL, windows=6)


def test_every_kind_of_answer_is_computed_again_when_its_symbols_are_gone(six: Bench) -> None:
    assert verify(six.ledger).problems == ()
    kinds = {frame.query for frame in six.frames}
    assert kinds == {"count", "frequency", "histogram", "dwell"}
    for inputs in inputs_of(six.ledger).values():
        assert len(inputs["symbols"]) == 2
        assert sum(ticks for _, ticks, *_ in inputs["symbols"]) == 40


def test_a_changed_sum_or_noise_is_found(six: Bench) -> None:
    bench = six
    # a stay is from one tick to all, whatever the sums: where noise says otherwise, one more changes no answer
    stays = [frame for frame in bench.frames if frame.name == "stays" and 1.0 < frame.values[0] < frame.observed - 2]
    number = (stays or bench.frames)[0].entry

    def more(document: dict[str, Any]) -> None:
        counts = document["symbols"][0][3]
        (counts[0] if isinstance(counts[0], list) else counts)[0] += 1

    def less_noise(document: dict[str, Any]) -> None:
        noise = document["symbols"][1][4]
        (noise[0] if isinstance(noise[0], list) else noise)[0] -= 1

    for change in (more, less_noise):
        for all_fits, problem in ((False, "was changed"), (True, "is not that of its sums and noise")):
            bench.ledger._db.execute("SAVEPOINT before")
            change_inputs(bench.ledger, number, change, all_fits=all_fits)
            (line,) = verify(bench.ledger).problems
            assert line.startswith(f"entry {number}: ")
            assert problem in line
            bench.ledger._db.execute("ROLLBACK TO before")
            bench.ledger._db.execute("RELEASE before")
    assert verify(bench.ledger).problems == ()


@pytest.mark.parametrize("scale", ["1e999999999", "0", "-20", "1/0"])
def test_no_scale_stops_an_audit(tmp_path: Path, scale: str) -> None:
    bench = bench_of(tmp_path, scheduled(scale="20"), windows=1)
    change_inputs(bench.ledger, 1, lambda document: document.update(scale=scale), all_fits=True)
    assert verify(bench.ledger).problems == ("entry 1: cannot be computed again: a scale is no number above 0",)
    bench.ledger._db.execute("UPDATE entries SET inputs=?", ("[" * 100_000,))
    assert verify(bench.ledger, policies=TrustedPolicies([policy()])).problems


@pytest.mark.parametrize(
    "change",
    [
        *(
            "UPDATE allowances SET allowance='x'",
            "UPDATE allowances SET epsilon=x'00'",
            "UPDATE members SET charge='x'",
        ),
        *("UPDATE entries SET first='x'", "UPDATE entries SET topic=x'00'", "UPDATE entries SET payload='x'"),
        "UPDATE documents SET document=x'00'",
    ],
)
def test_a_value_of_another_type_is_said_in_one_line(tmp_path: Path, change: str) -> None:
    """The file itself takes no such value; somebody who writes it may change that."""
    bench = bench_of(tmp_path, scheduled(scale="20"), windows=1)
    db = bench.ledger._db
    with pytest.raises(sqlite3.IntegrityError, match="cannot store"):
        db.execute(change)
    db.execute("PRAGMA writable_schema=1")
    db.execute("UPDATE sqlite_master SET sql=replace(replace(sql, ', STRICT', ''), 'STRICT', '') WHERE type='table'")
    db.execute("PRAGMA writable_schema=RESET")
    db.execute(change)
    with pytest.raises(LedgerError, match="a value of another type than its column"):
        verify(bench.ledger)


def test_inputs_of_another_form_stop_no_audit(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, scheduled(scale="20"), windows=1)
    change_inputs(bench.ledger, 1, lambda document: [document], all_fits=True)
    (problem,) = verify(bench.ledger).problems
    assert "cannot be computed again" in problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE entries SET inputs='{}'", "was changed"),
        ("UPDATE entries SET inputs_digest=''", "was changed"),
        ("UPDATE entries SET question=0", "its question is missing"),
        ("UPDATE entries SET payload=x''", "has no release"),
        ("UPDATE entries SET payload=x'00'", "holds no release"),
        ("UPDATE entries SET name='other'", "holds another release"),
        ("UPDATE entries SET first=first+1", "holds another release"),
        ("UPDATE entries SET number=number+1", "holds another release"),
        ("UPDATE documents SET document=replace(document, '20', '21')", "was changed"),
        ("UPDATE documents SET document='[]'", "is neither a question nor a noise table"),
        (f"UPDATE documents SET document='{'[' * 100_000}'", "is neither a question nor a noise table"),
        ("DELETE FROM documents WHERE id<>(SELECT question FROM entries)", "cannot be computed again"),
    ],
)
def test_what_is_missing_or_was_replaced_is_found(tmp_path: Path, change: str, problem: str) -> None:
    bench = bench_of(tmp_path, scheduled(scale="20"), windows=1)
    bench.ledger._db.execute(change)
    problems = verify(bench.ledger).problems
    assert any(problem in line for line in problems), problems
    assert all("\n" not in problem for problem in problems)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"devices": ["ring"], "windows": {}}, "is about watch, which was not asked for"),
        ({"length": 21}, "is not the answer to its question"),
        ({"query": ["count", [0]]}, "is not the answer to its question"),
        ({"confidence": 0.9}, "is not the answer to its question"),
        ({"name": "other"}, "is not the answer to its question"),
    ],
)
def test_another_question_is_found(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    bench = bench_of(tmp_path, scheduled(scale="20"), windows=1)
    ((number, text),) = bench.ledger._db.execute(
        "SELECT id, document FROM documents JOIN entries ON question=id"
    ).fetchall()
    other = canonical_bytes({**json.loads(text), **change})
    values = (digest(other), other.decode(), number)
    bench.ledger._db.execute("UPDATE documents SET digest=?, document=? WHERE id=?", values)
    change_inputs(bench.ledger, 1, lambda _: None, all_fits=True)
    assert verify(bench.ledger).problems == (f"entry 1: {problem}",)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda frame: {"values": ((frame.low[0] + frame.high[0]) / 2.0,)},
            "its value is not that of its sums and noise",
        ),
        (lambda frame: {"standard_errors": (frame.standard_errors[0] * 1.01,)}, "its standard error is not that"),
        (lambda frame: {"low": (frame.low[0] - 1e-3,)}, "its interval is not that"),
        (lambda frame: {"high": (frame.high[0] + 1e-3,)}, "its interval is not that"),
        (lambda frame: {"observed": frame.observed - 1}, "is about 39 ticks, and its sums are about 40"),
        (lambda _: {"scale": "21"}, "its noise is not of the scale that its sums have"),
    ],
)
def test_another_value_than_that_of_the_sums_is_found(
    tmp_path: Path, change: Callable[..., dict[str, Any]], problem: str
) -> None:
    bench = bench_of(tmp_path, scheduled(scale="20"), windows=1)
    (frame,) = bench.frames
    other = replace(frame, **change(frame))
    bench.ledger._db.execute("UPDATE entries SET payload=?, scale=?", (other.encode(), other.scale))
    (line,) = verify(bench.ledger).problems
    assert line.startswith(f"entry 1: {problem}")


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_charge_that_is_not_that_of_the_noise_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    from gateway.releases import maker as release_maker

    exact = release_maker.charge
    monkeypatch.setattr(release_maker, "charge", lambda table, spread: factor * exact(table, spread))
    bench = bench_of(tmp_path, scheduled(scale="20"), windows=1)
    (line,) = verify(bench.ledger).problems
    assert line.startswith("entry 1: ")
    assert "is charged 0.0" in line
    assert ", and its noise 0.0" in line


def forgotten(parts: tuple[Tally, ...], _: Fraction, __: Callable[[int], int]) -> tuple[Tally, ...]:
    return parts


@pytest.mark.parametrize("windows", [2, 3])
def test_a_gateway_that_adds_no_noise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: int) -> None:
    monkeypatch.setattr("gateway.releases.maker.add_noise", forgotten)
    bench = bench_of(tmp_path, scheduled(scale="20"), windows=windows)  # two tables: two numbers each
    problems = verify(bench.ledger).problems
    assert problems == () if windows == 2 else "0 on average over 6 numbers" in problems[0]


def test_tables_are_written_in_one_way() -> None:
    table = NoiseTable.randomised_response(3, SCALE // 5)
    assert read_table(canonical_table(table)) == table
