"""Store and ledger know of each other: none can be killed apart, and none is replaced or restored unnoticed."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fugu.contract.errors import FuguError
from gateway.deployment.doctor import Installation, examine
from gateway.page.ledger_view import LedgerView
from gateway.releases.ledger import Ledger, no_release_before
from gateway.releases.setup import ReleaseRecord, open_releases, release_now, resume_ledger
from gateway.store.engine import LedgerError
from gateway.store.location import Location
from gateway.store.store import Store
from tests.support.brokers import Mosquitto
from tests.support.command import Done, Fugu
from tests.support.ledgers import open_ledger, release, reserve
from tests.support.lives import READS
from tests.support.release_scenes import FLEET, Bench, scheduled, write_config
from tests.support.scenes import Scene, catalogue, frames, write_policies


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with policies, a store of 100 ticks, and a configuration; nothing was released yet."""
    folder = tmp_path / "site"
    folder.mkdir()
    write_policies(folder / "policies", FLEET)
    scene = Scene(folder / "s.sqlite", 8, FLEET)
    scene.record(*frames([10] * 10))
    scene.store.close()
    write_config(folder, scheduled(devices=["watch"], share=0.5))
    return folder


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker that has no release of other tests."""
    (tmp_path / "broker").mkdir()
    with Mosquitto(tmp_path / "broker") as running:
        yield running


def released(site: Path, first: int) -> int:
    """Release the window that begins at a tick; returns its entry."""
    files = {"config": site / "releases.toml", "store": site / "s.sqlite", "ledger": site / "l.sqlite"}
    (frame,) = release_now(**files, policies=site / "policies", name="active", first=first)
    return frame.entry


def noted(site: Path) -> int:
    with closing(Store(site / "s.sqlite")) as store:
        return store.releases.ledger_record().entry


def charged(site: Path) -> int:
    with closing(Ledger(site / "l.sqlite")) as ledger:
        return ledger.newest_entry


def killed_at(site: Path, statement: int) -> bool:
    """Release two windows in a process that dies before its n-th statement; false if it has fewer."""
    child = os.fork()
    if child == 0:
        try:
            _die_at(statement)
            for first in (0, 20):
                entry = released(site, first)
                with (site / "published").open("a") as written:
                    written.write(f"{entry}\n")
            os._exit(0)
        finally:
            os._exit(1)
    ended = os.waitpid(child, 0)[1]
    assert ended == 0 or os.WTERMSIG(ended) == signal.SIGKILL
    return ended != 0


def _die_at(statement: int) -> None:
    """End at the n-th statement that may write."""
    count, connect = 0, sqlite3.connect

    def counted(text: str) -> None:
        nonlocal count
        count += READS.match(text) is None
        if count == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)
        db.set_trace_callback(counted)
        return db

    sqlite3.connect = traced


@pytest.mark.long
def test_killed_before_any_statement_everything_published_is_charged_and_noted_and_goes_on(site: Path) -> None:
    """Every statement of both files, or each third: points between the ledger's write, the store's, and publishing."""
    step = 3
    template, statement, ahead = site, 1, 0
    while True:
        folder = template.with_name(f"killed-{statement}")
        shutil.copytree(template, folder)
        (folder / "published").touch()
        killed = killed_at(folder, statement)
        published = [int(line) for line in (folder / "published").read_text().split()]
        ahead += charged(folder) > noted(folder)
        assert max(published, default=0) <= noted(folder) <= charged(folder)
        following = released(folder, 40)  # nothing is refused
        assert following == charged(folder) == noted(folder) > max(published, default=0)
        if not killed:
            break
        shutil.rmtree(folder)
        statement += step
    assert statement > 40
    assert ahead >= 2  # it was killed between the two writes


def test_a_restored_ledger_is_refused_and_never_said_to_agree(fugu: Fugu, site: Path) -> None:
    released(site, 0)
    shutil.copy(site / "l.sqlite", site / "backup")
    released(site, 20)
    audit = ("check", "ledger", "--ledger", site / "l.sqlite", "--store", site / "s.sqlite")
    assert "agrees" in fugu(*audit).out
    shutil.copy(site / "backup", site / "l.sqlite")
    for suffix in ("-wal", "-shm"):
        (site / f"l.sqlite{suffix}").unlink(missing_ok=True)
    audit_run = fugu(*audit)
    assert (audit_run.code, audit_run.err, "agrees" in audit_run.out) == (1, "", False)
    assert "ends with entry 1, and entry 2 may have been published: it is old" in " ".join(audit_run.out.split())
    assert fugu(*audit, "--json").code == 1
    with pytest.raises(LedgerError, match=r"it is old: put back the one .* fugu gateway ledger resume"):
        released(site, 20)
    resume = fugu("gateway", "ledger", "resume", "--ledger", site / "l.sqlite", "--store", site / "s.sqlite")
    assert (resume.code, resume.err) == (0, "")
    assert resume.out.startswith("watch/hr: releases begin with tick 40\n")
    for first in (0, 20, 39):
        with pytest.raises(LedgerError, match="this ledger begins with tick 40"):
            released(site, first)
    with pytest.raises(FuguError, match="or may have been: it may be told of again from tick 65 on"):
        released(site, 40)
    assert released(site, 65) == 2
    assert "agrees" in fugu(*audit).out
    shutil.copy(site / "backup", site / "l.sqlite")  # which has two entries less, and another identity
    with pytest.raises(LedgerError, match="not the one that this store's releases were charged to"):
        released(site, 60)


def test_a_missing_ledger_is_refused_and_not_made_anew(site: Path) -> None:
    released(site, 0)
    (site / "l.sqlite").unlink()
    with pytest.raises(LedgerError, match=r"there is no ledger l\.sqlite, and releases of this store were charged"):
        released(site, 20)
    assert not (site / "l.sqlite").exists()
    assert resume_ledger(site / "l.sqlite", site / "s.sqlite") == [("watch", "hr", 20)]
    with pytest.raises(LedgerError, match="begins with tick 20"):
        released(site, 0)
    with pytest.raises(FuguError, match="again from tick 45 on"):
        released(site, 44)
    assert released(site, 45) == 1


def test_a_replaced_ledger_is_refused(site: Path, tmp_path: Path) -> None:
    released(site, 0)
    other = tmp_path / "other"
    shutil.copytree(site, other)
    for name in ("l.sqlite", "s.sqlite"):
        (other / name).unlink()
    scene = Scene(other / "s.sqlite", 8, FLEET)
    scene.record(*frames([10] * 10))
    scene.store.close()
    for first in (0, 20, 40):
        released(other, first)
    shutil.copy(other / "l.sqlite", site / "l.sqlite")
    with pytest.raises(LedgerError, match="not the one that this store's releases were charged to"):
        released(site, 20)
    (site / "l.sqlite").unlink()
    Ledger(site / "l.sqlite").close()  # an empty one
    with pytest.raises(LedgerError, match="not the one that this store's releases were charged to"):
        released(site, 20)


def test_a_replaced_store_leads_to_no_window_twice(site: Path) -> None:
    released(site, 20)
    (site / "s.sqlite").unlink()
    scene = Scene(site / "s.sqlite", 8, FLEET)
    scene.record(*frames([10] * 10))
    scene.store.close()
    with pytest.raises(LedgerError, match="has charged releases of another store"):
        released(site, 20)
    assert charged(site) == 1
    assert resume_ledger(site / "l.sqlite", site / "s.sqlite") == [("watch", "hr", 40)]
    with pytest.raises(LedgerError, match="begins with tick 40"):
        released(site, 20)
    assert released(site, 40) == 2


def test_a_store_that_was_put_back_alone_is_refused(site: Path) -> None:
    """Devices have forgotten the frames that it lacks, and nobody was told."""
    released(site, 0)
    shutil.copy(site / "s.sqlite", site / "backup")
    released(site, 20)
    shutil.copy(site / "backup", site / "s.sqlite")
    with pytest.raises(
        LedgerError, match="the store knows of releases up to entry 1, and entry 2 was published: it is"
    ):
        released(site, 40)
    assert resume_ledger(site / "l.sqlite", site / "s.sqlite") == [("watch", "hr", 40)]
    assert released(site, 40) == 3


def resumed(fugu: Fugu, site: Path, *options: object) -> Done:
    return fugu("gateway", "ledger", "resume", "--ledger", site / "l.sqlite", "--store", site / "s.sqlite", *options)


def test_where_both_were_put_back_no_window_begins_before_the_time_that_the_operator_says(
    fugu: Fugu, site: Path
) -> None:
    """Ticks are seconds since 1970, so that second 39 ends with tick 39."""
    released(site, 0)
    limit = "no release before 1970-01-01T00:00:40Z, as was said when copies were put back"
    done = resumed(fugu, site, "--after", 39)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("watch/hr: releases begin with tick 20\n")
    assert limit in done.out
    assert limit in " ".join(fugu("gateway", "ledger", "show", "--ledger", site / "l.sqlite").out.split())
    with pytest.raises(LedgerError, match=r"ticks 39..58 are refused, because they begin at 1970-01-01T00:00:39Z: no"):
        released(site, 39)
    assert resumed(fugu, site).out.count(limit) == 1  # it stays
    with pytest.raises(LedgerError, match=limit):
        released(site, 20)
    with pytest.raises(FuguError, match="again from tick 65 on"):
        released(site, 64)
    assert released(site, 65) == 2
    assert "agrees" in fugu("check", "ledger", "--ledger", site / "l.sqlite", "--store", site / "s.sqlite").out


@pytest.mark.parametrize("late", [1, 10**6, 10**10])
def test_no_time_in_the_future_is_taken(fugu: Fugu, site: Path, late: int) -> None:
    released(site, 0)
    before = (site / "l.sqlite").read_bytes()
    done = resumed(fugu, site, "--after", int(time.time()) + 60 * late)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "is in the future (by this machine's clock it is " in done.err
    assert (site / "l.sqlite").read_bytes() == before
    assert released(site, 20) == 2
    assert resumed(fugu, site, "--after", int(time.time())).code == 0
    with pytest.raises(LedgerError, match="are refused, because they begin at"):
        released(site, 40)


@pytest.mark.parametrize("lost", ["", "l.sqlite"])
def test_no_time_is_taken_before_a_release_that_ledger_or_store_have(fugu: Fugu, site: Path, lost: str) -> None:
    released(site, 0)
    if lost:
        (site / lost).unlink()
    done = resumed(fugu, site, "--after", 18)
    assert (done.code, done.out) == (1, "")
    assert done.err == "fugu: a release is newer: it ends at 1970-01-01T00:00:20Z; say that time, or a later one\n"
    assert resumed(fugu, site, "--after", 19).code == 0


def test_a_time_is_lowered_to_any_that_is_not_before_the_newest_release_of_the_broker(
    fugu: Fugu, site: Path, own_broker: Mosquitto
) -> None:
    files = {"config": site / "releases.toml", "store": site / "s.sqlite", "ledger": site / "l.sqlite"}
    for name in ("s.sqlite", "l.sqlite"):
        if (site / name).exists():
            shutil.copy(site / name, site / f"copy-{name}")
    release_now(**files, policies=site / "policies", name="active", first=20, broker=own_broker.broker)
    for name in ("s.sqlite", "l.sqlite"):
        for path in site.glob(f"{name}*"):
            path.unlink()
    shutil.copy(site / "copy-s.sqlite", site / "s.sqlite")
    address = own_broker.broker.address
    assert resumed(fugu, site, "--after", int(time.time())).code == 0
    alone = resumed(fugu, site, "--after", 60)
    assert (alone.code, alone.err.count("\n")) == (1, 1)
    assert "to set an earlier time, name the broker too (--broker)" in alone.err
    early = resumed(fugu, site, "--after", 38, "--broker", address)
    assert early.err == "fugu: a release is newer: it ends at 1970-01-01T00:00:40Z; say that time, or a later one\n"
    with pytest.raises(LedgerError, match="are refused, because they begin at"):
        released(site, 40)
    done = resumed(fugu, site, "--after", 39, "--broker", address)
    assert (done.code, done.err) == (0, "")
    with pytest.raises(LedgerError, match="are refused, because they begin at"):
        released(site, 39)
    assert released(site, 65) == 1


def test_a_time_is_not_lowered_where_the_broker_shows_no_release(fugu: Fugu, site: Path, own_broker: Mosquitto) -> None:
    released(site, 0)
    assert resumed(fugu, site, "--after", 60).code == 0
    done = resumed(fugu, site, "--after", 50, "--broker", own_broker.broker.address)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "shows this account no release: name an account of role site" in done.err


def test_a_schedule_goes_on_with_the_first_whole_window_after_the_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(devices=["watch"], length=20))
    bench.ledger.close()
    bench.scene.store.close()
    assert resume_ledger(tmp_path / "l.sqlite", tmp_path / "s.sqlite", 60) == [("watch", "hr", 0)]
    bench.scene = Scene(tmp_path / "s.sqlite", 8, FLEET)
    bench.open()
    bench.work(*frames([10] * 13))
    assert [frame.first for frame in bench.frames] == [100]
    assert bench.counters["releases_refused"] == 1  # next to ticks of which nobody knows what was told


def test_the_doctor_and_the_page_say_before_which_time_there_is_no_release(site: Path) -> None:
    released(site, 0)
    resume_ledger(site / "l.sqlite", site / "s.sqlite", 59)
    limit = no_release_before(60 * 10**6)
    findings = examine(Installation("home", store=site / "s.sqlite", ledger=site / "l.sqlite"))
    assert [finding.text for finding in findings if finding.check == "releases"] == [limit]
    assert LedgerView(site / "l.sqlite").page("", 2**53)["limit"] == limit


def test_a_schedule_goes_on_with_the_first_whole_window_after_what_was_published(tmp_path: Path) -> None:
    bench = Bench(tmp_path, scheduled(devices=["watch"], length=20))
    bench.work(*frames([10] * 10))
    assert [frame.first for frame in bench.frames] == [0, 20, 40, 60]
    bench.schedule._releases.record.note(bench.ledger, 4)
    bench.ledger.close()
    (tmp_path / "l.sqlite").unlink()
    bench.scene.store.close()
    assert resume_ledger(tmp_path / "l.sqlite", tmp_path / "s.sqlite") == [("watch", "hr", 80)]
    bench.scene = Scene(tmp_path / "s.sqlite", 8, FLEET)
    bench.open()
    bench.work(*frames([10] * 20)[10:])
    assert [frame.first for frame in bench.frames] == [120, 140, 160]
    assert bench.counters["releases_refused"] == 2


@pytest.mark.parametrize("lost", ["ledger", "store"])
def test_after_a_clock_that_was_set_a_loss_leaves_no_released_tick_to_be_released_again(
    location: Location, tmp_path: Path, lost: str
) -> None:
    """Ticks of a device are ahead of the windows' by its shift, in the store and in the ledger."""
    with closing(Store(location)) as store, closing(open_ledger(tmp_path / "l.sqlite", "watch", "ring")) as ledger:
        record = ReleaseRecord(store)
        record.bind(ledger)
        record.note(ledger, reserve(ledger, release(0, 99, 1, "watch", "ring", shifts={"watch": 1000})).number)
    with (
        closing(Store(tmp_path / "new.sqlite" if lost == "store" else location)) as store,
        closing(Ledger(tmp_path / ("new.sqlite" if lost == "ledger" else "l.sqlite"))) as ledger,
    ):
        begins = ReleaseRecord(store).resume(ledger)
    assert begins == [("ring", "hr", 100), ("watch", "hr", 1100)]


def test_a_gateway_whose_store_was_given_another_ledger_publishes_nothing(site: Path) -> None:
    """Two ledgers of one store would each allow the whole."""
    with closing(Store(site / "s.sqlite")) as store:
        models = catalogue(FLEET)
        running = open_releases(site / "releases.toml", site / "first.sqlite", store, models)
        released(site, 0)  # with l.sqlite
        with pytest.raises(LedgerError, match="the store has begun another ledger meanwhile"):
            ReleaseRecord(store).note(running.ledger, 1)
        running.ledger.close()


def test_there_is_nothing_to_resume_without_either_file(fugu: Fugu, tmp_path: Path) -> None:
    done = fugu("gateway", "ledger", "resume", "--ledger", tmp_path / "l.db", "--store", tmp_path / "s.db")
    assert (done.code, done.err) == (1, "fugu: there is neither a ledger l.db nor a store s.db\n")
    assert list(tmp_path.iterdir()) == []
