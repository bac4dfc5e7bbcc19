"""`fugu plan model` of streams that move together, and of chains of order 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fugu.privacy.chain_model import ChainModel
from tests.support.command import Fugu

TICKS = 6000


def write(path: Path, columns: dict[str, list[object]]) -> Path:
    rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n")
    return path


def coupled(seed: int, follow: float, ticks: int = TICKS) -> tuple[list[object], list[object]]:
    """A sticky stream, and one that is the first with a probability, else sticky by itself; simulated."""
    rng = np.random.default_rng(seed)
    a, b, first, second = 0, 0, list[object](), list[object]()
    for _ in range(ticks):
        a = a if rng.random() < 0.8 else 1 - a
        b = a if rng.random() < follow else (b if rng.random() < 0.7 else 1 - b)
        first.append(a)
        second.append(b)
    return first, second


@pytest.fixture
def together(tmp_path: Path) -> Path:
    a, b = coupled(3, 0.6)
    return write(tmp_path / "room.csv", {"t": list(range(0, 60 * TICKS, 60)), "light": a, "motion": b})


def test_counts_of_two_files_by_hand(fugu: Fugu, tmp_path: Path) -> None:
    """Ticks that both have are 1, 2, 3, 5, 6; 3 -> 5 is no step, nor is 5 -> 6, where B changes its segment."""
    first = write(tmp_path / "a.csv", {"t": [0, 10, 20, 30, 50, 60], "state": [1, 0, 0, 1, 1, 0]})
    second = write(
        tmp_path / "b.csv",
        {"t": [10, 20.4, 29.7, 40, 50, 60, 70], "state": [1, 1, 0, 0, 1, 0, 0], "seg": [1, 1, 1, 1, 1, 2, 2]},
    )
    document = fugu("plan", "model", first, second, "--rows", "samples", "--json").json()
    assert [stream["name"] for stream in document["streams"]] == ["a", "b"]
    assert document["shows"] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    steps = {(x, y) for x, row in enumerate(document["counts"]) for y, n in enumerate(row) if n}
    assert (steps, np.sum(document["counts"])) == ({(1, 1), (1, 2)}, 2)
    assert document["period_seconds"] == 10.0
    assert document["chains"] is None
    assert document["refused"].startswith("too short to tell how readings depend on one another")


def test_columns_of_a_file_are_streams(fugu: Fugu, together: Path, tmp_path: Path) -> None:
    written = tmp_path / "joint.json"
    done = fugu("plan", "model", together, "--column", "light,motion", "-o", written)
    assert done.code == 0
    assert "Class: joint steps of odds ratios up to" in done.out.replace("\n", " ")
    model = ChainModel.from_json(written.read_bytes())
    assert [stream.name for stream in model.streams] == ["light", "motion"]
    assert model.chains is not None
    # The chain that it was simulated by: from (0, 0) both stay with .8 (.6 + .4 x .7).
    assert model.transition[0, 0] == pytest.approx(0.8 * 0.88, abs=0.03)


@pytest.mark.long
def test_symbols_of_both_streams_are_attacked_together(fugu: Fugu, together: Path) -> None:
    done = fugu("plan", "model", together, "--column", "light,motion", "--epsilon", "4", "--json").json()
    last = done["attacked"]
    assert last["guess"] < last["success"] < last["ceiling"]
    assert done["refused"] is None


@pytest.mark.long
def test_rows_that_a_stream_lacks_cut(fugu: Fugu, tmp_path: Path) -> None:
    a, b = coupled(7, 0.5, ticks=1200)
    b[600] = ""
    file = write(tmp_path / "gap.csv", {"a": a, "b": b})
    done = fugu("plan", "model", file, "--column", "a,b", "--json").json()
    assert np.sum(done["counts"]) == 1197


def test_pairs_of_a_chain_of_order_two(fugu: Fugu, tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    states: list[object] = [0, 0]
    for _ in range(TICKS):
        probability = {(0, 0): 0.1, (0, 1): 0.3, (1, 0): 0.6, (1, 1): 0.9}[int(str(states[-2])), int(str(states[-1]))]
        states.append(int(rng.random() < probability))
    file = write(tmp_path / "order.csv", {"state": states})
    assert "--order 2 fits pairs" in fugu("plan", "model", file).out.replace("\n", " ")
    done = fugu("plan", "model", file, "--order", "2", "--json")
    document = done.json()
    assert document["shows"] == [[0], [1], [0], [1]]
    assert [row.count(0) for row in document["counts"]] == [2, 2, 2, 2]
    assert ChainModel.from_json(done.out).transition[2, 1] == pytest.approx(0.6, abs=0.05)  # after 1, 0
    assert document["more"]["p_value"] > 0.001
    assert "by the odds ratio of two of its steps" in document["refused"]


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ({"t": [0, 1, 2], "state": [0, 1, 0]}, (), "a.csv has a row every 10 s and b.csv every 1 s"),
        ({"state": [0, 1, 0]}, (), "b.csv has no times: nobody knows which rows belong together"),
        ({"t": [0, 10, 0, 10], "state": [0, 1, 0, 1], "subject": [1, 1, 2, 2]}, (), "b.csv has no times"),
        ({"t": [9000, 9010, 9020], "state": [0, 1, 0]}, (), "a.csv and b.csv have no ticks in common"),
        ({"t": [0, 10, 20], "state": [0, 0, 0]}, (), "b.csv: column state never changes"),
        ({"t": [0, 10], "state": [0, 1]}, ("--name", "x,x"), "give different names of letters"),
        ({"t": [0, 10], "state": [0, 1]}, ("--name", "x"), "there are 2 streams and 1 names"),
        ({"t": [0, 10], "state": [0, 1]}, ("--order", "2"), "--order 2 is for one stream"),
        ({"t": [0, 10], "state": [0, 1]}, ("--column", "a,b,c"), "there are 2 files and 3 columns"),
        ({"t": [0, 10], "state": [0, 1]}, ("--threshold", "1,2,3"), "--threshold has 3 parts for 2 streams"),
        ({"t": [0, 10], "state": [0, 1]}, ("--baseline", "-3,-"), "baseline is a whole number of ticks"),
        ({"t": [0, 10], "state": [0, 1]}, ("--epsilon", "0"), "epsilon must be"),
        ({"t": [0, 10], "state": [0, 1]}, ("--epsilon", "1", "--order", "2"), "--epsilon: a chain of order 2 is taken"),
    ],
)
def test_what_cannot_be_fitted_is_one_line(
    fugu: Fugu, tmp_path: Path, columns: dict[str, list[object]], options: tuple[str, ...], reason: str
) -> None:
    first = write(tmp_path / "a.csv", {"t": [0, 10, 20, 30], "state": [0, 1, 1, 0]})
    second = write(tmp_path / "b.csv", columns)
    assert reason in fugu("plan", "model", first, second, *options).refusal(1, 2)
