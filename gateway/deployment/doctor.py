"""Check the installation of a gateway and its broker: examine everything that they need once.

If the gateway is not connected, two empty messages are sent: to a device that does not exist, and as the time.
All clients ignore these messages, but they show whether the access list lets the gateway publish. The broker then drops
the messages that it kept for the gateway; devices send them again.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fugu.contract.errors import FuguError, printable
from fugu.contract.topics import topic_of
from fugu.host import checks
from fugu.host.addresses import is_local
from fugu.host.checks import Finding, Findings, Verdict, shortened_names
from fugu.host.clock import synchronised
from fugu.host.database import LEDGER, REGISTRY, STORE, DatabaseError, FileKind, damage, is_lost, read_header
from fugu.mqtt import Broker
from fugu.mqtt.link import Say, say_nothing
from fugu.mqtt.probe import probe
from gateway.config import GatewayConfig
from gateway.deployment.mosquitto import MAX_KEEP_ALIVE, SPARE_FILES
from gateway.deployment.units import NO_ACCOUNT, shard_accounts
from gateway.estimates.catalogue import Catalogue
from gateway.health.monitor import NotRunningError, ask_gateway
from gateway.releases.config import ReleaseConfig
from gateway.releases.jobs import allowances, jobs
from gateway.releases.ledger import Ledger, no_release_before
from gateway.releases.worth import mechanism_notes, useless_releases
from gateway.store.location import Location, ledger_beside
from gateway.store.store import Store, StoreError

__all__ = ["examine", "mosquitto_version", "read_installation"]

_SOON_DAYS = 7
_NO_DEVICE = "doctor"
_MIN_MOSQUITTO, _SAFE_MOSQUITTO = (2, 0, 11), (2, 0, 21)
_PATCHES = " (before 2.0.21 it needs a distribution's security updates: CVE-2023-0809, CVE-2023-28366, CVE-2023-3592)"
"""Each lets a client use up the broker's memory. Mosquitto's ChangeLog: mended in 2.0.16, but CVE-2023-28366 as a whole
only in 2.0.21. Debian 12 has them in 2.0.11-1.2+deb12u2."""
_DROPPING_VERSION = (2, 0, 21)
_MAX_SHARED = 100
"""The most shared subscriptions of an account without a warning; a reader needs few."""
_MOST_LOG = 1 << 25
_DROP_NOTE = (
    f" (it drops clients that ask for all of max_keepalive, which is {MAX_KEEP_ALIVE} by 'fugu deploy': ask for less)"
)


@dataclass(frozen=True, slots=True)
class Installation:
    """Parts of an installation; a part that is `None` is not examined.

    `accounts` are the shards' connections, by name. `secrets` are files that only their owner may read, besides the
    broker's files. The files `ledger` and `registry` need not exist yet.
    """

    fleet: str
    broker: Broker | None = None
    store: Location | None = None
    policies: Path | None = None
    secrets: tuple[Path, ...] = ()
    accounts: Mapping[str, Broker | None] = field(default_factory=dict)
    ledger: Location | None = None
    registry: Path | None = None
    releases: Path | None = None


def read_installation(file: Path) -> Installation:
    """Read an installation from a gateway's file. FuguError if the file cannot be read, or has a wrong key."""
    config, folder = GatewayConfig.read(file), file.parent
    policies = folder / "policies"
    return Installation(
        config.fleet,
        config.broker,
        config.store,
        policies if policies.is_dir() else config.policies,  # the folder before the gateway is installed
        tuple(folder / file for file in ("rollout-password", "rollout-client.key") if (folder / file).exists()),
        shard_accounts(folder, config.broker),
        None if config.releases is None else config.ledger or ledger_beside(config.store),
        None if config.signed is None else config.signed.registry,
        config.releases,
    )


def examine(installation: Installation, on_waiting: Say = say_nothing) -> list[Finding]:
    """Examine all parts of an installation.

    `on_waiting` is called, in any thread, with the broker and fleet that have not answered for 3 seconds.
    """
    findings = [*checks.versions(), checks.randomness(), checks.clock(time.time(), synchronised())]
    findings += [checks.private_file(file) for file in installation.secrets]
    if installation.policies is not None:
        is_signed = installation.registry is not None
        findings += _check_policies(installation.policies, installation.fleet, time.time(), is_signed=is_signed)
        if installation.releases is not None and any(installation.policies.glob("*.json")):
            findings += _check_releases(installation.releases, installation.policies, installation.fleet)
    is_connected = False
    if installation.store is not None:
        findings += _check_store(installation.store)
        for path, kind in ((installation.ledger, LEDGER), (installation.registry, REGISTRY)):
            if isinstance(path, Path) and path.exists():
                findings += [*checks.private_database(path), _check_pages(path, kind)]
                if kind is LEDGER:
                    findings += _check_ledger_limit(path)
        try:
            report = ask_gateway(installation.store)
            is_connected = report["connected"]
            findings += _report_alarms(report)
        except NotRunningError:
            findings.append(Finding("gateway", "warn", "none runs with this store, or as another account: start it"))
    version = mosquitto_version()
    findings += _check_mosquitto(version)
    if installation.broker is not None:
        for process, config in _running_brokers(installation.broker.port):
            log = _read_log(process)
            findings += [*_check_limits(process, config, version), *_check_shares(log), *_check_helpers(log)]
    for name in ("fugu-gateway.service", "fugu-broker.service"):
        findings += checks.unit(name)
    if installation.broker is not None:
        findings += _probe(installation.broker, installation.fleet, on_waiting, is_connected=is_connected)
        for name, account in installation.accounts.items():
            findings += _check_account(name, account, installation.fleet, is_connected=is_connected)
    return findings


def _check_policies(folder: Path, fleet: str, now: float, *, is_signed: bool) -> Findings:
    if is_signed and folder.is_dir() and not any(folder.glob("*.json")):
        yield Finding("policies", "ok", "none in files: they are in the fleet's registry")
        return
    try:
        catalogue = Catalogue.load(folder, fleet)
    except FuguError as error:
        yield Finding("policies", "FAIL", str(error))
        return
    names = catalogue.names()
    policies = [(catalogue.newest(device, stream), device) for device in names for stream in catalogue.streams(device)]
    ends = [(policy.valid_until, device) for policy, device in policies if policy and policy.valid_until is not None]
    end_time, device = min(ends, default=(math.inf, ""))
    days_left = (end_time - now) / 86_400
    if days_left > _SOON_DAYS:
        yield Finding("policies", "ok", f"of {len(names)} devices, every guarantee holds")
        return
    text = f"that of {device} ends in {days_left:.1f} days: make a newer one"
    yield Finding("policies", "warn" if days_left > 0 else "FAIL", text)


def _check_releases(config: Path, policies: Path, fleet: str) -> Findings:
    """Check that the policies allow each release, and that its answers are better than guessing."""
    try:
        plan, catalogue = ReleaseConfig.load(config), Catalogue.load(policies, fleet)
        release_jobs = jobs(plan, catalogue)
        charges, refusals = allowances(plan, release_jobs, catalogue)
    except FuguError as error:
        yield Finding("releases", "FAIL", str(error))
        return
    yield from (Finding("releases", "ok", f"{name}: {text}") for name, text in mechanism_notes(release_jobs).items())
    problems = useless_releases(release_jobs, charges, catalogue) | refusals
    yield from (Finding("releases", "warn", f"{name}: {reason}") for name, reason in problems.items())
    if not problems:
        yield Finding("releases", "ok", f"{len(plan.releases)}, at least twice as good as guessing where that is known")


def _check_store(store: Location) -> Findings:
    if not isinstance(store, Path):
        try:
            Store(store, create=False).close()
            yield Finding("store", "ok", f"{store} can be reached")
        except StoreError as error:
            yield Finding("store", "FAIL", str(error))
        return
    yield from checks.disk("store", store.parent)
    if not store.exists():
        yield Finding("store", "warn", f"there is none at {store}: start the gateway")
        return
    yield from checks.private_database(store)
    yield _check_pages(store, STORE)


def _check_ledger_limit(file: Path) -> Findings:
    """Report the time before which a ledger refuses releases, if there is one; `_check_pages` reports faults."""
    with contextlib.suppress(FuguError, DatabaseError), closing(Ledger(file, read_only=True)) as ledger:
        if not_before_us := ledger.binding.not_before_us:
            verdict: Verdict = "ok" if not_before_us <= time.time_ns() // 1000 else "warn"
            yield Finding("releases", verdict, no_release_before(not_before_us))


def _check_pages(file: Path, kind: FileKind) -> Finding:
    """Check all pages of a database's file for damage."""
    name = kind.name
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)) as db:
            application, version, tables = read_header(db)
            problem, damage_words = kind.problem(file.name, application, version, tables), damage(db)
    except sqlite3.Error as error:
        if not is_lost(error):
            return Finding(name, "FAIL", f"{file} cannot be read: {error}; run this as the gateway's account")
        problem, damage_words = "", str(error)
    if damage_words:
        return Finding(name, "FAIL", f"it is damaged ({damage_words}): stop the gateway; {kind.remedy}")
    if problem:
        return Finding(name, "FAIL", f"{problem}: say in gateway.toml where the gateway has it")
    if not tables:
        return Finding(name, "warn", f"{file} is empty: the gateway begins anew there")
    return Finding(name, "ok", "intact")


def _report_alarms(report: dict[str, Any]) -> Findings:
    names_by_alarm: dict[tuple[str, str], list[str]] = {}
    for alarm in report["alarms"]:
        names_by_alarm.setdefault((alarm["code"], alarm["advice"]), []).append(alarm["name"])
    for (code, advice), names in names_by_alarm.items():
        yield Finding("gateway", "FAIL", f"alarm {code} {shortened_names(names)}: {advice}")
    if not report["alarms"]:
        yield Finding("gateway", "ok", "it runs, without alarms")


def mosquitto_version() -> tuple[int, int, int] | None:
    """Return the version of the Mosquitto that is installed on this machine; `None` if there is none."""
    program = shutil.which("mosquitto", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
    try:
        help_text = subprocess.run([program or "mosquitto", "-h"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"mosquitto version (\d+)\.(\d+)\.(\d+)", help_text)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def _check_mosquitto(version: tuple[int, int, int] | None) -> Findings:
    """Check the version of the broker's program, if it is on this machine."""
    if version is None:
        return
    version_text = ".".join(map(str, version))
    if version < _MIN_MOSQUITTO:
        yield Finding("Mosquitto", "FAIL", f"{version_text}: install {'.'.join(map(str, _MIN_MOSQUITTO))} or newer")
    elif version < _SAFE_MOSQUITTO:
        yield Finding("Mosquitto", "ok", version_text + _PATCHES)
    else:
        yield Finding("Mosquitto", "ok", version_text + (_DROP_NOTE if version == _DROPPING_VERSION else ""))


def _running_brokers(port: int) -> Iterator[tuple[Path, str]]:
    """Yield each Mosquitto process at a port of this machine, with its configuration, if this account may read it."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().decode().split("\0")
            if Path(arguments[0]).name != "mosquitto" or "-c" not in arguments:
                continue
            config = (process / "cwd" / arguments[arguments.index("-c") + 1]).read_text()
        except (OSError, UnicodeDecodeError, IndexError):  # the process has ended, or is another account's
            continue
        if re.search(rf"^listener {port}\b", config, re.MULTILINE):
            yield process, config


def _check_shares(log: str | None) -> Findings:
    """Name the account with very many shared subscriptions in a Mosquitto's log, if there is one."""
    if log is None:
        return
    subscriptions = set(re.findall(r"^(?:\d+: )?(\S+) [012] (\$share/.*)$", log, re.MULTILINE))
    name, count = next(iter(Counter(name for name, _ in subscriptions).most_common(1)), ("", 0))
    if count > _MAX_SHARED:
        text = f"account {printable(name)[:64]} has shared {count:,} of them: remove it with fugu deploy remove"
        yield Finding("broker's subscriptions", "FAIL", text)
    else:
        yield Finding("broker's subscriptions", "ok", "no account has shared many of them, as far as the log goes back")


def _check_helpers(log: str | None) -> Findings:
    """Warn if a group's helper connects from an address of this machine, by a Mosquitto's log."""
    if log is None:
        return
    names = set(re.findall(r"^(?:\d+: )?(\S+) [012] fugu/2/[^/]+/group/[^/]+/request$", log, re.MULTILINE))
    for name in sorted(names):
        hosts = re.findall(rf"New client connected from (\S+):\d+ as {re.escape(name)} ", log)
        if hosts and is_local(hosts[-1].strip("[]")):
            text = f"{printable(name)[:64]} connects from this machine: site and helper together see single homes"
            yield Finding("helper of a group", "warn", f"{text}; let somebody else run it, elsewhere")
        elif hosts:
            text = f"{printable(name)[:64]} connects from {hosts[-1]}; whose machine that is cannot be told from here"
            yield Finding("helper of a group", "ok", text)


def _read_log(process: Path) -> str | None:
    """Return the newest lines of a process's log, from its file or the journal; `None` if it has neither."""
    try:
        with (process / "fd" / "2").open("rb") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_LOG))
                return file.read(_MOST_LOG).decode(errors="replace")
        command = ["journalctl", f"_PID={process.name}", "--output=cat", "--lines=300000", "--quiet"]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, errors="replace").stdout
    except (OSError, subprocess.SubprocessError):
        return None


def _check_limits(process: Path, config: str, version: tuple[int, int, int] | None) -> Findings:
    """Check how many files a Mosquitto may open, and whether its `max_keepalive` drops connections."""
    keep_alive = re.search(r"^max_keepalive (\d+)$", config, re.MULTILINE)
    if version == _DROPPING_VERSION and keep_alive is not None and 0 < int(keep_alive[1]) < MAX_KEEP_ALIVE:
        text = f"2.0.21 drops connections at max_keepalive {keep_alive[1]}: write {MAX_KEEP_ALIVE}, and restart it"
        yield Finding("broker's keep-alive", "warn", text)
    max_connections = re.search(r"^max_connections (\d+)$", config, re.MULTILINE)
    try:
        open_files = re.search(r"^Max open files +(\w+)", (process / "limits").read_text(), re.MULTILINE)
    except OSError:  # it has ended
        return
    if max_connections is None or open_files is None:
        return
    files = int(max_connections[1]) + SPARE_FILES
    if open_files[1].isdecimal() and int(open_files[1]) <= files:
        yield Finding("broker's connections", "ok", f"at most {open_files[1]} files, before TLS too")
    else:
        text = f"max_connections does not hold before TLS, and it may open {open_files[1]} files"
        yield Finding("broker's connections", "warn", f"{text}: start it with ulimit -n {files}, or by its unit")


def _probe(broker: Broker, fleet: str, on_waiting: Say, *, is_connected: bool) -> Findings:
    certificates = {"authority": broker.ca_file, "client certificate": broker.cert_file}
    yield from checks.credentials((broker.password_file, broker.key_file), certificates, time.time())
    write_topics = [topic_of("committed", fleet, _NO_DEVICE), topic_of("time", fleet)]
    read_topics = [topic_of("status", fleet, "+")]
    answer = probe(
        broker,
        write_topics=write_topics,
        read_topics=read_topics,
        log_in=not is_connected,
        on_wait=lambda reason: on_waiting(f"{reason}; waiting for fleet {fleet}"),
    )
    yield from checks.broker(
        *(broker.address, answer.step, answer.problem),
        end_time=answer.certificate_end,
        writable=dict.fromkeys(write_topics, True) if is_connected else answer.writable_topics,
        now=time.time(),
    )
    if answer.retained_payloads:
        yield Finding("devices", "ok", "their statuses are there to be read")
    elif answer.retained_payloads is not None:
        text = "none has a status at the broker: none has ever run, or this account reads none"
        yield Finding("devices", "warn", text)


def _check_account(name: str, broker: Broker | None, fleet: str, *, is_connected: bool) -> Findings:
    if broker is None:
        yield Finding(name, "FAIL", NO_ACCOUNT)
        return
    certificates = {f"certificate of {name}": broker.cert_file}
    yield from checks.credentials((broker.password_file, broker.key_file), certificates, time.time())
    if is_connected:
        return
    answer = probe(broker, write_topics=[topic_of("committed", fleet, _NO_DEVICE)])
    may_publish = answer.writable_topics is None or all(answer.writable_topics.values())
    if answer.step == "done" and may_publish:
        yield Finding(name, "ok", "the broker knows its account")
    else:
        problem = "its account may not publish" if answer.step == "done" else answer.problem
        yield Finding(name, "FAIL", f"{problem}: see fugu deploy, then install the broker's files anew")
