"""`fugu model fit` on counts made by hand and on a real recording."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from fugu.demo.people import RECORDINGS
from gateway.privacy.chain_model import ChainModel
from tests.cli.command import Fugu

HEADER = "t,value,state,seg,subject"
ROWS = """0,10,0,a,1
2,11,0,a,1
4,30,1,a,1
6,31,1,a,1
8,9,0,a,1
100,40,1,b,1
102,41,1,b,1
104,,,b,1
106,12,0,b,1
108,45,1,b,1
200,8,0,b,2
202,50,1,b,2"""


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    file = tmp_path / "hand.csv"
    file.write_text(f"{HEADER}\n{ROWS}\n")
    return file


def test_counts_by_hand(fugu: Fugu, recording: Path) -> None:
    """Segments end where seg or subject change, and at a missing reading: 0 0 1 1 0 | 1 1 | 0 1 | 0 1."""
    done = fugu("model", "fit", recording, "--json")
    assert done.code == 0
    document = done.json()
    assert document["counts"] == [[1, 3], [1, 2]]
    assert (document["q"], document["r"]) == (0.75, pytest.approx(1 / 3))
    assert document["n"] == 11
    assert document["period_seconds"] == 2.0
    assert document["source"] == "hand.csv"
    assert document["threshold"] is None
    assert document["halves"] == [[[1, 1], [1, 1]], [[0, 2], [0, 1]]]


@pytest.mark.parametrize("threshold", ["mean", "20", "30"])
def test_thresholds_make_the_same_states(fugu: Fugu, recording: Path, threshold: str) -> None:
    document = fugu("model", "fit", recording, "--threshold", threshold, "--json").json()
    assert document["counts"] == [[1, 3], [1, 2]]
    assert document["column"] == "value"
    mean = (10 + 11 + 30 + 31 + 9 + 40 + 41 + 12 + 45 + 8 + 50) / 11
    assert document["threshold"] == pytest.approx(mean if threshold == "mean" else float(threshold))


def test_decimation_takes_every_second_row_of_each_segment(fugu: Fugu, recording: Path) -> None:
    document = fugu("model", "fit", recording, "--decimate", 2, "--json").json()
    assert document["counts"] == [[0, 1], [1, 0]]  # 0 . 1 . 0 | 1 . | 0 . | 0 .
    assert (document["decimate"], document["period_seconds"]) == (2, 4.0)


def test_the_file_is_what_json_shows_and_loads_back(fugu: Fugu, recording: Path, tmp_path: Path) -> None:
    chain = tmp_path / "chain.json"
    done = fugu("model", "fit", recording, "-o", chain, "--json")
    assert json.loads(chain.read_text()) == done.json()
    assert ChainModel.from_json(chain.read_bytes()).counts == ((1, 3), (1, 2))


def test_it_warns_that_fitting_leaks(fugu: Fugu, recording: Path) -> None:
    done = fugu("model", "fit", recording, "--json")
    assert "leaks" in done.json()["warning"]
    assert done.err.startswith("fugu: warning: ")
    assert "leaks" in done.err


def test_a_real_recording_has_the_published_chain(fugu: Fugu) -> None:
    """The BDP paper's highly correlated recording, which is neither homogeneous nor of first order."""
    document = fugu("model", "fit", RECORDINGS / "hr_sleep_N10.csv.gz", "--column", "state", "--json").json()
    assert document["n"] == 26923
    assert (round(document["q"], 5), round(document["r"], 5)) == (0.08938, 0.10924)
    assert document["homogeneity"]["p_value"] < 1e-50
    assert document["order"]["p_value"] < 1e-50
    assert document["order"]["nats_per_step"] < 0.01
    assert document["period_seconds"] == pytest.approx(0.8, abs=0.01)
    narrow = next(cells for cells in document["intervals"] if cells["confidence"] == 0.95)
    assert narrow["low"][0][1] < document["q"] < narrow["high"][0][1]


def test_its_column_of_states_is_its_value_above_the_mean(fugu: Fugu) -> None:
    file = RECORDINGS / "hr_sleep_N10.csv.gz"
    stated, derived = (
        fugu("model", "fit", file, *options, "--json").json()["counts"]
        for options in (("--column", "state"), ("--threshold", "mean"))
    )
    assert stated == derived


def test_for_people(fugu: Fugu) -> None:
    done = fugu("model", "fit", RECORDINGS / "hr_sleep_N07.csv.gz")
    assert done.code == 0
    assert "Clopper-Pearson, level 0.95" in done.out
    assert "NOT the same in both halves" in done.out
    assert "0.06" in done.out
    assert "0.40" in done.out


def test_more_states(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "three.csv.gz"
    file.write_bytes(gzip.compress(("state\n" + "0\n1\n2\n2\n1\n0\n" * 20).encode()))
    document = fugu("model", "fit", file, "--json").json()
    assert document["counts"] == [[19, 20, 0], [20, 0, 20], [0, 20, 20]]
    assert (document["q"], document["r"]) == (None, None)
    shown = fugu("model", "fit", file)
    assert "Pr(2 -> 1)" in shown.out
