"""Every command and program in the manual runs, and the demo shows what the README says."""

from __future__ import annotations

import html
import math
import random
import re
import shlex
import subprocess
import tomllib
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from scipy.stats import gamma

from firmware_sim.devices import simulate_recording
from fugu.contract.groups import SharedWindow
from fugu.mqtt import Broker
from fugu.recordings.file import File
from fugu.recordings.forms import read_table
from fugu_cli.demo.evaluation import Replay, load_night
from fugu_cli.demo.session import NIGHTS
from gateway.deployment.broker_files import BrokerFolder
from gateway.deployment.mosquitto import Settings
from gateway.fleet.registry import Registry
from gateway.health.monitor import NotRunningError, ask_gateway
from gateway.releases.ledger import Ledger
from gateway.store.location import Server, ledger_beside
from gateway.store.store import Store
from tests.support.board_policies import board_policy
from tests.support.brokers import PATIENCE, Mosquitto, free_port, wait_until
from tests.support.command import runner
from tests.support.documents import ROOT, Page
from tests.support.forks import shell_words
from tests.support.histories import fill_store
from tests.support.pages import Site
from tests.support.processes import AgentProcess, GatewayProcess, policy, write_device
from tests.support.proofs import PROOFS, anchor, headings
from tests.support.recording_forms import FORMS
from tests.support.soak import only

FASTER = {"sleep 1": "sleep 0.1", "sleep 0.5": "sleep 0.1"}
"""Shorter times: what a page waits for is asked for more often, and readings come more often."""
FEWER_TRIALS = "check stream --trials 1000"
HELP = "fugu try --help"
"""In place of a command that `test_try.py` runs: its options are looked at."""
README_COMMANDS = ("fugu plan auto tests/data/ampds2_water_on_30d.csv.gz --protect 1h", "fugu try")
PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_deploying_on_a_device(broker: Mosquitto, disk: Path) -> None:
    """The tree is what is installed here: `test_installed.py` installs."""
    replace = {"1883": str(broker.port), "python3 -m venv": ": ", "edge/bin/pip": ": ", "edge/bin/": "", **FASTER}
    with Page("docs/deploy.md", disk, replace) as page:
        assert page.run() == 7
        wait_until(lambda: (disk / "outbox.sqlite").exists())


@pytest.mark.long
def test_reading_files_of_many_forms(tmp_path: Path) -> None:
    moves = random.Random(1)
    times = [1_772_323_200 + 60 * minute for minute in range(600)]
    rates = [str(70 + moves.randrange(-9, 9)) for _ in times]
    with Page("docs/forms.md", tmp_path, {}) as page:
        for name in (names := set(re.findall(r"^fugu read (\S+)", page.blocks[0][2], re.MULTILINE))):
            FORMS[name](tmp_path / name, times, rates)
        assert (page.run(), len(names)) == (1, 5)
    for name in names:
        assert f"{name}: {read_table(File(tmp_path / name), {}).form}, 600 rows" in page.said
    assert (tmp_path / "plain.csv").stat().st_mode & 0o777 == 0o600


@pytest.mark.soak
def test_installing_on_a_device(broker: Mosquitto, disk: Path) -> None:
    """Also shows that the edge installs without numpy, numba and scipy, and that the units are part of the package."""
    with Page("docs/deploy.md", disk, {"1883": str(broker.port)}) as page:
        assert page.run() == 7
        listed = subprocess.run(
            [disk / "edge/bin/python", "-m", "pip", "list"], capture_output=True, text=True, check=True
        ).stdout.lower()
    assert "paho-mqtt" in listed
    assert not re.search(r"^(numpy|numba|scipy|typer|rich|amqtt)\b", listed, re.MULTILINE)
    assert len(list((disk / "edge").rglob("gateway/deployment/systemd/fugu-*.service"))) == 4


def test_a_broker_with_credentials(tmp_path: Path) -> None:
    port = free_port()
    replace = {"--port 8883": f"--port {port}", "127.0.0.1:8883": f"127.0.0.1:{port}"}
    replace |= {"--timeout 60": f"--timeout {PATIENCE:g}", "--period 1 ": "--period 0.2 --latency 1 ", **FASTER}
    with Page("docs/broker.md", tmp_path, replace) as page:
        assert page.run() == 5


def test_building_firmware(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUGU_PASSPHRASE", "a long passphrase")
    monkeypatch.setattr("gateway.fleet.keys._PARALLEL", 1)
    keys, fugu, device = tmp_path / "keys", runner(capsys), board_policy()
    (tmp_path / "policy.json").write_text(device.to_json())
    (tmp_path / "heart.json").write_text(device.model_copy(update={"device": "ring"}).to_json())
    assert fugu("fleet", "init", "--fleet", "home", "--keys", keys).code == 0
    words = ("fleet", "enrol", "--root", keys / "root.envelope", "--device", "ring", "--ceiling", 5, "--registry")
    assert fugu(*words, tmp_path / "home-fleet.db", "-o", tmp_path / "ring.json").code == 0
    replace = {"127.0.0.1:1883": f"127.0.0.1:{broker.port}", "period 0.001": "period 0.001 --false-alarms 1e-9"}
    replace["--draws 4000"] = "--draws 1000"
    on_board = "-m firmware_sim.on_board"
    replace[f"python {on_board}"] = f"{shlex.join(shell_words())} {on_board}"
    with Page("docs/firmware.md", tmp_path, replace) as page:
        assert page.run() == 4
    assert (tmp_path / "image/main.py").exists()


def test_operating(tmp_path: Path) -> None:
    with Page("docs/operate.md", tmp_path, {"1883": str(free_port()), "9464": str(free_port())}) as page:
        assert page.run() >= 5
        wait_until(lambda: (tmp_path / "gateway.sqlite").exists())


def test_asking_for_metrics(broker: Mosquitto, tmp_path: Path) -> None:
    replace = {"1883": str(broker.port), "9464": str(free_port())}
    with Page("docs/metrics.md", tmp_path, replace) as page:
        assert page.run() == 3
    assert "fugu_" in page.said


def test_backing_up(broker: Mosquitto, tmp_path: Path) -> None:
    with Page("docs/backup.md", tmp_path, {"1883": str(broker.port), "--period 1": "--period 0.2"}) as page:
        assert page.run() == 11
    assert {"gateway.toml", "history"} <= {file.name for file in tmp_path.iterdir()}
    assert not list(tmp_path.glob("*.sqlite"))


def test_releasing(broker: Mosquitto, tmp_path: Path) -> None:
    with Page("docs/releases.md", tmp_path, {"1883": str(broker.port)}) as page:
        assert page.run() == 6


def test_subscribing(broker: Mosquitto, tmp_path: Path) -> None:
    device = policy(epoch_us=0, period_us=20_000)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(device.to_json())
    simulate_recording(tmp_path / "night.csv", device, [0, 0, 1] * 100)
    gateway = GatewayProcess(tmp_path, broker.port)
    config = write_device(
        tmp_path / "watch", device, tmp_path / "night.csv", "value", Broker(port=broker.port), loop=True
    )
    agent = AgentProcess(config, tmp_path / "agent.log")
    wait_until(lambda: len(gateway.frames()) > 2)
    with Page("docs/subscribe.md", tmp_path, {"1883": str(broker.port)}) as page:
        assert page.run() == 6
    assert agent.stop() == 0
    assert gateway.stop() == 0


def test_history(tmp_path: Path) -> None:
    fill_store(tmp_path / "home.db", ("watch", "ring"), ticks=20_000)
    with Page("docs/history.md", tmp_path, {}) as page:
        assert page.run() == 4


def test_keeping_a_store_on_a_server(broker: Mosquitto, server: Server, tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.json").write_text(policy(epoch_us=0, period_us=20_000).to_json())
    url = "postgresql://fugu@db.example/home?sslmode=verify-full"
    with Page("docs/postgresql.md", tmp_path, {"1883": str(broker.port), url: server.url}) as page:
        assert page.run() == 1
        wait_until(lambda: runs(server), "the gateway")


def runs(server: Server) -> bool:
    """True if a gateway runs with a store on a server."""
    try:
        return bool(ask_gateway(server))
    except NotRunningError:
        return False


QUICK = [path for path in PROOFS if path.stem not in ("learned-classes", "published-mechanisms")]
"""The two others compute for long; theirs is the command of other pages, with other targets."""


@cache
def papers() -> dict[str, str]:
    """A command in place of `python -m papers`: a fork of what has imported most of what that does.

    The page of errata starts an interpreter.
    """
    program = f"import runpy, sys; sys.path.append({str(ROOT)!r}); runpy.run_module('papers', run_name='__main__')"
    return {"python -m papers": shlex.join([*shell_words(), "-c", program])}


@pytest.mark.parametrize("proof", only(QUICK, PROOFS), ids=lambda path: path.stem)
def test_what_shows_a_proof(proof: Path, tmp_path: Path) -> None:
    """Some name a command of another page."""
    with Page(str(proof.relative_to(ROOT)), tmp_path, {} if proof.stem == "errata" else papers()) as page:
        assert page.run() == len(page.blocks) <= 1


def test_auditing(broker: Mosquitto, tmp_path: Path) -> None:
    Store(tmp_path / "home.db").close()
    Ledger(ledger_beside(tmp_path / "home.db")).close()
    BrokerFolder.create(
        tmp_path / "broker", Settings(fleet="home", hosts=("gw.example",), port=8883), datetime.now(UTC)
    )
    replace = {
        "20000": "1000",
        "check stream": FEWER_TRIALS,
        # A busy machine may send no frame in three seconds: then it listens again.
        f"fugu {FEWER_TRIALS} fast": f"until fugu {FEWER_TRIALS} fast",
        "--live 10 --broker 127.0.0.1:1883": "--live 3 --broker 127.0.0.1:1883 2> heard; do cat heard; "
        "grep -q 'nothing in the recording is' heard; done",
        "1883": str(broker.port),
    }
    with Page("docs/audit.md", tmp_path, replace) as page:
        assert page.run() == 10
    assert "refused" not in (tmp_path / "background.log").read_text()


def test_measuring(broker: Mosquitto, tmp_path: Path) -> None:
    replace = {"1883": str(broker.port), "period = 1.0": "period = 0.2", "latency = 4.0": "latency = 0.8"}
    with Page("docs/measure.md", tmp_path, replace) as page:
        assert page.run() == 11
    assert "exposure" not in (tmp_path / "background.log").read_text()


def test_summing_homes(tmp_path: Path) -> None:
    """The words that people read to one another and type in is piped here."""
    settings = Settings(fleet="home", hosts=("gw.example",), port=8883)
    BrokerFolder.create(tmp_path / "broker", settings, datetime.now(UTC))
    (tmp_path / "agent.toml").write_text(
        'fleet = "home"\ndevice = "home-7"\noutbox = "outbox.sqlite"\nceiling = 1.0\n'
        '[[streams]]\npolicy = "policy.json"\nsensor = { kind = "stdin" }\n'
    )
    typed = {"fugu-agent join": "fugu helper digits helper/helper.toml | fugu-agent join"}
    typed |= {"fugu helper admit": "fugu-agent key agent.toml | fugu helper admit"}
    typed |= {"water.csv": str(ROOT / "tests/data/ampds2_water_on_30d.csv.gz")}
    with Page("docs/together.md", tmp_path, typed) as page:
        assert page.run() == 8
    shared = SharedWindow.model_validate_json((tmp_path / "street.json").read_text())
    table = tomllib.loads((tmp_path / "plan" / "group.toml").read_text())["groups"][0]
    assert table.items() <= shared.group.model_dump(mode="json").items()
    assert len([*(tmp_path / "plan" / "policies").iterdir()]) == 60
    assert "[[groups]]" in (tmp_path / "agent.toml").read_text()
    assert (tmp_path / "helper" / "members").read_text().startswith("home-7: ")


@pytest.mark.parametrize("whole", only([False], [False, True]))
def test_reproducing(tmp_path: Path, whole: bool) -> None:
    less = {} if whole else {"papers erratum-bdp newest-policy-graphs --quick": "papers --list"}
    with Page("docs/reproduce.md", tmp_path, less | papers()) as page:
        assert page.run() == 3
    assert (tmp_path / "bdp" / "report.html").exists()
    few = {} if whole else {"papers caution --quick": "papers caution-mqm-precondition --quick"}
    with Page("docs/building.md", tmp_path, few | papers()) as page:
        assert page.run() == 1


@pytest.mark.parametrize("whole", only([False], [False, True]))
def test_planning_from_a_recording(tmp_path: Path, whole: bool) -> None:
    ticks = {"range(4000)": "range(2700)", "range(6000)": "range(2000)", "range(9000)": "range(4500)"}
    less = {} if whole else {"fugu try": HELP, **ticks}
    with Page("docs/plan.md", tmp_path, less) as page:
        assert page.run() == 9
    assert {path.name for path in (tmp_path / "plan").iterdir()} == {"policy.json", "agent.toml", "plan.html"}


@pytest.mark.long
def test_many_devices(tmp_path: Path) -> None:
    replace = {"8883": str(free_port()), "--period 1": "--period 0.1 --latency 2", "sleep 1": "sleep 0.1"}
    replace["--timeout 60"] = f"--timeout {PATIENCE:g}"
    with Page("docs/many-devices.md", tmp_path, replace) as page:
        assert page.run() == 9
    assert "devices: 3 devices of fleet home" in page.said
    with closing(Registry(tmp_path / "fleet.sqlite")) as registry:
        names = ["band-1", "band-2", "band-3", "band-41"]
        assert [(device.name, device.reported and device.reported.in_force) for device in registry.devices()] == [
            (name, 1) for name in names
        ]
    assert "Traceback" not in (tmp_path / "background.log").read_text()


def test_fleet_pages(broker: Mosquitto, tmp_path: Path) -> None:
    replace = {"1883": str(broker.port), "--period 1": "--period 0.2 --latency 1", "--pace 60": "--pace 6000"}
    replace |= {"sleep 1": "sleep 0.4", "sleep 0.5": "sleep 0.2"}
    with Page("docs/fleet.md", tmp_path, replace) as page:
        assert page.run() == 9
    with closing(Registry(tmp_path / "fleet.sqlite")) as registry:
        devices = registry.devices()
        assert [device.name for device in devices] == ["ring", "watch"]
        assert [device.reported.in_force for device in devices if device.reported] == [3, 3]
        assert registry.document(3).restores == 1
    assert "Traceback" not in (tmp_path / "background.log").read_text()


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text())
    for target, part in links + [(target, "") for target in re.findall(r'src="([^"]+)"', page.read_text())]:
        if "://" not in target:
            there = page.parent / target if target else page
            assert there.exists(), f"{name} links to {target}"
            assert not part or part in map(anchor, headings(there)), f"{name} links to {target}#{part}"


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/glossary.md"])
def test_what_is_named_to_maintainers_is_there(name: str) -> None:
    """Files, folders and modules between backticks; `<kind>` stands for any name."""
    text = (ROOT / name).read_text()
    paths = re.findall(r"`((?:[\w<>]+/)+[\w<>.]*)`", text)
    modules = re.findall(r"`((?:edge_agent|gateway|fugu)(?:\.\w+)+)`", text)
    assert len(paths) + len(modules) > 20
    for path in (path for path in paths if not path.startswith("build/")):
        assert list(ROOT.glob(re.sub("<.*?>", "*", path).rstrip("/"))), f"{name} names {path}"
    for module in modules:
        file = ROOT / module.replace(".", "/")
        above = file.parent.with_suffix(".py")
        there = file.is_dir() or file.with_suffix(".py").exists()
        assert there or re.search(rf"^(?:def|class) {file.name}\b|^{file.name}\b", above.read_text(), re.M), module


@pytest.mark.parametrize("name", PAGES)
def test_every_page_with_commands_is_run_by_a_test(name: str) -> None:
    """A page with shell blocks must be one of those above, or the README.

    Its install is that of `test_installed.py`, `fugu try` that of `test_try.py`, and its plan that of a test below.
    """
    commands = [body.strip() for language, _, body in Page(name, ROOT, {}).blocks if language == "sh"]
    if name == "README.md":
        assert all(
            line.startswith(("git clone", "cd ", "pipx install ")) or line in README_COMMANDS
            for body in commands
            for line in body.splitlines()
        )
    elif Path(name).stem not in (
        *("audit", "backup", "broker", "building", "demo", "deploy", "firmware", "fleet", "forms", "history"),
        *("home-assistant", "many-devices", "measure", "metrics", "operate", "own-topic", "page", "plan"),
        *("postgresql", "releases", "reproduce", "subscribe", "together"),
        *(proof.stem for proof in PROOFS),
    ):
        assert commands == []


def test_the_readme_is_short() -> None:
    """At most 500 words outside code and the picture, with the words of links."""
    text = re.sub(r"^```.*?^```$|<picture>.*?</picture>", "", (ROOT / "README.md").read_text(), flags=re.M | re.S)
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split()
    assert sum(bool(re.search(r"\w", word)) for word in words) <= 500


def test_the_readme_says_how_often_it_is_a_no() -> None:
    """Recordings as they are, at an epsilon of 1: rows of the table that the README links to."""
    table = (ROOT / "docs" / "recordings.md").read_text().partition("## What is recommended")[2].partition("\n\nUCI")[0]
    rows = [line.split(" | ") for line in table.splitlines() if ", epsilon 1 |" in line and "`--" not in line]
    noes = sum(row[3].startswith("no,") for row in rows)
    assert (noes, len(rows)) == (6, 11)
    assert "Six of eleven recordings had [no useful plan]" in (ROOT / "README.md").read_text()


def test_the_readme_says_how_much_memory_a_board_needs() -> None:
    """The heap of a stream, as on the page that the README links to."""
    [heap] = re.findall(r"least heap of a stream .* \| (\d+ kB) \|", (ROOT / "docs" / "firmware.md").read_text())
    assert f"[{heap} of heap](docs/firmware.md#what-it-costs)" in " ".join((ROOT / "README.md").read_text().split())


@pytest.mark.soak
def test_the_readme_has_the_verdicts_of_its_plan() -> None:
    """Run as somebody does who has just cloned."""
    [shown] = [body for language, _, body in Page("README.md", ROOT, {}).blocks if language == "text"]
    page = Page("README.md", ROOT, {})
    [plan] = [
        line for language, _, body in page.blocks if language == "sh" for line in body.splitlines() if "plan" in line
    ]
    page.blocks = [("sh", "", plan)]
    assert page.run() == 1
    assert f"\n\n{shown}" in page.said


def test_the_readme_says_what_its_picture_shows() -> None:
    """Error in points, and how sure three attackers become; both pictures are of the same run."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    files = [ROOT / "docs" / "pictures" / f"night{look}.svg" for look in ("", "-dark")]
    light, dark = (file.read_text() for file in files)
    paths = [re.findall(r'class="shape [^>]*>', picture) for picture in (light, dark)]
    assert paths[0] == paths[1]
    assert max(file.stat().st_size for file in files) < 100_000
    words = " ".join(html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)", light))).split())
    shown = re.search(
        r"off by (\d+) percentage points on average .* Attacker (\d+ %) .*the promise: at most (\d+ %) .*"
        r"Attacker, learning (\d+ %) .*above the line for (\d+ %) .*ordinary noise (\d+ %) .*the line for (\d+ %)",
        words,
    )
    assert shown is not None, words
    off, measured, promised, learning, beyond, ordinary, broken = shown.groups()
    for sentence in (
        f"It is off by {off} percentage points on average",
        "an attacker who already knows this sleeper's habits, and is 50 % sure that one given heartbeat was fast: "
        f"he gets at most {promised} sure.",
        f"**Measured** on that night: at most {measured}.",
        f"With it he gets up to {ordinary} sure, and above {promised} for {broken} of heartbeats",
        f"From 50 % he got up to {learning} sure, and above {promised} for {beyond} of heartbeats",
    ):
        assert sentence in readme, sentence


def _most_points_off(night: Replay) -> float:
    """A mean error of a night's shares in points that one run in 10^9 exceeds, for the noise of the device's policy.

    The size of discrete Laplace noise of scale b is exceeded as often by an exponential variable of scale b, and 1, or
    more often. The sum of n of these has a gamma distribution.
    """
    [window] = night.policy.windows
    windows = len(night.window_starts)
    most = gamma.isf(1e-9 / 3, windows, scale=float(Fraction(window.scale))) / windows + 1.0
    return 100.0 * float(most) / window.length


@pytest.mark.soak
def test_the_demo_says_and_draws_numbers_that_it_has_computed(tmp_path: Path) -> None:
    """Three nights are replayed and attacked; `test_try.py` replays one, and `test_demo.py` has the numbers of one."""
    with Page("docs/demo.md", tmp_path, {"demo --no-browser": "demo --no-browser --broker-kind mosquitto"}) as page:
        assert page.run() == 2
    pictures = [*(tmp_path / "demo").glob("*.svg")]
    assert len(pictures) == 8
    for picture in pictures:
        assert "http://" not in picture.read_text().replace("http://www.w3.org/2000/svg", "")
    for word in ("Useful", "Private"):
        assert f"\n{word}: " in page.said
    address = re.search(r"^the page, for one browser: http://127\.0\.0\.1:(\d+)/\?token=", page.said, re.MULTILINE)
    assert not Site(int(address[1])).answers()  # it has ended with the demo
    tail = page.said.partition("\n\nSleeper ")[2]
    assert "\n\nA household's month\nUseful: " in tail
    ours = re.findall(r"odds on a heartbeat change by at most x ([\d.]+),", tail)
    ordinary = re.findall(r"on (\d+) % of the heartbeats, up to x (\d+)\.", tail)
    assert len(ours) == len(ordinary) == 3
    for ratio, (share, most) in zip(map(float, ours), ordinary, strict=True):
        assert 1.0 < ratio <= math.e
        assert int(share) >= 50
        assert int(most) > math.e
    # Nothing was missed, however slow the machine: 89, 56 and 66 windows, without the first of each, and 4 weeks.
    tail, came, _ = tail.partition("\n\n212 of 212 numbers came")  # the page's next command replays one more
    assert came
    errors = [float(off) for off in re.findall(r"shares are off by ([\d.]+) points on average", tail)]
    bounds = [_most_points_off(load_night(name)) for name in NIGHTS]
    *errors, home = errors
    assert 0.0 < home < 9.0
    assert all(0.0 < off < most < 9.0 for off, most in zip(errors, bounds, strict=True)), (errors, bounds)
    attacks = re.findall(r"is right on ([\d.]+) % .*? \(([\d.]+) to ([\d.]+)\), always guessing on ([\d.]+) %", tail)
    assert len(attacks) == 3
    learners = re.findall(r"who learns them, odds change by up to x ([\d.]+), and over 6 draws", tail)
    assert len(learners) == 3
    assert max(map(float, learners)) > math.e
    for success, low, high, guess in (map(float, attack) for attack in attacks):
        assert low <= success <= high < 73.2
        assert success >= guess
