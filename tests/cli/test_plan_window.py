"""`fugu plan window`: scales, the comparison, chain files, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fugu.demo.people import RECORDINGS
from tests.cli.command import Fugu

TWO = {
    "chains": [
        {"transition": [[0.9, 0.1], [0.4, 0.6]], "initial": [1, 0]},
        {"transition": [[0.8, 0.2], [0.3, 0.7]], "initial": [0.9, 0.1]},
    ]
}


@pytest.fixture
def two_chains(tmp_path: Path) -> Path:
    file = tmp_path / "chains.json"
    file.write_text(json.dumps(TWO))
    return file


@pytest.mark.parametrize(
    ("mechanism", "more", "scale"),
    [
        ("chain", ("--endless",), 3.336408922083244),
        ("chain", (), 3.336408922083244),
        ("auto", (), 3.336408922083244),
        ("mqm-exact", ("--endless",), 12.839964231247),
        ("mqm-approx", ("--length", 100), 23.505955223167),
        ("group", ("--length", 100), 100.0),
        ("entry", (), 1.0),
        ("chain", ("--query", "histogram"), 6.672817844166488),
    ],
)
def test_scales(fugu: Fugu, mechanism: str, more: tuple[object, ...], scale: float) -> None:
    words = ("plan", "window", "--q", 0.1, "--r", 0.4, "--epsilon", 1, "--mechanism", mechanism, *more)
    document = fugu(*words, "--json").json()
    assert document["scale"] == pytest.approx(scale, rel=1e-8)
    assert (document["epsilon"], document["adversary"]) == (1.0, "ignorant")
    assert document["mechanism"] == ("chain" if mechanism == "auto" else mechanism)
    assert f"{scale:.6g}" in fugu(*words).out


def test_a_class_of_two_chains(fugu: Fugu, two_chains: Path) -> None:
    words = ("plan", "window", "--chain", two_chains, "--epsilon", 1, "--length", 100)
    document = fugu(*words, "--json").json()
    scales = {entry["mechanism"]: entry["scale"] for entry in document["mechanisms"]}
    assert scales["mqm-exact"] == pytest.approx(13.021923496180, rel=1e-8)
    assert scales["wasserstein"] == pytest.approx(4.0, rel=1e-8)
    assert scales["chain"] == pytest.approx(3.336408922012534, rel=1e-8)
    assert document["mechanism"] == "chain"
    table = fugu(*words).out
    assert all(name in table for name in ("chain (least)", "mqm-exact", "wasserstein", "group", "entry"))
    assert "does not protect correlated" in table


def test_the_informed_need_more_noise(fugu: Fugu) -> None:
    words = ("plan", "window", "--q", 0.1, "--r", 0.4, "--epsilon", 1, "--mechanism", "chain", "--json", "--adversary")
    scales = [fugu(*words, adversary).json()["scale"] for adversary in ("ignorant", "informed", "universal")]
    assert scales == sorted(scales)
    assert scales[0] < scales[1] < scales[2]


def test_a_fitted_chain_will_do(fugu: Fugu, tmp_path: Path) -> None:
    data = RECORDINGS / "hr_sleep_N10.csv.gz"
    chain = tmp_path / "chain.json"
    assert fugu("model", "fit", data, "--column", "state", "-o", chain).code == 0
    document = fugu("plan", "window", "--chain", chain, "--epsilon", 1, "--mechanism", "chain", "--json").json()
    assert 5 < document["scale"] < 15


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--q", 0.1), 2, "give --q and --r, or --chain"),
        (("--q", 0.1, "--r", 0.4, "--length", 5, "--endless"), 2, "not both"),
        (("--q", 0.1, "--r", 0.4, "--mechanism", "magic"), 2, "mechanism must be one of chain"),
        (("--q", 0.1, "--r", 0.4, "--query", "mean"), 2, "query must be one of count, histogram"),
        (("--q", 0.1, "--r", 0.4, "--mechanism", "group"), 1, "needs a length"),
        (("--q", 0.1, "--r", 0.4, "--mechanism", "mqm-exact", "--adversary", "informed"), 1, "ignorant adversary only"),
    ],
)
def test_refusals(fugu: Fugu, words: tuple[object, ...], code: int, reason: str) -> None:
    done = fugu("plan", "window", "--epsilon", 1, *words)
    assert done.code == code
    assert reason in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "must be JSON"),
        ("[]", "needs"),
        ('{"chains": []}', "needs"),
        ('{"transition": [[0.5, 0.5], [0.5, 0.4]]}', "sum to 1"),
        ('{"transition": [[0.5, 0.5]]}', "square"),
        ('{"transition": [[1.5, -0.5], [0, 1]]}', "probabilities"),
        ('{"transition": [["a", 1], [0, 1]]}', "numbers"),
        ('{"transition": [[0.5, 0.5], [0.5, 0.5]], "initial": "soon"}', "stationary"),
        ('{"transition": [[1, 0], [0, 1]]}', "stationary"),
    ],
)
def test_broken_chain_files(fugu: Fugu, tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "chain.json"
    file.write_text(text)
    done = fugu("plan", "window", "--chain", file, "--epsilon", 1)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert str(file) in done.err
    assert reason in done.err
