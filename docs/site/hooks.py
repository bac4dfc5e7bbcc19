"""Hooks of the site: pages that the code writes, and links that leave the manual for the repository."""

from __future__ import annotations

import io
import json
import os
import re
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

import fugu
from fugu_cli import edge
from fugu_cli.app import COMMANDS, load
from fugu_cli.main import main

ROOT = Path(__file__).parents[2]
SOURCE = "https://example.org/fugu-edge/src/main"
_FENCE = re.compile(r"^```(\w+) [^\n]*$", re.MULTILINE)
_LINK = re.compile(r"\]\((\.\./[^)#\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are written by code."""
    pages = {"commands.md": commands(), "names.md": names(), "notebook.md": notebook(), "index.md": index()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Options of code blocks are for tests; links out of the manual lead to the source, which must be there."""
    folder = ROOT / "docs" / Path(page.file.src_uri).parent

    def leads(match: re.Match[str]) -> str:
        target = (folder / match[1]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return match[0]
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {match[1]}")
        return f"]({SOURCE}/{target.relative_to(ROOT)})"

    return _LINK.sub(leads, _FENCE.sub(r"```\1", markdown))


def commands() -> str:
    """Every command with the help that it prints."""
    os.environ["COLUMNS"] = "100"
    words = [one for one in COMMANDS if one not in ("agent", "fleet")]
    words += [f"fleet {name}" for name in load("fleet").commands]
    parts = ["# Commands", "What `--help` says of each command, written by the commands themselves."]
    for one in [*sorted(words), *(f"agent {name}" for name in edge.AGENT)]:
        said = io.StringIO()
        with redirect_stdout(said), suppress(SystemExit):
            main([*one.split(), "--help"])
        parts.append(f"## fugu {one}\n\n```text\n{said.getvalue().strip()}\n```")
    return "\n\n".join(parts) + "\n"


def names() -> str:
    """The names of the library, from their docstrings."""
    about = "All that `import fugu` gives. [A heart rate in Python](python.md) uses most of it."
    entries = (f"::: fugu.{name}" for name in sorted(fugu.__all__, key=str.lower))
    return "\n\n".join(["# The twenty names", about, *entries]) + "\n"


def notebook() -> str:
    """The notebook as a page."""
    cells = json.loads((ROOT / "docs/notebooks/home.ipynb").read_text(encoding="utf-8"))["cells"]
    parts = ((cell["cell_type"], "".join(cell["source"])) for cell in cells)
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in parts)


def index() -> str:
    """The README, whose links are relative to the repository."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\((?!docs/|[a-z]+:)([^)#\s]+)\)", r"](../\1)", text)
    return text.replace("](docs/", "](")
