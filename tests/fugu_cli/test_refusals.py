"""A refusal is one line on stderr and an exit code: 1 or 2, and never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.command import Fugu

PLAN = ("plan", "stream")
CHAIN = ("--q", ".1", "--r", ".2")
PAGE = ("gateway", "dashboard", "--fleet", "f", "--no-login")
UNIX_SECONDS = "Unix seconds from 0 to 250000000000,"
UNMINDED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            (*PLAN, "--q", "0", "--r", ".1", "--epsilon", "1"),
            1,
            "q must lie strictly inside (0, 1), as NUMBER or LOW:HIGH, got '0'",
        ),
        (
            (*PLAN, "--q", ".1", "--r", "1", "--epsilon", "1"),
            1,
            "r must lie strictly inside (0, 1), as NUMBER or LOW:HIGH, got '1'",
        ),
        (
            (*PLAN, "--q", ".3:.2", "--r", ".1", "--epsilon", "1"),
            1,
            "q must lie strictly inside (0, 1), as NUMBER or LOW:HIGH, got '.3:.2'",
        ),
        ((*PLAN, "--q", "nan", "--r", ".1", "--epsilon", "1"), 2, "q must be a number, got 'nan'"),
        ((*PLAN, "--q", ".1:", "--r", ".1", "--epsilon", "1"), 2, "q must be a number, got ''"),
        ((*PLAN, "--q", "a:b", "--r", ".1", "--epsilon", "1"), 2, "q must be a number, got 'a'"),
        ((*PLAN, *CHAIN, "--epsilon", "0"), 1, "epsilon must be above 0 and finite, got 0"),
        ((*PLAN, *CHAIN, "--epsilon", "-1"), 1, "epsilon must be above 0 and finite, got -1"),
        ((*PLAN, *CHAIN, "--epsilon", "nan"), 1, "epsilon must be above 0 and finite, got nan"),
        ((*PLAN, *CHAIN, "--epsilon", "inf"), 1, "epsilon must be above 0 and finite, got inf"),
        (
            (*PLAN, *CHAIN, "--epsilon", "1", "--every", "0"),
            2,
            "Invalid value for '--every': Input should be greater than or equal to 1 (try 'fugu plan stream --help')",
        ),
        ((*PLAN, *CHAIN, "--epsilon", "1", "--period", "0"), 1, "period must be above 0 and finite, got 0"),
        (
            (*PLAN, *CHAIN, "--epsilon", "1", "--adversary", "kind"),
            2,
            "adversary must be one of ignorant, informed, universal, got 'kind'",
        ),
        (
            (*PLAN, *CHAIN, "--epsilon", "1", "--objective", "best"),
            2,
            "objective must be one of information, flips, got 'best'",
        ),
        ((*PLAN, "--q", ".1", "--epsilon", "1"), 2, "give --q and --r, or --model"),
        ((*PLAN, *CHAIN, "--model", "chain.json", "--epsilon", "1"), 2, "give either --model or --q and --r, not both"),
        ((*PLAN, "--model", "none.json", "--epsilon", "1"), 1, "none.json: No such file or directory"),
        (("plan", "model", "none.csv"), 1, "none.csv: No such file or directory"),
        (("plan", "model", "none.csv", "--threshold", "median"), 2, "threshold must be a number, got 'median'"),
        (("check", "policy", "none.json"), 1, "none.json: No such file or directory"),
        (("check", "policy", "none.json", "--ceiling", "0"), 1, "ceiling must be above 0 and finite, got 0"),
        ((*PAGE, "--broker", "h:0"), 1, "broker address 'h:0' is not host:port"),
        ((*PAGE, "--broker", "none.toml"), 1, "cannot read none.toml: No such file or directory"),
        (("subscribe", "--fleet", "f", "--broker", "none.toml"), 1, "cannot read none.toml: No such file or directory"),
        (("subscribe", "--fleet", "a/b"), 1, "'a/b' is not a name: 1 to 64 letters, digits, '_' or '-'"),
        (("subscribe", "--fleet", "f", "--broker", "host:"), 1, "broker address 'host:' is not host:port"),
        (("demo", "--broker-kind", "big"), 2, "broker kind must be one of auto, mosquitto, embedded, got 'big'"),
        (
            ("demo", "walk", "--seconds", "0.01"),
            2,
            "Invalid value for '--seconds': Input should be greater than or equal to 1 (try 'fugu demo --help')",
        ),
        (
            ("check", "device", "none.json", "--command", "agent 'of"),
            2,
            "--command is a program with its options, got \"agent 'of\"",
        ),
        (("check", "device", "none.json", "--command", ""), 2, "--command is a program with its options, got ''"),
        *(
            (("plan", "auto", "n.csv", "--epoch", epoch), 2, f"--epoch must be {UNIX_SECONDS} got {epoch}")
            for epoch in ("nan", "-1", "1e+300", "2.53e+11")
        ),
    ],
)  # fmt: skip
def test_refusals(
    fugu: Fugu, words: tuple[str, ...], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fugu(*words)
    assert (done.code, done.out, done.err) == (code, "", f"fugu: {message}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("asleep,-3\n", "r.csv has no header: write the names of its columns in a first line"),
        ("t,value\n0,1\n", "r.csv: it has one row: there is nothing to learn from"),
        ("state\n\n\n", "r.csv has no rows"),
        ("state\n1\n1\n1\n", "r.csv: column state never changes: there is nothing to plan from"),
        ("state,seg\n0,1\n1,2\n", "r.csv: no two neighbouring rows, so there is no transition to count"),
        (
            "state\n0\nsecret\n",
            "r.csv: line 3, column state is no number: say what means no reading by --missing-values",
        ),
    ],
)
def test_recordings_that_are_refused(fugu: Fugu, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "r.csv"
    file.write_text(text)
    done = fugu("plan", "model", file)
    assert (done.code, done.out, done.err) == (1, "", f"fugu: {message}\n")


def test_bytes_that_are_no_text_are_refused(fugu: Fugu, tmp_path: Path) -> None:
    for name in ("r.csv", "r.csv.gz"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00state")
        done = fugu("plan", "model", tmp_path / name)
        assert done.code == 1
        assert done.err == f"fugu: {name} has no rows\n"


def test_a_recording_s_values_are_in_no_error(fugu: Fugu, tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("state\n0\n31337.25\n1\n")
    assert "31337" not in fugu("plan", "model", file).err
    file.write_text("state\n0\ncanary\n1\n")
    assert "canary" not in fugu("plan", "model", file).err


words = st.text("0123456789.:e-/naif +_x", max_size=12) | st.floats().map(str) | st.text(max_size=8)


@pytest.mark.long
@settings(max_examples=25, deadline=None, suppress_health_check=UNMINDED)
@given(words, words, words)
@example("1e-3000", ".5", "1e999")
@example("٣", "½", "0x1")
def test_any_text_as_an_option_gives_a_number_or_one_line(fugu: Fugu, q: str, rho: str, start: str) -> None:
    for options in (
        (f"--q={q}", "--r=.3", f"--release=1:6:{rho}"),
        ("--q=.3", f"--r={q}", f"--release={rho}", f"--start={start}"),
    ):
        done = fugu("check", "windows", *options)
        assert done.code in (0, 1, 2)
        assert done.err.count("\n") == (0 if done.code == 0 else 1)


@pytest.mark.long
@settings(max_examples=60, deadline=None, suppress_health_check=UNMINDED)
@given(
    arguments=st.lists(
        words | st.sampled_from(["--q", "--help", "-o", "fit", "stream", "plan", "model", "--", "policy"]), max_size=4
    )
)
def test_any_words_give_help_or_one_line(
    fugu: Fugu, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fugu(*arguments)
    assert done.code in (0, 1, 2)
    if done.code and "Usage:" not in done.err + done.out:
        assert done.err.count("\n") == 1
