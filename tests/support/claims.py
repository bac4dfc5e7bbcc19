"""Processes that claim parts of a fleet's gateway: forks of the server of programs, as tests have threads."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from fugu.host.terminal import LogSettings
from fugu.mqtt import Broker
from gateway.cluster import cluster as part_module
from gateway.cluster.cluster import PartJob, serve_part
from gateway.store.location import Server
from tests.support.forks import shell_words
from tests.support.gateway_files import gateway_config

__all__ = ["claiming", "serve_shard"]

_ROOT = Path(__file__).parents[2]


def claiming(part: Callable[[str, str], None], server: Server, folder: Path) -> subprocess.Popen[str]:
    """A function of this module as a process, with pipes as its input and output: given are a store and a folder."""
    program = f"from {__name__} import {part.__name__} as part; part({server.url!r}, {str(folder)!r})"
    return subprocess.Popen([*shell_words(), "-c", program], stdin=-1, stdout=-1, text=True, cwd=_ROOT)


def serve_shard(url: str, folder: str) -> None:
    """Serve a part; its input is all that it has of its host."""
    settings = gateway_config("home", Broker(port=1), Server(url), Path(folder) / "policies")
    part_module._ORDER_SECONDS = 0.1
    serve_part(PartJob(settings, 2, Path(folder), LogSettings()), "shard-0", Connection(0, writable=False))
