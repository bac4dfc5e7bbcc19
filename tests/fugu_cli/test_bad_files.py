"""Files and names that are none, for the commands that look after an installation: a line each, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from edge_agent.__main__ import main as agent
from gateway.releases.ledger import Ledger
from gateway.store.store import Store
from tests.support.brokers import free_port
from tests.support.command import Fugu
from tests.support.gateway_files import gateway_file
from tests.support.processes import policy
from tests.support.scenes import Scene, frames

Bad = Callable[[Path], object]


@cache
def _overwritten() -> bytes:
    """A store of some pages, all but the first of which are overwritten."""
    with TemporaryDirectory() as folder:
        scene = Scene(Path(folder) / "whole.sqlite", lag=4)
        for frame in frames([10] * 300):
            scene.record(frame)
        scene.store.close()
        whole = (Path(folder) / "whole.sqlite").read_bytes()
    return whole[:4096] + b"\xff" * (len(whole) - 4096)


BAD: dict[str, Bad] = {
    "missing": lambda path: None,
    "missing with its folder": lambda path: path.parent.rmdir(),
    "a folder": Path.mkdir,
    "empty": Path.touch,
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 64),
    "text": lambda path: path.write_text("{}\n"),
    "a store": lambda path: Store(path).close(),
    "a ledger": lambda path: Ledger(path).close(),
    "damaged": lambda path: path.write_bytes(_overwritten()),
}
STORES = (
    ("gateway", "status", "{file}"),
    ("gateway", "forget", "watch", "--store", "{file}"),
    ("gateway", "history", "watch", "hr", "--store", "{file}"),
    ("gateway", "ledger", "show", "--ledger", "{file}"),
    ("check", "ledger", "--ledger", "{file}", "--store", "{file}"),
    ("gateway", "ledger", "progress", "--ledger", "{file}", "--store", "{file}", "--release", "active", "--first", "0"),
)


@pytest.mark.long
@pytest.mark.parametrize("words", STORES, ids=" ".join)
@pytest.mark.parametrize("kind", BAD)
def test_a_store_or_ledger_that_is_none(fugu: Fugu, tmp_path: Path, words: tuple[str, ...], kind: str) -> None:
    folder = tmp_path / "of it"
    folder.mkdir()
    BAD[kind](folder / "file")
    done = fugu(*(word.format(file=folder / "file") for word in words))
    nothing_to_say = (words[1:3], kind) == (("ledger", "show"), "a ledger")
    assert done.code == (0 if nothing_to_say else 1), done
    assert done.err.count("\n") == (not nothing_to_say)


NO_FILE = ("", ".", "..", "/", "\udcff", "\U0001f421\n")


@pytest.mark.long
@pytest.mark.parametrize("words", STORES, ids=" ".join)
@pytest.mark.parametrize("path", NO_FILE, ids=ascii)
def test_a_path_that_names_no_file(
    fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = fugu(*(word.format(file=path) for word in words))
    done.refusal()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", NO_FILE, ids=ascii)
def test_a_doctor_has_findings_for_a_path_that_names_no_file(
    fugu: Fugu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = gateway_file(tmp_path / "gateway.toml", free_port(), store=path)
    assert fugu("doctor", file).err == "" or path == "\udcff"  # which no TOML can hold


@pytest.mark.long
@pytest.mark.parametrize("kind", BAD)
def test_a_doctor_says_what_is_wrong_with_a_store(fugu: Fugu, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "of\nit"
    folder.mkdir()
    BAD[kind](folder / "file")
    done = fugu("doctor", gateway_file(tmp_path / "gateway.toml", free_port(), store=folder / "file"))
    (line,) = (line for line in done.out.splitlines() if line[4:].startswith(" store: "))
    expected = {"missing": "warn", "missing with its folder": "warn", "empty": "warn", "a store": "ok"}.get(
        kind, "FAIL"
    )
    assert line.split()[0] == expected
    assert ("damaged" in line) == (kind in ("binary", "text", "damaged"))
    assert expected != "FAIL" or done.code == 1
    assert all(line[:5] in ("ok   ", "warn ", "FAIL ") for line in done.out.splitlines())


@pytest.mark.parametrize("broken", ["missing", "a folder", "empty", "binary", "text"])
def test_a_gateway_s_folder_that_is_none(fugu: Fugu, tmp_path: Path, broken: str) -> None:
    BAD[broken](tmp_path / "gateway.toml")
    done = fugu("doctor", tmp_path)
    assert "gateway.toml" in done.refusal()
    assert ("'fugu deploy fleet' wrote its devices" in done.err) is (broken == "missing")


NAMES = ("", " ", "a b", "a/b", "+", "#", "%c", "..", "a\nb", "ü", "\U0001f421", "x" * 5000, "\x1b[31m", "health")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_none(fugu: Fugu, tmp_path: Path, name: str) -> None:
    broker, new, store = tmp_path / "broker", tmp_path / "new", tmp_path / "s.sqlite"
    assert fugu("deploy", "broker", broker, "--fleet", "home", "--host", "h").code == 0
    assert fugu("deploy", "device", tmp_path / "w", "--broker", broker, "--name", "watch").code == 0
    with closing(Store(store)), closing(Ledger(tmp_path / "l.sqlite")):
        pass
    before = {path: path.read_bytes() for path in broker.iterdir()}
    at, out = ("--broker", broker), (new,)
    for words, code in (
        (("deploy", "broker", *out, "--fleet", name, "--host", "h"), 2),
        (("deploy", "device", *out, *at, "--name", name), 2),
        *(() if name == "health" else ((("deploy", "device", *out, *at, "--name", "ring", "--stream", name), 2),)),
        (("deploy", "gateway", *out, *at, "--name", name), 2),
        (("deploy", "operator", *out, *at, "--name", name), 2),
        (("deploy", "subscriber", *out, *at, "--audience", "site", "--name", name), 2),
        (("deploy", "streams", *at, name), 1),
        *(() if name == "health" else ((("deploy", "streams", *at, "watch", "--stream", name), 2),)),
        (("deploy", "remove", *at, name), 1),
        (("deploy", "leave", *at, name, "--audience", "a"), 1),
        (("gateway", "forget", name, "--store", store), 1),
        (("gateway", "history", name, "hr", "--store", store), 1),
        (("gateway", "history", "watch", name, "--store", store), 1),
        (
            (
                *("gateway", "ledger", "progress", "--ledger", tmp_path / "l.sqlite", "--store", store),
                *("--release", name, "--first", 0),
            ),
            1,
        ),
    ):
        done = fugu(*words)
        done.refusal(code)
        assert not new.exists() or not any(new.iterdir())
    assert {path: path.read_bytes() for path in broker.iterdir()} == before


@pytest.mark.parametrize("number", ["-1", "9007199254740993", "1" * 30, "1" * 5000, "1e3", "", "x"])
def test_a_tick_that_is_none(fugu: Fugu, tmp_path: Path, number: str) -> None:
    store, ledger = tmp_path / "s.sqlite", tmp_path / "l.sqlite"
    with closing(Store(store)), closing(Ledger(ledger)):
        pass
    files = ("--ledger", ledger, "--store", store)
    for words in (
        ("gateway", "history", "watch", "hr", "--store", store, f"--first={number}"),
        ("gateway", "history", "watch", "hr", "--store", store, f"--last={number}"),
        ("gateway", "ledger", "progress", *files, "--release", "active", f"--first={number}"),
        ("gateway", "ledger", "resume", *files, f"--after={number}"),
    ):
        fugu(*words).refusal(2)


CONFIG = 'fleet = "home"\ndevice = "watch"\noutbox = "{outbox}"\nceiling = 1.0\n[broker]\nhost = "{host}"\n'
CONFIG += '[[streams]]\npolicy = "watch.json"\nsensor = {{ kind = "stdin" }}\n'
AGENT: tuple[list[str], ...] = (
    ["pause"],
    ["resume"],
    ["moved"],
    ["set-back"],
    ["--status"],
    ["--doctor"],
    ["--check"],
    [],
)


@pytest.mark.parametrize("words", AGENT, ids=lambda words: " ".join(words) or "run")
@pytest.mark.parametrize(
    "kind", ["missing", "missing with its folder", "a folder", "empty", "binary", "text", "too deep", "a zero byte"]
)
def test_a_configuration_of_an_agent_that_is_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], kind: str
) -> None:
    folder = tmp_path / "of\nit"
    folder.mkdir()
    if kind == "too deep":
        (folder / "file").write_text("fleet = " + "[" * 10_000)
    elif kind == "a zero byte":
        (folder / "file").write_text(CONFIG.format(outbox="out\\u0000box", host="h"))
    else:
        BAD[kind](folder / "file")
    assert agent([*words, str(folder / "file")]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.long
@pytest.mark.parametrize("words", AGENT[:4], ids=" ".join)
@pytest.mark.parametrize("kind", BAD)
def test_an_outbox_that_is_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], kind: str
) -> None:
    """A pause needs its folder only: it is for whatever agent starts there."""
    folder = tmp_path / "of it"
    folder.mkdir()
    BAD[kind](folder / "file")
    config = tmp_path / "agent.toml"
    config.write_text(CONFIG.format(outbox=folder / "file", host="h"))
    code = agent([*words, str(config)])
    out, err = capsys.readouterr()
    paused = words in (["pause"], ["resume"]) and not (words == ["pause"] and kind == "missing with its folder")
    begun = words == ["moved"] and kind == "empty"
    assert code == (0 if paused or begun else 1), (out, err)
    assert err.count("\n") == code
    assert "Traceback" not in err


def test_an_agent_whose_broker_cannot_be_looked_up_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(CONFIG.format(outbox="outbox.sqlite", host="a..b"))
    (tmp_path / "watch.json").write_text(policy(epoch_us=0, period_us=1_000_000).to_json())
    assert agent(["--check", str(config)]) == 1
    assert capsys.readouterr().err.endswith("agent.toml: broker: 'a..b' is no name of a host\n")
