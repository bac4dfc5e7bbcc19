"""Checks of an installation and its machine. Each finding is a line that also says what to do."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from glob import escape
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Literal, NamedTuple

from fugu.contract.errors import cause
from fugu.host.files import CERTIFICATE_DAYS, certificate_validity

__all__ = [
    "Finding",
    "Findings",
    "Verdict",
    "broker",
    "certificate",
    "clock",
    "credentials",
    "disk",
    "has_failure",
    "lines",
    "loopback_only",
    "private_database",
    "private_file",
    "randomness",
    "shortened_names",
    "unit",
    "versions",
]

Verdict = Literal["ok", "warn", "FAIL"]
_DAY = 86_400
_NAMED = 5
_EARLIEST = 1_704_067_200  # the beginning of 2024; this program is younger
_LOW_BYTES, _NO_BYTES = 256 << 20, 16 << 20
_FEW_FILES = 100
_RANDOM_BYTES = 4096
_MARKS = frozenset({".pause", ".damaged"})
"""Files beside a database that hold nothing private, and may belong to another account."""
_ODD_BITS = 543  # six standard deviations of the number of ones in 4096 random bytes
_VOLATILE = frozenset({"tmpfs", "ramfs"})
_DISTRIBUTION = "fugu-edge"
_REMEDIES = {
    "address": "look at the address, and at the files that it needs",
    "connection": "is the broker running, and does the network let this machine reach it?",
    "TLS": "the certificate must be of the authority that is trusted, name this host, and be valid now",
    "login": "look at user name, password and certificate, and at the broker's log",
}


class Finding(NamedTuple):
    """Result of a check: its name, its verdict, and the facts, with what to do unless the verdict is "ok"."""

    check: str
    verdict: Verdict
    text: str


Findings = Iterator[Finding]


def has_failure(findings: Iterable[Finding]) -> bool:
    """True if a finding says that the installation does not work."""
    return any(finding.verdict == "FAIL" for finding in findings)


def shortened_names(names: Sequence[str]) -> str:
    """Join the first five names with commas, and say how many more there are."""
    more_words = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more_words


def lines(findings: Iterable[Finding]) -> list[str]:
    """Return each finding as a line."""
    return [f"{finding.verdict:<4} {finding.check}: {' '.join(finding.text.split())}" for finding in findings]


def randomness(read_random: Callable[[int], bytes] = lambda count: os.getrandom(count, os.GRND_NONBLOCK)) -> Finding:
    """Check whether the kernel gives random bytes without waiting, and whether they look random."""
    try:
        sample, second_sample = read_random(_RANDOM_BYTES), read_random(_RANDOM_BYTES)
    except BlockingIOError:
        return Finding("randomness", "FAIL", "the kernel has none yet: wait, or give the machine a hardware generator")
    ones = int.from_bytes(sample, "big").bit_count()
    if sample == second_sample or abs(ones - 4 * len(sample)) > _ODD_BITS or len(sample) != _RANDOM_BYTES:
        return Finding("randomness", "FAIL", f"{ones} ones in {8 * len(sample)} bits is not random: trust no guarantee")
    return Finding("randomness", "ok", "the kernel gives it without waiting")


def clock(now: float, is_synchronised: bool) -> Finding:
    """Check whether the wall clock can be right; `now` is its Unix time in seconds."""
    date = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if now < _EARLIEST:
        return Finding("clock", "FAIL", f"it says {date}: set it, and let NTP keep it (timedatectl set-ntp true)")
    if not is_synchronised:
        return Finding("clock", "warn", f"{date}; not known to be synchronised: timedatectl set-ntp true, or chrony")
    return Finding("clock", "ok", f"{date}, synchronised")


def disk(label: str, folder: Path, *, mounts_file: Path = Path("/proc/self/mountinfo")) -> Findings:
    """Check whether a folder takes files that outlast a restart, and how much room is left."""
    name = f"disk of {label}"
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
            file.write(b"\0" * _RANDOM_BYTES)
            file.flush()
            os.fsync(file.fileno())
        disk_status = os.statvfs(folder)
    except OSError as error:
        yield Finding(name, "FAIL", f"{folder} takes no file: {error.strerror}; run this as the service's account")
        return
    free_bytes = disk_status.f_bavail * disk_status.f_frsize
    space_words = f"{free_bytes / 1e6:.0f} MB free in {folder}"
    if free_bytes < _NO_BYTES or (disk_status.f_files and disk_status.f_favail < _FEW_FILES):
        yield Finding(name, "FAIL", f"{space_words}, {disk_status.f_favail} files more: make room")
    elif free_bytes < _LOW_BYTES:
        yield Finding(name, "warn", f"{space_words}: make room before it is full")
    else:
        yield Finding(name, "ok", space_words)
    if (file_system := _file_system(folder, mounts_file)) in _VOLATILE:
        yield Finding(name, "FAIL", f"{folder} is on {file_system}, which a restart empties: choose a folder on a disk")


def private_file(path: Path) -> Finding:
    """Check whether a secret file exists, and nobody but its owner may read it."""
    name = f"file {path.name}"
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return Finding(name, "FAIL", f"{path} cannot be read: {error.strerror}")
    if mode & 0o077:
        return Finding(name, "FAIL", f"others may read it (mode {mode:04o}): chmod 600 {path}")
    return Finding(name, "ok", "private: only its owner can read it")


def private_database(path: Path) -> Findings:
    """Check whether only its owner may read a database's file, and the logs, sockets and copies beside it."""
    yield private_file(path)
    for file in sorted(path.parent.glob(f"{escape(path.name)}?*")):
        if file.suffix not in _MARKS and (finding := private_file(file)).verdict != "ok":
            yield finding


def credentials(secrets: Iterable[str | Path | None], certificates: Mapping[str, str | None], now: float) -> Findings:
    """Check the secret files and the certificates, by label, of an account; `None` stands for one that it has not."""
    yield from (private_file(Path(file)) for file in secrets if file is not None)
    yield from (certificate(label, Path(file), now) for label, file in certificates.items() if file is not None)


def certificate(label: str, path: Path, now: float) -> Finding:
    """Check how long the certificate in a file is still valid; `now` is Unix time in seconds."""
    try:
        begin_time, end_time = certificate_validity(path)
    except (OSError, ValueError) as error:
        return Finding(label, "FAIL", f"{path} cannot be read as a certificate: {cause(error)}")
    if now < begin_time:
        return Finding(label, "FAIL", f"{path} is not valid yet: is the clock right?")
    return certificate_left(label, end_time, now)


def certificate_left(label: str, end_time: float, now: float) -> Finding:
    """Check how long a certificate that ends at `end_time` is still valid; times are Unix seconds."""
    if now >= end_time:
        return Finding(label, "FAIL", "it has ended: renew it (fugu deploy)")
    days = int((end_time - now) / _DAY)
    if days < CERTIFICATE_DAYS:
        return Finding(label, "warn", f"{days} days left: renew it (fugu deploy)")
    return Finding(label, "ok", f"{days} days left")


def broker(
    address: str, step: str, problem: str, *, end_time: float | None, writable: Mapping[str, bool] | None, now: float
) -> Findings:
    """Judge the step that a connection reached, and the topics that may be published; arguments as of `Probe`."""
    if is_reached := step == "done":
        yield Finding("broker", "ok", f"{address} accepts the connection")
    else:
        yield Finding("broker", "FAIL", f"{problem}: {_REMEDIES[step]}")
    if end_time is not None:
        yield certificate_left("broker's certificate", end_time, now)
    elif is_reached and address.rpartition(":")[0] not in ("127.0.0.1", "localhost", "[::1]"):
        yield Finding("TLS", "warn", "it is off: whoever is on the network reads passwords (fugu deploy)")
    if not is_reached:
        return
    if writable is None:
        yield Finding("access list", "ok", "MQTT 3.1.1 does not tell whether messages are taken")
    elif refused_topics := ", ".join(sorted(topic for topic, accepted in writable.items() if not accepted)):
        refusal = f"the account may not publish {refused_topics}: see fugu deploy, then install the broker's files anew"
        yield Finding("access list", "FAIL", refusal)
    else:
        yield Finding("access list", "ok", f"{len(writable)} topics may be published")


def unit(name: str, show_unit: Callable[[str], str] | None = None) -> Findings:
    """Check a systemd unit; no findings where systemd does not run, or has not loaded the unit.

    `show_unit` returns the properties of the unit with this name, as lines NAME=VALUE.
    """
    properties = dict(line.split("=", 1) for line in (show_unit or _unit_state)(name).splitlines() if "=" in line)
    if properties.get("LoadState") != "loaded":
        return
    if properties.get("ActiveState") != "active":
        yield Finding(name, "FAIL", f"it is {properties.get('ActiveState')}: journalctl -u {name}")
    elif int(properties.get("NRestarts") or 0) > 0:
        yield Finding(name, "warn", f"systemd has started it {properties['NRestarts']} x anew: journalctl -u {name}")
    else:
        yield Finding(name, "ok", "it runs")
    if properties.get("WatchdogUSec", "0") == "0" and properties.get("Type") == "notify":
        yield Finding(name, "warn", "it has no watchdog: install the unit that fugu deploy writes")


def versions(requirements: Iterable[str] | None = None) -> Findings:
    """Check the versions of Python and of libraries; `requirements` (`name>=1.2,<3`) are by default this program's."""
    yield Finding("Python", "ok", ".".join(map(str, sys.version_info[:3])))
    if requirements is None:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            requirements = [line for line in importlib.metadata.requires(_DISTRIBUTION) or () if ";" not in line]
    for requirement in requirements or ():
        match = re.match(r"([A-Za-z0-9_.-]+)(.*)", requirement)
        assert match is not None
        name, limits = match[1], match[2]
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "FAIL", f"it is not installed: pip install '{requirement}'")
            continue
        if all(_fits_limit(version, limit) for limit in limits.split(",") if limit):
            yield Finding(name, "ok", version)
        else:
            yield Finding(name, "FAIL", f"{version}, not {limits}: pip install '{requirement}'")


def _unit_state(name: str) -> str:
    command = ["systemctl", "show", name, "-p", "LoadState,ActiveState,NRestarts,WatchdogUSec,Type"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _fits_limit(version: str, limit: str) -> bool:
    match = re.fullmatch(r"\s*(>=|<)\s*([0-9.]+)\s*", limit)  # the requirements of this program have no other form
    return match is None or (_version_numbers(version) >= _version_numbers(match[2])) == (match[1] == ">=")


def _version_numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(\.[0-9]+)*", version)
    return tuple(int(digits) for digits in match[0].split(".")) if match else ()


def _file_system(folder: Path, mounts_file: Path) -> str:
    real_folder, part_count, system_type = folder.resolve(), -1, ""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in mounts_file.read_text().splitlines():
            mount_fields, _, type_fields = line.partition(" - ")
            mount_point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), mount_fields.split()[4]))
            if real_folder.is_relative_to(mount_point) and len(mount_point.parts) >= part_count:
                part_count, system_type = len(mount_point.parts), type_fields.split()[0]
    return system_type


_LISTEN_STATE = "0A"
"""TCP_LISTEN in the kernel's tables."""


def loopback_only(label: str, port: int, *, net_folder: Path = Path("/proc/net")) -> Finding:
    """Check whether a TCP port of this machine can be reached from this machine only."""
    addresses = listening_addresses(port, net_folder)
    if addresses is None:
        return Finding(label, "warn", "this system does not say where it listens: see to it that it is 127.0.0.1 only")
    if not addresses:
        return Finding(label, "warn", f"nothing listens on port {port}: start it, or look at the port")
    open_addresses = sorted(str(address) for address in addresses if not address.is_loopback)
    if open_addresses:
        warning = (
            f"it listens on {', '.join(open_addresses)} port {port}: whoever reaches that may read raw readings. "
            f"For Mosquitto: listener {port} 127.0.0.1"
        )
        return Finding(label, "warn", warning)
    return Finding(label, "ok", f"port {port} is open to this machine only")


def listening_addresses(port: int, net_folder: Path) -> set[IPv4Address | IPv6Address] | None:
    """Return the addresses at which any process listens on a TCP port; `None` if the system does not say."""
    addresses: set[IPv4Address | IPv6Address] = set()
    has_table = False
    for name in ("tcp", "tcp6"):
        try:
            socket_lines = (net_folder / name).read_text().splitlines()[1:]
        except OSError:
            continue
        has_table = True
        for _, local_address, _, state, *_ in map(str.split, socket_lines):
            digits, _, port_digits = local_address.partition(":")
            if state == _LISTEN_STATE and int(port_digits, 16) == port:
                words = (int(digits[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(digits), 8))
                address = ip_address(b"".join(words))
                addresses.add(getattr(address, "ipv4_mapped", None) or address)
    return addresses if has_table else None
