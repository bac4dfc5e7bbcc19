"""The demo's report: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from html import escape

from fugu.demo.counts import GroupRelease, LedgerLines
from fugu.demo.evaluation import DeviceResult, Result
from fugu.demo.svg import AttackBars, attack_picture, stream_picture

__all__ = ["html_report", "overview_picture"]

_SHOWN_TICKS = 400
_CSS = """
body{font:16px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}.bad{color:#c0392b;font-weight:600}.good{color:#0a7d5a;font-weight:600}
figure{margin:1.5em 0}figcaption{color:#555;font-size:.9em}
"""


def overview_picture(results: Sequence[DeviceResult]) -> str:
    """The attackers' picture."""
    return attack_picture(
        [
            AttackBars(
                f"{r.person.device}, epsilon {r.person.epsilon:g}",
                *(r.attack.promised, r.attack.ordinary, r.attack.ours, r.attack.ceiling),
            )
            for r in results
        ]
    )


def html_report(result: Result, ledger: LedgerLines, broker: str, seconds: float) -> str:
    """The whole report."""
    results = result.devices
    ticks = sum(int((r.symbols >= 0).sum()) for r in results)
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Fugu Edge demo</title>',
        f"<style>{_CSS}</style><h1>Three sleeping hearts, made private before they left the wrist</h1>",
        f"<p>{len(results)} devices sent {ticks} randomised symbols and a noisy count of every "
        f"{results[0].windows.length} heartbeats in {seconds:.0f} s over a real MQTT broker ({escape(broker)}); "
        "nothing else left them. A gateway estimated the states from the symbols and released counts over all devices, "
        "and a subscriber received everything.</p>",
        f"<figure>{overview_picture(results)}<figcaption>The attacker knows the mechanism and the person's own "
        "transition rates, and uses every symbol (forward-backward). Ordinary randomised response promises the "
        "dashed line at the same epsilon and breaks it, because readings depend on one another.</figcaption></figure>",
        _attack_table(results),
        "<h2>The streams</h2>",
        *(_stream(device) for device in results),
        *_windows(results),
        *_releases(result.releases, ledger),
        "<h2>The price</h2><p>A guarantee that is true needs more noise. How often the most likely state, estimated "
        "from all symbols, is the true one; always guessing the more frequent state is the number to beat.</p>",
        *(_prices(device) for device in results),
        "<p>The classes of chains were fitted to these very recordings, which are public. With data that is not, "
        "fit on other data: parameters estimated from what is released leak.</p></html>",
    ]
    return "\n".join(parts)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _attack_table(results: Sequence[DeviceResult]) -> str:
    rows = []
    for result in results:
        a = result.attack
        kind = "bad" if a.ordinary > a.promised else "good"
        rows.append(
            [
                *(escape(result.person.device), f"{result.person.epsilon:g}", f"{a.majority:.3f}"),
                *(f"{a.promised:.3f}", f'<span class="{kind}">{a.ordinary:.3f}</span>', f"{a.ordinary_epsilon:.2f}"),
                *(f'<span class="good">{a.ours:.3f}</span>', f"{a.ceiling:.3f}", f"{result.honest:.3f}"),
            ]
        )
    heads = ["device", "&epsilon;", "majority guess", "promised", "attack on ordinary RR", "its real &epsilon;"]
    return _table([*heads, "attack on ours", "proven ceiling", "gateway's estimate right"], rows)


def _stream(result: DeviceResult) -> str:
    """A stretch of the stream from its middle."""
    start = max(0, len(result.states) // 2 - _SHOWN_TICKS // 2)
    part = slice(start, start + _SHOWN_TICKS)
    symbols = [int(s) if s >= 0 else None for s in result.symbols[part]]
    estimates = [float(p) if p == p else None for p in result.estimates[part]]
    title = f"{result.person.device}: ticks {start} to {start + len(symbols) - 1}, epsilon {result.person.epsilon:g}"
    states = [int(s) for s in result.states[part]]
    return f"<figure>{stream_picture(title, states, symbols, estimates)}</figure>"


def _windows(results: Sequence[DeviceResult]) -> list[str]:
    rows = []
    for result in results:
        w = result.windows
        found = ("none arrived", "") if w.mean is None else (f"{w.mean:.1f}", f"{w.percent(w.mean):.1f} %")
        others = (f"{w.expected:.1f}", f"{w.quilts:.0f} ({w.percent(w.quilts):.0f} %)")
        rows.append(
            [
                *(escape(result.person.device), f"{w.guarantee.epsilon:g}", f"{len(w.errors)}", w.scale),
                *(*found, *others, f"{w.group:.0f} ({w.percent(w.group):.0f} %)"),
            ]
        )
    heads = ["device", "&epsilon; of the windows alone", "windows", "scale", "mean error in heartbeats"]
    heads += ["of the window", "expected", "Markov quilts", "group DP"]
    return [
        "<h2>Counts that the devices released</h2><p>Each device also counted the heartbeats above the mean in every "
        f"{results[0].windows.length}, with noise from the chain accountant that was in the count from the first "
        "moment. Its &epsilon; above covers symbols and windows together, so the symbols say a little less. Beside the "
        "errors of this run: what the noise of Markov quilts and of group differential privacy (all heartbeats of a "
        "window protected as one) would add at the same &epsilon;, on average.</p>",
        _table(heads, rows),
    ]


def _releases(releases: Sequence[GroupRelease], ledger: LedgerLines) -> list[str]:
    parts = ["<h2>Counts that the gateway released</h2>"]
    if releases:
        f = releases[0].frame
        parts.append(
            f"<p>For audience {escape(f.audience)}, who sees no symbols: heartbeats above the mean in {f.length} of "
            f"each of {f.devices} devices, added up, from their symbols, with noise of its own (&epsilon; "
            f"{f.epsilon:g} over everything that the audience sees, windows included, adversary "
            f"{escape(f.adversary)}). Most of the error is the randomness of the symbols.</p>"
        )
        parts.append(_table(_RELEASE_HEADS, [_release(release) for release in releases]))
    else:
        parts.append("<p>None: no window of all devices was over in time.</p>")
    lines = "".join(f"<li>{escape(line)}</li>" for line in ledger.devices)
    return [*parts, f"<p>{escape(ledger.summary)}:</p><ul>{lines}</ul>"]


_RELEASE_HEADS = (
    *("ledger entry", "heartbeats", "value", "95 % interval", "truth", "error", "scale"),
    *("nats charged a tick", "&epsilon;", "adversary"),
)


def _release(release: GroupRelease) -> list[str]:
    f = release.frame
    kind = "good" if release.inside else "bad"
    return [
        *(f"{f.entry}", f"{f.first}..{f.last}", f"{f.values[0]:.0f}", f"{f.low[0]:.0f} to {f.high[0]:.0f}"),
        *(f"{release.truth}", f'<span class="{kind}">{release.error:+.0f}</span>'),
        *(f"{float(Fraction(f.scale)):.4g}", f"{f.charge:.4f}", f"{f.epsilon:g}", escape(f.adversary)),
    ]


def _prices(result: DeviceResult) -> str:
    rows = [
        [
            *(f"{p.epsilon:g}", f"{p.rho0:.4f}", f"{p.rho1:.4f}", f"{p.honest:.3f}"),
            *(f"{p.honest_average:.3f}", f"{p.ordinary_attack:.3f}"),
        ]
        for p in result.prices
    ]
    heads = ["&epsilon;", "&rho;0", "&rho;1", "estimate right (ours)"]
    heads += ["ours, if the average chain were the truth", "attack on ordinary RR"]
    q, r = result.person.chains.q, result.person.chains.r
    about = f"class q in [{q[0]:.4f}, {q[1]:.4f}], r in [{r[0]:.4f}, {r[1]:.4f}]"
    note = f"{escape(result.person.device)} &mdash; {about}; majority guess {result.attack.majority:.3f}"
    return f"<h3>{note}</h3>" + _table(heads, rows)
