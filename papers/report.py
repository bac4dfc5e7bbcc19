"""`python -m papers`: targets by name, a report as one HTML file that needs nothing else, and tables as CSV."""

from __future__ import annotations

import csv
import io
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path

from fugu.contract.errors import UsageError
from fugu_cli.view.terminal import say, show_table, working
from papers.chart import CHART_STYLE, line_chart
from papers.rows import Chart, Drawing, Found, Row, Setting, Target, Value
from papers.targets import TARGETS

__all__ = ["chosen_targets", "csv_files", "html_report", "list_targets", "reproduce"]

_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:1.5em auto;padding:0 1em;color:#222;background:#fff;
overflow-wrap:break-word}
h1{font-size:1.4em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse;width:100%;font-size:.92em}
th,td{text-align:left;vertical-align:top;padding:.25em .6em;border-bottom:1px solid #e2e2e2}
th.number,td.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td .small{display:block}
tr.differs td:nth-child(4){color:#b83227;font-weight:600}.small{color:#555;font-size:.9em}
figure{display:inline-block;width:min(100%,520px);margin:1em .5em 0 0;vertical-align:top}
figcaption{font-weight:600;margin-bottom:.3em}svg{width:100%;height:auto}ul{padding:0;margin:.3em 0}
code{background:#f2f4f5;padding:0 .2em}nav a{display:inline-block;margin-right:.7em}
@media(max-width:720px){figure{margin:1em 0 0}tr:first-child{display:none}
table,tbody,tr,td,td.number{display:block;text-align:left;white-space:normal}
tr{border-bottom:1px solid #e2e2e2;padding:.4em 0}td{border:0;padding:0}td:first-child{font-weight:600}
td:nth-child(2):not(:empty)::before{content:"paper: "}td:nth-child(3):not(:empty)::before{content:"ours: "}
td .small{display:inline}}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#16191c}.small{color:#aaa}code{background:#2a2f33}
th,td,tr{border-color:#3a3f44}a{color:#7fb2f0}tr.differs td:nth-child(4){color:#ff8d80}}
"""
_HEAD = (
    "The paper's number, ours, and why they differ. Agreement is within the paper's own error: half a unit of its last "
    "digit, the rounding of its formula, or the interval of our estimate. Limits (at most, at least) are the "
    "paper's claims. What this program computed by a formula or claim of the paper is marked 'our number'. Where a "
    "difference is a correction, the command named beside it enumerates a counterexample."
)
_BASES = {
    "printed": "",
    "formula": "its formula",
    "claim": "its claim",
    "log": "its authors' program",
    "in kind": "its claim, on other data",
    "picture": "a picture without numbers",
    "other data": "other data or machine",
    "ours": "",
}
_COLUMNS = (
    *("target", "quantity", "paper", "basis", "limit", "tolerance", "ours", "low", "high", "status"),
    *("explanation", "counterexample", "paper_is_ours"),
)


def list_targets() -> None:
    """Print every target and what it is."""
    show_table("Targets", ("target", "what"), [(name, target.title) for name, target in TARGETS.items()])


def chosen_targets(words: Sequence[str]) -> list[Target]:
    """The targets that were named: by name, by the beginning of names up to a hyphen, or all.

    Raises:
        UsageError: nothing is named, or what is not there.
    """
    if not words:
        raise UsageError("name targets, or all; 'python -m papers --list' names them")
    names: set[str] = set()
    for word in words:
        some = {name for name in TARGETS if word in ("all", name) or name.startswith(f"{word}-")}
        if not some:
            raise UsageError(f"no target {word!r}; 'python -m papers --list' names them")
        names |= some
    return [target for name, target in TARGETS.items() if name in names]


def reproduce(targets: Sequence[Target], out: Path, setting: Setting) -> dict[str, Counter[str]]:
    """Find targets, write the report and the CSV files, and print how many rows agree.

    Args:
        out: folder, made if it is not there.
        setting: what targets work with.

    Returns:
        For each target: how many rows agree, differ, and have no number of a paper.

    Raises:
        OSError: it cannot be written.
    """
    results: dict[str, tuple[Target, Found]] = {}
    started = time.monotonic()
    with working("reproducing", measured=True) as progress:
        for place, target in enumerate(targets):
            tell = partial(_tell, progress, target.name, place / len(targets))
            tell("")
            results[target.name] = target, target.find(replace(setting, progress=tell))
    words = f"{len(targets)} targets{', quick' if setting.quick else ''}, {time.monotonic() - started:.0f} s."
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.html").write_text(html_report(results, words), encoding="utf-8")
    for name, text in csv_files(results).items():
        (out / name).write_text(text, encoding="utf-8")
    counts = {name: Counter[str](row.status for row in result.rows) for name, (_, result) in results.items()}
    kinds = ("agrees", "differs", "no number")
    shown = [(name, *(str(counts[name][kind]) for kind in kinds), results[name][0].title) for name in results]
    show_table("", ("target", "agree", "differ", "no number", "what"), shown)
    say(f"{words} {out / 'report.html'} has every number, and why those differ that do.")
    return counts


def _tell(report_progress: Callable[..., None], name: str, share: float, part: str) -> None:
    report_progress(f"{name} {part}".strip(), share)


def html_report(results: Mapping[str, tuple[Target, Found]], setting: str) -> str:
    """The report as HTML.

    Args:
        results: by target, in order.
        setting: what was run, in words.
    """
    links = "".join(f'<a href="#{name}">{name}</a>' for name in results)
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>The papers' figures and tables, and ours</title><style>{_STYLE}{CHART_STYLE}</style>",
        f"<h1>The papers' figures and tables, and ours</h1><p>{_HEAD}</p><p>{escape(setting)}</p><nav>{links}</nav>",
    ]
    for name, (target, result) in results.items():
        parts.append(f'<h2 id="{name}">{name}: {escape(target.title)}</h2>')
        parts += [f'<p class="small">{escape(note)}</p>' for note in result.notes]
        if result.rows:
            parts.append(
                '<table><tr><th>quantity</th><th class="number">paper</th><th class="number">ours</th><th></th>'
                "<th>why they differ</th></tr>"
            )
            parts += [_row(row) for row in result.rows]
            parts.append("</table>")
        parts += [_figure(picture) for picture in result.pictures]
    return "\n".join([*parts, "</html>"]) + "\n"


def csv_files(results: Mapping[str, tuple[Target, Found]]) -> dict[str, str]:
    """Texts of files by name: all rows, and the points of every chart."""
    rows = [(name, *_cells(row)) for name, (_, result) in results.items() for row in result.rows]
    files = {"rows.csv": _csv(_COLUMNS, rows)}
    for name, (_, result) in results.items():
        charts = [picture for picture in result.pictures if isinstance(picture, Chart)]
        for number, chart in enumerate(charts, 1):
            points = [(line.name, *point) for line in chart.lines for point in zip(line.x, line.y, strict=True)]
            files[f"{name}-{number}.csv"] = _csv(("line", chart.x_axis, chart.y_axis), points)
    return files


def _row(row: Row) -> str:
    parts = (_BASES[row.basis], row.limit, "our number" * row.computed)
    words = [part for part in parts if part] if row.paper is not None else []
    paper = _BASES[row.basis] if row.paper is None else _shown(row.paper)
    about = f' <span class="small">({escape(", ".join(words))})</span>' if words else ""
    ours = _shown(row.ours)
    if row.interval is not None:
        ours += f' <span class="small">{row.interval[0]:.4g} to {row.interval[1]:.4g}</span>'
    why = "" if row.status == "agrees" else escape(row.why)
    if row.status == "differs" and row.counterexample:
        why += f" <code>python -m papers {escape(row.counterexample)}</code>"
    status = "" if row.status == "no number" else row.status
    return (
        f'<tr class="{row.status.replace(" ", "-")}"><td>{escape(row.quantity)}</td>'
        f"<td{_aligned(row.paper)}>{paper}{about}</td><td{_aligned(row.ours)}>{ours}</td>"
        f"<td>{status}</td><td>{why}</td></tr>"
    )


def _aligned(value: Value | None) -> str:
    return "" if isinstance(value, str) else ' class="number"'


def _shown(value: Value) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.10g}"


def _figure(picture: Chart | Drawing) -> str:
    drawn = line_chart(picture) if isinstance(picture, Chart) else picture.svg
    return f"<figure><figcaption>{escape(picture.title)}</figcaption>{drawn}</figure>"


def _cells(row: Row) -> tuple[object, ...]:
    low, high = row.interval or ("", "")
    paper = "" if row.paper is None else row.paper
    return (
        *(row.quantity, paper, row.basis, row.limit, row.tolerance, row.ours, low, high, row.status),
        *(row.why, row.counterexample, "yes" * row.computed),
    )


def _csv(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
