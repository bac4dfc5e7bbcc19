"""An image that was built, as JSON or as lines of text."""

from __future__ import annotations

import hashlib

from firmware_sim.build import Image
from fugu.cli.view.terminal import show_table
from fugu.contract.rounding import log_up

__all__ = ["image_document", "show_image"]


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
