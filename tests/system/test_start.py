"""`fugu start`, as a new user runs it: who gets in, what may be sent, what is left, and the whole way in a browser."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from urllib.parse import quote

import pytest

from fugu.contract.errors import FuguError
from fugu.mqtt import Broker, Link
from fugu.recordings.errors import Option, QuestionError
from fugu_cli.demo import wizard
from fugu_cli.demo.page import Page
from fugu_cli.demo.wizard import refuse_beside_gateway
from gateway.store.store import Store
from tests.support.brokers import PATIENCE, Mosquitto, await_end, free_port, wait_until
from tests.support.browser import Browser
from tests.support.replays import SECRET, check_first_screen, check_layout, recorded
from tests.support.soak import only
from tests.support.visitor import Visitor

pytestmark = pytest.mark.long


class Started(Visitor):
    """The program in a folder, whose temporary files are in `temporary` there; and a browser without a screen."""

    def __init__(self, folder: Path) -> None:
        (folder / "temporary").mkdir()
        self.folder = folder
        environment = {**os.environ, "TMPDIR": str(folder / "temporary"), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "fugu", "start", "--no-browser"]
        self.log = (folder / "output").open("w+")
        self.process = subprocess.Popen(command, cwd=folder, stdout=self.log, stderr=self.log, env=environment)
        wait_until(lambda: self.process.poll() is not None or "?token=" in self.output, "its address")
        super().__init__(self.output)

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    @property
    def files_left(self) -> list[Path]:
        return [*(self.folder / "temporary").rglob("*")]

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    started = Started(tmp_path)
    yield started
    started.process.kill()
    started.process.wait(PATIENCE)
    started.log.close()


@contextmanager
def wizard_in(folder: Path) -> Iterator[Visitor]:
    """The program's page and its work in this process, and its browser; files are in a folder."""
    program = wizard._Wizard(folder, not_private=False, browser=False)
    with program.page as page:
        thread = threading.Thread(target=program.serve)
        thread.start()
        visitor = Visitor(page.address)
        visitor.enter()
        try:
            yield visitor
        finally:
            wait_until(lambda: visitor.do("finish") == 202, "its end")
            await_end(thread)


def data_files(folder: Path) -> list[str]:
    """Contents of files, in the order of their paths."""
    return [file.read_text() for file in sorted(folder.rglob("*")) if file.is_file()]


def test_of_two_uploads_that_are_whole_at_the_same_time_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, goes_on = wizard._Wizard(tmp_path, not_private=False, browser=False), threading.Event()
    monkeypatch.setattr(program, "_describe_upload", lambda _path: None)

    class Body(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            goes_on.wait(PATIENCE)
            return super().read(size)

    threads = [threading.Thread(target=program._receive_upload, args=("a.csv", Body(b"aaaa"), 4)) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(data_files(tmp_path)) == 2, "both")
    with program._lock:
        goes_on.set()
        wait_until(lambda: data_files(tmp_path) == ["aaaa"] * 2, "both are whole")
    for thread in threads:
        thread.join(PATIENCE)
    assert (data_files(tmp_path), program._recording.read_text()) == (["aaaa"], "aaaa")
    program.page._server.server_close()


def test_two_uploads_of_one_name_do_not_mix_and_all_together_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wizard, "_MOST_UPLOADED", 10)
    with wizard_in(tmp_path) as visitor:
        host, port = visitor.host.split(":")
        uploads = [socket.create_connection((host, int(port))) for _ in range(2)]
        for upload in uploads:
            lines = "POST /upload?name=a.csv HTTP/1.1", f"Host: {visitor.host}", f"Origin: http://{visitor.host}"
            head = "\r\n".join((*lines, f"Cookie: {visitor.cookie}", "Content-Length: 4", "", ""))
            upload.sendall(head.encode())
        wait_until(lambda: len(data_files(tmp_path)) == 2, "both")
        assert visitor.ask("POST", "/upload?name=b.csv", b"ccc")[0] == 413
        assert "are on their way" in visitor.state()["stalled"]
        for block in (b"aa", b"bb", b"aa", b"bb"):  # in turns
            uploads[block == b"bb"].sendall(block)
        assert [upload.recv(12).split()[1] for upload in uploads] == [b"201"] * 2
        wait_until(lambda: len(data_files(tmp_path)) == 1, "the older one goes")
        assert data_files(tmp_path) in (["aaaa"], ["bbbb"])
        for upload in uploads:
            upload.close()
        for body in (b"12345", b"67890"):  # one replaces the other
            assert visitor.ask("POST", "/upload?name=c.csv", body)[0] == 201
        assert data_files(tmp_path) == ["67890"]


def test_a_recording_that_can_be_read_in_two_ways_has_a_button_for_each(tmp_path: Path) -> None:
    """At once when the file is here; an answer fills its field of the form, beside answers that were given before."""
    rows = [f"{60 * k + place},{room},{(k // 7 + place) % 2}" for k in range(90) for place, room in enumerate("ab")]
    with wizard_in(tmp_path) as visitor:
        visitor.ask("POST", "/upload?name=two.csv", "\n".join(["time,sensor,value", *rows, ""]).encode())
        state = visitor.state()
        assert "column sensor has 2 names" in state["stalled"]
        assert [offer["options"] for offer in state["offers"]] == [
            {"only": "sensor=a"},
            {"only": "sensor=b"},
            {"as_it_is": "keys"},
        ]
        one_device = [row for row in rows if ",a," in row]
        visitor.ask("POST", "/upload?name=one.csv", "\n".join(["time,sensor,value", *one_device, ""]).encode())
        state = visitor.state()
        assert (state["stalled"], state["offers"]) == ("", [])
        assert "readings in column value, times in column time" in " ".join(state["understood"])
        assert state["step"] == 2
    asked = dict.fromkeys(wizard._FIELDS, "") | {"as_it_is": "codes", "rows": "samples", "only": "a=b,c=d"}
    question = QuestionError("order", "", [Option(("--as-it-is", "order"), ""), Option(("--rows", "events"), "")])
    answers = [offer["options"] for offer in wizard._answer_buttons(question, asked)]
    assert answers == [{"as_it_is": "codes,order"}, {"rows": "events"}]
    options = wizard._plan_options(asked | answers[0])
    assert (options.as_it_is, options.rows, options.only) == (["codes", "order"], "samples", ["a=b", "c=d"])


def test_an_error_that_nobody_thought_of_ends_nothing_and_tells_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError(f"{SECRET} is odd")

    with wizard_in(tmp_path) as visitor:
        assert visitor.ask("POST", "/upload?name=a.csv", f"t,value\n0,{SECRET}\n60,1\n120,2\n".encode())[0] == 201
        monkeypatch.setattr(wizard, "readings_of", broken)
        assert visitor.do("plan") == 202
        wait_until(lambda: visitor.state()["stalled"], "a word")
        state = visitor.state()
        assert "ArithmeticError at test_start.py, line" in state["stalled"]
        assert SECRET not in json.dumps(state)
        assert state["stage"] == "a.csv is here."
        assert len(data_files(tmp_path)) == 1
        monkeypatch.setattr(wizard._Wizard, "_receive_upload", broken)
        status, _, body = visitor.ask("POST", "/upload?name=b.csv", b"x")
        assert (status, b"ArithmeticError" in body, SECRET.encode() in body) == (500, True, False)


def test_an_upload_whose_file_cannot_be_made_ends_nothing(tmp_path: Path) -> None:
    with wizard_in(tmp_path) as visitor:
        too_long = quote("\N{CJK UNIFIED IDEOGRAPH-20000}" * 80)
        assert visitor.ask("POST", f"/upload?name={too_long}", b"t,value\n0,1\n")[0] == 500
        for name in ("a.csv", "b.csv"):  # each upload, and each plan, looks at the uploads before
            assert visitor.ask("POST", f"/upload?name={name}", b"t,value\n0,1\n60,2\n")[0] == 201
        assert visitor.do("plan") == 202
        wait_until(lambda: visitor.state()["stage"] == "b.csv is here.", "what a plan says of so few readings")
        assert len(data_files(tmp_path)) == 1


def test_a_file_of_a_topic_is_full_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wizard, "_MOST_BYTES", 80)
    files = wizard._TopicFiles(tmp_path)
    files.begin()
    assert [files.add(0.0, word) for word in ("öäü" * 10, "öäü")] == [False, True], "71 bytes, then 88"
    assert not files.add(0.0, json.loads('"half \\ud800"')), "no UTF-8, and yet it ends no recording"
    files.close()
    assert files.newest.read_text().splitlines()[1] == "0.000000,half ?"


def test_a_topic_is_recorded_at_the_rate_that_comes_and_goes_on_in_a_new_file(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wizard, "_MOST_BYTES", 5_000)
    messages, local = 1000, f"127.0.0.1:{broker.port}"
    link = Link(broker.broker, client_id="sensor")
    link.start()
    with wizard_in(tmp_path) as visitor:
        assert visitor.do("record", topic="lab/door", local=local) == 202

        def send(number: int) -> None:
            wait_until(lambda: link.publish("lab/door", b"%d" % number) is not None, "a message that is taken")

        def counted() -> int:
            send(0)
            return int([*re.findall(r"recording: (\d+)", str(visitor.state())), "0"][0])

        wait_until(lambda: counted() > 0, "a subscription")
        for number in range(1, messages + 1):
            send(number)
        wait_until(lambda: counted() > messages, "all of them")
        stage = visitor.state()["stage"]
        assert visitor.do("plan", period="1") == 202
        wait_until(lambda: "recording" not in visitor.state()["stage"], "the end of recording")
    link.stop()
    match = re.search(
        r"topic-(\d)\.csv is full \(0 MB\) and is planned from; what comes now is in topic-(\d)\.csv", stage
    )
    assert match is not None, stage
    assert 5 <= int(match[2]) == int(match[1]) + 1
    files = data_files(tmp_path)
    assert len(files) == 4
    assert max(map(len, files)) < 5_100
    values = [int(row.split(",")[1]) for file in files for row in file.splitlines()[1:]]
    newest = messages + 1 - values[0]
    assert values[:newest] == [*range(values[0], messages + 1)], "each of the newest, once and in order"
    assert not any(values[newest:])


@contextmanager
def publishing(broker: Broker, topic: str, payload: str) -> Iterator[None]:
    link, end = Link(broker, client_id="sensor"), threading.Event()

    def publish() -> None:
        while not end.wait(0.2):
            link.maintain()
            link.publish(topic, payload.encode())

    link.start()
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        end.set()
        await_end(thread)
        link.stop()


def test_only_the_page_itself_may_send_and_its_token_is_for_one_browser(started: Started) -> None:
    assert started.ask("POST", "/upload?name=a.csv", b"t,value\n")[0] == 403
    assert started.ask("POST", started.entrance, b"", Cookie=None)[0] == 403, "a token is no permission to send"
    started.enter()
    for headers in (
        {"Cookie": None},
        {"Origin": None},
        {"Origin": "http://evil.example"},
        {"Origin": f"https://{started.host}"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        assert started.ask("POST", "/upload?name=a.csv", b"t,value\n", **headers)[0] == 403, headers
    rebound = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert started.ask("POST", "/upload?name=a.csv", b"t,value\n", **rebound)[0] == 421
    assert started.ask("GET", "/", Host="evil.example")[0] == 421
    for body in (b"", b"[]", b'"x"', b'{"do": "else"}', b"[" * 40_000):
        assert started.ask("POST", "/ask", body)[0] == 400
    assert started.ask("POST", "/ask", b"", **{"Content-Length": "70000"})[0] == 400
    assert started.ask("POST", "/ask", b"", **{"Content-Length": "many"})[0] == 405
    assert started.ask("POST", "/else", b"")[0] == 400
    assert started.ask("PUT", "/upload?name=a.csv", b"")[0] == 501
    assert [file for file in started.files_left if file.is_file()] == []
    assert started.state()["ask"]
    assert started.ask("GET", started.entrance, Cookie=None)[0] == 403, "somebody else has the address, too"
    assert started.process.wait(PATIENCE) == 1
    assert "fugu: somebody else on this machine has used the address" in started.output
    assert started.files_left == []


@pytest.mark.fresh  # a fork ignores what the server of forks has ignored from its start
@pytest.mark.parametrize("number", only([signal.SIGTERM], [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]))
def test_what_was_uploaded_is_its_owners_and_is_gone_at_the_end(started: Started, number: int) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("this signal is ignored: who starts it so wants that it goes on")
    started.enter()
    for name in ("../../a.csv", "/etc/b.csv", "..", ".hidden", "b\0c.csv", "history.csv"):
        path = f"/upload?name={name}".replace("\0", "%00")
        assert started.ask("POST", path, f"t,value\n0,{SECRET}\n".encode())[0] == 201, name
    [folder] = (started.folder / "temporary").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.parent.parent for file in started.files_left if file.is_file()} == {folder}
    assert started.ask("POST", "/upload?name=x.csv", b"", **{"Content-Length": str((64 << 20) + 1)})[0] == 413
    assert "more than 64 MB" in started.state()["stalled"]
    assert started.stop(number) == (0 if number == signal.SIGINT else 128 + number)
    assert started.files_left == []
    assert SECRET not in started.output
    assert not (started.folder / "plan").exists()


def test_who_asks_that_it_ends_is_answered_before_it_ends() -> None:
    asked, answered = threading.Event(), list[HTTPStatus]()

    def handle_post(*_: object) -> HTTPStatus:
        asked.set()
        wait_until(lambda: page._server.fileno() < 0, "that the page ends")
        time.sleep(0.1)  # a slow answer
        answered.append(HTTPStatus.ACCEPTED)
        return answered[0]

    with Page(browser=False, handle_post=handle_post) as page:
        visitor = Visitor(page.address)
        visitor.enter()
        asking = threading.Thread(target=lambda: visitor.do("finish"))
        asking.start()
        assert asked.wait(PATIENCE)
    assert answered == [HTTPStatus.ACCEPTED]
    asking.join(PATIENCE)


def test_a_topic_is_recorded_but_never_of_the_fleets_broker(broker: Mosquitto, started: Started) -> None:
    started.enter()
    local = f"127.0.0.1:{broker.port}"
    fleets = "that of the fleet, where nothing raw may be"
    for wrong, why in (  # each for another reason than the one before it, which is shown until then
        ({"local": local, "broker": local}, fleets),
        ({"local": "192.0.2.1:1883"}, "not this machine"),
        ({"local": local, "broker": f"localhost:{broker.port}"}, fleets),
        ({"local": f"127.0.0.1:{free_port()}"}, "cannot be reached"),
        ({"topic": "lab/#", "local": local}, "topic: "),
        ({"local": "127.0.0.1:many", "topic": "lab/door"}, "is not host:port"),
    ):
        wait_until(lambda wrong=wrong: started.do("record", **{"topic": "lab/door", **wrong}) == 202, "it is idle")
        wait_until(lambda why=why: why in started.state()["stalled"], why)
    assert [file for file in started.files_left if file.is_file()] == []
    with publishing(broker.broker, "lab/door", f'{{"level": {SECRET}}}'):
        assert started.do("record", topic="lab/door", local=local, path="level") == 202
        wait_until(lambda: re.search(r"recording: ([3-9]|\d\d+) messages", started.state()["stage"]), "messages")
        assert SECRET not in json.dumps(started.state())
        assert started.do("plan", rows="samples") == 202  # said, as messages of a busy machine come irregularly
        verdict = "never changes: there is nothing to plan"
        wait_until(lambda: verdict in started.state()["stalled"], "a verdict", instead=started.state)
    [file] = [file for file in started.files_left if file.is_file()]
    assert SECRET in file.read_text().splitlines()[1]
    assert started.do("finish") == 202
    assert started.process.wait(PATIENCE) == 0
    assert started.files_left == []
    assert SECRET not in started.output


def test_never_beside_a_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_beside_gateway(tmp_path, tmp_path / "none")
    (tmp_path / "agent.toml").write_text("outbox = 'outbox.sqlite'\n")
    (tmp_path / "broken.toml").write_text("=")
    refuse_beside_gateway(tmp_path)
    (tmp_path / "site.toml").write_text("store = 'home.db'\n")
    with pytest.raises(FuguError, match=r"site\.toml is a gateway's: run fugu start where the sensor is"):
        refuse_beside_gateway(tmp_path)
    (tmp_path / "store").mkdir()
    Store(tmp_path / "store" / "home.db").close()
    with pytest.raises(FuguError, match=r"home\.db is a gateway's"):
        refuse_beside_gateway(tmp_path / "store")
    monkeypatch.setattr(wizard, "_INSTALLED", (tmp_path,))
    with pytest.raises(FuguError, match="is a gateway's"):
        refuse_beside_gateway()
    done = subprocess.run(
        [sys.executable, "-m", "fugu", "start"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


def test_from_a_file_to_an_agent_that_checks(
    broker: Mosquitto, started: Started, tmp_path: Path, browser: Browser
) -> None:
    history = recorded(tmp_path, 0.6, 2700)
    browser.open(started.address)
    wait_until(lambda: "Choose a file" in browser.text("#stage"), "the form")
    assert "token" not in browser.run("return location.href")
    check_first_screen(browser)
    assert browser.violations() == []
    browser.type("input[name=file]", str(history))
    wait_until(lambda: "history.csv is here" in browser.text("#stage"), "the upload")
    browser.run("document.getElementById('topic').open = true")
    overwrite(browser, topic="lab/door", local=f"127.0.0.1:{broker.port}")
    wait_until(lambda: "readings in column value" in browser.text("#understood"), "what was understood")
    assert "states: below, above" in browser.text("#understood")
    browser.click("#more summary")
    browser.type("[name=threshold]", "10")
    browser.type("[name=protect]", "single")
    browser.type("[name=epsilon]", "\n")  # by keyboard alone
    wait_until(lambda: "The plan is below" in browser.text("#stage") or browser.text("#stalled"), "a plan")
    assert browser.text("#stalled") == ""
    assert browser.count(".verdict.yes") == 2
    assert "from 50\xa0% to at most 73\xa0% sure" in browser.text("#verdicts")
    wait_until(lambda: browser.count("#replay .lane path.got") == 1, "what would leave")
    wait_until(lambda: browser.count("#stretches article") > 1, "another stretch beside it")
    assert browser.text("#stretches article").startswith("As you asked\n")
    assert "seful: the share " in browser.text("#stretches article + article")
    assert "Hide any 10 minutes: protects more" in browser.text("#stretches")
    assert browser.count("#stretches button") < browser.count("#stretches article")
    browser.check_still()
    for width, dark in ((390, True), (1200, False)):
        browser.look(width, dark=dark)
        check_layout(browser, width)
        assert browser.violations() == []
    check_first_screen(browser)
    overwrite(browser, folder="wrist")
    write(browser, broker.port)
    wait_until(lambda: "that of the fleet" in browser.text("#stalled"), "a refusal")
    assert not (tmp_path / "wrist").exists()
    write(browser, free_port())
    wait_until(lambda: "written" in browser.text("#stage"), "files")
    assert browser.text("pre") == "fugu agent run wrist/agent.toml"
    assert browser.violations() == []
    browser.run("document.getElementById('details').open = true")
    browser.click("#report a")
    assert browser.text("h1").startswith("Useful: the share ")
    browser.open(f"http://{started.host}/")
    assert browser.complaints() == []
    assert started.do("finish") == 403, "another browser"
    wait_until(lambda: browser.count("main:not([hidden]) #ask:not([hidden])") == 1, "the form again")
    browser.click("[value=finish]")
    assert started.process.wait(PATIENCE) == 0
    wait_until(lambda: "has ended" in browser.text("#stage"), "a word about the end")
    assert started.files_left == []
    assert SECRET not in started.output
    assert {file.name for file in (tmp_path / "wrist").iterdir()} == {"policy.json", "agent.toml", "plan.html"}
    text = (tmp_path / "wrist" / "agent.toml").read_text()
    assert 'topic = "lab/door"' in text
    assert "history.csv" not in text
    with publishing(broker.broker, "lab/door", SECRET):
        done = subprocess.run(
            [sys.executable, "-m", "edge_agent", "--check", "wrist/agent.toml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every guarantee holds" in done.stdout


def overwrite(browser: Browser, **fields: str) -> None:
    """Type into fields of the form, in place of what is there."""
    for name, text in fields.items():
        browser.run("document.querySelector(arguments[0]).value = ''", f"[name={name}]")
        browser.type(f"[name={name}]", text)


def write(browser: Browser, port: int) -> None:
    """Write the configuration for a fleet with a broker on a port of this machine, by keyboard."""
    browser.run("document.querySelector('[name=broker]').value = arguments[0]", f"127.0.0.1:{port}")
    browser.run("document.querySelector('[value=write]').focus()")
    browser.type("[value=write]", "\n")


def test_after_a_no_what_would_do_is_a_button(started: Started, tmp_path: Path) -> None:
    history = recorded(tmp_path, 0.9, 3000)
    started.enter()
    assert started.ask("POST", "/upload?name=history.csv", history.read_bytes())[0] == 201
    assert started.do("plan", threshold="10", protect="tick", epsilon="0.2") == 202
    wait_until(lambda: "no answer" in (state := started.state())["stage"] or state["stalled"], "a no")
    state = started.state()
    assert state["verdicts"][0][:2] == ["no", "Not useful"]
    assert state["replays"][0]["name"] == "What would be nearest to useful"
    gives_up = r" What that gives up: from 50 % to at most \d+ % sure, instead of 55 %\.$"
    assert re.search(gives_up, state["offers"][0]["more"])
    assert started.do("write") == 202
    wait_until(lambda: "no plan to write" in started.state()["stalled"], "a refusal")
    assert all("fugu" not in offer["words"] and offer["options"]["threshold"] == "10.0" for offer in state["offers"])
    assert state["offers"], "an epsilon that does"
    assert state["offers"][0]["more"].startswith("The share at 10 or above over ")
    options = state["offers"][-1]["options"]
    assert started.do("plan", **options) == 202
    wait_until(lambda: "The plan is below" in started.state()["stage"], "a yes")
    assert started.do("write", folder="here") == 202
    wait_until(lambda: "written" in started.state()["stage"], "files")
    assert started.state()["paste"][2] == "YOUR-SENSOR | fugu agent run here/agent.toml"
    assert 'kind = "stdin"' in (tmp_path / "here" / "agent.toml").read_text()
    assert started.stop() == 128 + signal.SIGTERM
    assert started.files_left == []
