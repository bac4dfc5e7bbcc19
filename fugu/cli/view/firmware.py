"""An image that was built, as JSON or as lines of text."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, astuple

from firmware_sim.build import Image
from fugu.cli.simulation import Result
from fugu.cli.view.terminal import show_table
from fugu.contract.rounding import log_up

__all__ = ["image_document", "show_image", "show_simulation", "simulation_document"]

_OF_TICKS = ("ticks sealed", "received", "unsent", "rotten", "lost")
_COLUMNS = ("", *_OF_TICKS, "windows", "received", "twice", "starts", "refused")


def image_document(image: Image) -> dict[str, object]:
    """What was built, as an object for JSON."""
    return {
        "folder": str(image.folder),
        "epsilon": log_up(image.ratio),
        "randomness": image.randomness,
        "policies": [
            {"bytes": len(compiled), "sha256": hashlib.sha256(compiled).hexdigest()} for compiled in image.compiled
        ],
        "files": dict(image.sizes),
        "bytes": image.size,
    }


def show_image(image: Image) -> None:
    """Print what was built."""
    show_table(f"{image.folder}: {image.size} bytes", ("file", "bytes"), [(n, str(s)) for n, s in image.sizes.items()])
    print(f"The board derives that a stream loses at most epsilon {log_up(image.ratio):.6g}.")
    print(f"Its randomness: {image.randomness}.")
    print("Copy the files to the root of the board, beside a driver.py with a function read().")


def simulation_document(result: Result) -> dict[str, object]:
    """What became of what was sealed, as an object for JSON."""
    return {
        "sound": result.sound,
        "devices": [asdict(one) for one in result.outcomes],
        "faults": [one._asdict() for one in result.faults],
        "gateway": dict(sorted(result.counted.items())),
    }


def show_simulation(result: Result) -> None:
    """Print what became of what was sealed."""
    for fault in result.faults:
        print(f"{fault.at:8.2f} s  {fault.device}: {fault.kind}")
    numbers = [astuple(one)[2:] for one in result.outcomes]
    rows = [(one.device, *map(str, row)) for one, row in zip(result.outcomes, numbers, strict=True)]
    sums = [sum(column) for column in zip(*numbers, strict=True)]
    show_table("What became of what was sealed", _COLUMNS, [*rows, ("all", *map(str, sums))])
    counted = ", ".join(f"{name} {count}" for name, count in sorted(result.counted.items()) if count)
    print(f"The gateway has counted: {counted}.")
    print("Nothing that was sealed is lost, and nothing was drawn twice." if result.sound else "THIS IS NOT SOUND.")
