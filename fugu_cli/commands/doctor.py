"""`fugu doctor`."""

from __future__ import annotations

import tomllib
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

from typer import Argument

from fugu.contract.errors import FuguError
from fugu.host.checks import Finding, has_failure, lines, shortened_names
from fugu.library.report import Line, Result
from fugu_cli.app import check_commands
from fugu_cli.view.terminal import say_waiting, working

__all__ = ["is_gateway_file"]

_AGENT, _GATEWAY = "agent.toml", "gateway.toml"
_AT_ONCE = 8


def doctor(
    files: Annotated[
        list[Path],
        Argument(
            metavar="FILE...",
            help="A device's agent.toml, a gateway's gateway.toml, the folder of either, or the folder of "
            "'fugu deploy fleet'. Of several devices only files and accounts are looked at.",
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
      fugu doctor gateway devices more-devices
    """
    configs = [config for file in files for config in _configs(file)]
    if len(files) > 1:
        return _examine_several({str(config): config for config in configs})
    if configs[0].parent not in (files[0], files[0].parent):
        return _examine_several({config.parent.name: config for config in configs})
    with working("looking at everything"):
        findings = _examine(configs[0])
    document = {"findings": [finding._asdict() for finding in findings]}
    return Result(document, map(Line, lines(findings)), 1 if has_failure(findings) else 0)


def _configs(file: Path) -> list[Path]:
    """Return a file itself, the configuration in a folder, or the configurations of devices in a folder."""
    if not file.is_dir():
        return [file]
    for pattern in (_AGENT, _GATEWAY, f"*/{_AGENT}"):
        if configs := sorted(file.glob(pattern)):
            return configs
    raise FuguError(
        f"{file} has no {_AGENT} and no {_GATEWAY}. Name a device's or gateway's folder (a broker is looked at "
        "through theirs), or the one in which 'fugu deploy fleet' wrote its devices"
    )


def _examine(config: Path, *, runs_elsewhere: bool = False) -> list[Finding]:
    """Examine an installation; of a device that will run `runs_elsewhere` only its files and accounts."""
    if is_gateway_file(config):
        from gateway.deployment.doctor import examine, read_installation

        return examine(read_installation(config), say_waiting)
    from edge_agent.doctor import examine as examine_device

    return examine_device(config, say_waiting, elsewhere=runs_elsewhere)


def _examine_several(configs: dict[str, Path]) -> Result:
    """Examine gateways, and devices that will run on other machines; equal findings share a line."""
    # Processes, since `examine` forks, which threads cannot; and the pool reports a process that dies.
    with ProcessPoolExecutor(min(len(configs), _AT_ONCE), get_context("fork")) as pool:
        try:
            findings = dict(zip(configs, pool.map(_examine_in_child, configs.values()), strict=True))
        except BrokenProcessPool:
            raise FuguError("a process that looked at a folder has died: try again, or look at one folder") from None
    failures = [name for name, folder_findings in findings.items() if has_failure(folder_findings)]
    names_by_finding: dict[Finding, list[str]] = {}
    for name, folder_findings in findings.items():
        for finding in folder_findings:
            if finding.verdict != "ok":
                names_by_finding.setdefault(finding, []).append(name)
    report = [Line(f"{lines([finding])[0]} [{shortened_names(names)}]") for finding, names in names_by_finding.items()]
    report.append(Line(f"{len(findings) - len(failures)} of {len(findings)} work"))
    document = {name: [finding._asdict() for finding in folder_findings] for name, folder_findings in findings.items()}
    return Result(document, report, 1 if failures else 0)


def _examine_in_child(config: Path) -> list[Finding]:
    """Examine an installation in a process of its own; an error becomes a finding."""
    try:
        return _examine(config, runs_elsewhere=True)
    except FuguError as error:
        return [Finding("configuration", "FAIL", f"{error}")]


def is_gateway_file(file: Path) -> bool:
    """Return whether a file is a gateway's, by its name or by the key `store`, which no agent's file has."""
    with suppress(OSError, ValueError, RecursionError):
        return file.name == _GATEWAY or "store" in tomllib.loads(file.read_text())
    return file.name == _GATEWAY


check_commands(__name__)
