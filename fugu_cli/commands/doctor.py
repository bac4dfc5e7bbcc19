"""`fugu doctor`."""

from __future__ import annotations

import tomllib
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from fugu.contract.errors import FuguError
from fugu.host.checks import Finding, failed, lines, some_names
from fugu.library.report import Line, Result
from fugu_cli.app import command
from fugu_cli.view.terminal import say_waiting, working

__all__ = ["of_gateway"]

doctor = typer.Typer(rich_markup_mode=None, add_completion=False)
_AGENT, _GATEWAY = "agent.toml", "gateway.toml"
_AT_ONCE = 8


@command(doctor, shows=True)
def _doctor(
    file: Annotated[
        Path,
        Argument(
            metavar="FILE",
            help="A device's agent.toml, a gateway's gateway.toml, the folder of either, or the folder of "
            "'fugu deploy fleet', of whose devices the files and accounts are looked at.",
        ),
    ],
) -> Result:
    """Look at an installation, and say what to do.

    Exit code 1 if something does not work.

    \b
    examples:
      fugu doctor agent.toml
      fugu doctor gateway.toml
      fugu doctor /etc/fugu-gateway
      fugu doctor devices
    """
    if file.is_dir():
        alone = any((file / name).exists() for name in (_AGENT, _GATEWAY))
        if not alone and (folders := sorted(config.parent for config in file.glob(f"*/{_AGENT}"))):
            return _devices(folders)
        if not alone:
            raise FuguError(
                f"{file} has no {_AGENT} and no {_GATEWAY}: name a device's or gateway's folder (a broker is looked at "
                "through theirs), or the one in which 'fugu deploy fleet' wrote its devices"
            )
        file /= _AGENT if (file / _AGENT).exists() else _GATEWAY
    if of_gateway(file):
        from gateway.deployment.doctor import examine, installed

        installation = installed(file)
        with working("looking at everything"):
            findings = examine(installation, say_waiting)
    else:
        from edge_agent.doctor import examine as examine_device

        findings = examine_device(file, say_waiting)
    document = {"findings": [finding._asdict() for finding in findings]}
    return Result(document, map(Line, lines(findings)), 1 if failed(findings) else 0)


def _devices(folders: list[Path]) -> Result:
    """Look at folders that go onto other machines; findings that several devices share are one line."""
    # A thread cannot fork as `examine` does; and whoever waits for a pool is told if one of its processes dies.
    with ProcessPoolExecutor(min(len(folders), _AT_ONCE), get_context("fork")) as pool:
        try:
            findings = dict(zip((folder.name for folder in folders), pool.map(_device, folders), strict=True))
        except BrokenProcessPool:
            raise FuguError("a process that looked at a device has died: try again, or look at one device") from None
    failures = [name for name, of_device in findings.items() if failed(of_device)]
    shared: dict[Finding, list[str]] = {}
    for name, of_device in findings.items():
        for finding in of_device:
            if finding.verdict != "ok":
                shared.setdefault(finding, []).append(name)
    report = []
    for finding, names in shared.items():
        report.append(Line(f"{lines([finding])[0]} [{some_names(names)}]"))
    report.append(Line(f"{len(findings) - len(failures)} of {len(findings)} devices work"))
    document = {name: [finding._asdict() for finding in of_device] for name, of_device in findings.items()}
    return Result(document, report, 1 if failures else 0)


def _device(folder: Path) -> list[Finding]:
    from edge_agent.doctor import examine

    try:
        return examine(folder / _AGENT, say_waiting, elsewhere=True)
    except FuguError as error:
        return [Finding("configuration", "FAIL", f"{error}")]


def of_gateway(file: Path) -> bool:
    """True if a file is a gateway's: by its name, or by a key that no agent's has."""
    with suppress(OSError, ValueError, RecursionError):
        return file.name == _GATEWAY or "store" in tomllib.loads(file.read_text())
    return file.name == _GATEWAY
