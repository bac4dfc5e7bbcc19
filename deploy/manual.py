#!/usr/bin/env python3
"""Pages for `man`, from what the commands say of themselves.

Usage: deploy/manual.py DIR      (with what the gateway needs installed; writes a page for each command of `fugu`)
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

__all__ = ["page"]


def page(name: str, section: int, about: str, text: str) -> str:
    """Build a page in roff.

    Args:
        name: Of the page, such as "fugu-plan-auto".
        section: Of the manual; 1 for commands, 8 for services.
        about: One line.
        text: The help of the command, as it is printed.
    """
    body = _escaped(text).replace("\n.", "\n\\&.")
    head = f".TH {_escaped(name.upper())} {section}\n.SH NAME\n{_escaped(name)} \\- {_escaped(about)}\n"
    return f"{head}.SH USE\n.nf\n{body}.fi\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


def main() -> int:
    """Write the pages of all commands."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    from fugu_cli import main as fugu
    from fugu_cli.app import COMMANDS

    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for words, (_, about) in {"": ("", "Private sensor streams."), **COMMANDS}.items():
        name = "-".join(["fugu", *words.split()])
        with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
            fugu.main([*words.split(), "--help"])
        (out / f"{name}.1").write_text(page(name, 1, about.rstrip("."), printed.getvalue()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
