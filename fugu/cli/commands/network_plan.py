"""The work of `fugu plan network`: a file to a plan, a plan to terminal or JSON."""

from __future__ import annotations

import json
from pathlib import Path

from fugu.cli.commands import arguments
from fugu.cli.view.network_plan import network_document, show_network_plan
from fugu.cli.view.terminal import working
from fugu.planning.network_plan import plan_network
from fugu.planning.network_spec import read_network

__all__ = ["plan_network_file"]


def plan_network_file(file: Path, epsilon: float | None, *, as_json: bool) -> None:
    """Plan one release over a network, and print what each mechanism needs.

    Raises:
        FuguError: the file cannot be used, or nothing in it is a secret.
        OSError: it cannot be read.
    """
    spec = read_network(file, None if epsilon is None else arguments.positive(epsilon, "epsilon"))
    with working("planning a release over a network"):
        plan = plan_network(spec)
    if as_json:
        print(json.dumps(network_document(spec, plan), indent=2))
    else:
        show_network_plan(spec, plan)
