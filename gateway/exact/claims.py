"""The claims of a policy's JSON, each with the loss that is computed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from gateway.exact.binary import binary_loss, odds_ratio_loss
from gateway.exact.known import known_loss, known_odds
from gateway.exact.numbers import NotRecomputed, exp_up, log_up
from gateway.exact.points import point_losses

__all__ = ["Claim", "recompute", "stream_loss", "tick_ratios", "window_rate"]

Ratios = tuple[Fraction, Fraction]  # of a tick's outputs, state 0 over 1 and 1 over 0; of more states the largest twice


class Claim(NamedTuple):
    """What a policy states of some outputs; and a loss in nats not below the true one, or why it is not computed."""

    of: str
    stated: Fraction
    adversary: str
    loss: Fraction | None
    why: str = ""


def recompute(policy: Mapping[str, Any]) -> list[Claim]:
    """All claims of a policy: of all that it releases, of windows alone, of single points."""
    if policy.get("kind") == "points":
        near, far, whole = policy["epsilon"], policy["factor"] * policy["epsilon"], policy["stream_loss"]
        claims = [
            _claim("a point, of joined states", near, "any", lambda: (log_up(point_losses(policy)[0]), True)),
            _claim("a point, of two possible states", far, "any", lambda: (log_up(point_losses(policy)[1]), True)),
            Claim(
                "all points",
                Fraction(whole["epsilon"] or 0),
                whole["adversary"],
                None,
                "no bound here for all tables that may come",
            ),
        ]
        return claims if whole["epsilon"] is not None else claims[:2]
    outputs = [name for name, key in (("symbols", "table"), ("windows", "windows")) if policy.get(key)]
    asked = [(" and ".join(outputs), policy["guarantee"], most := tick_ratios(policy))]
    if len(outputs) == 2:
        asked.append(("windows alone", policy["windows_guarantee"], (exp_up(window_rate(policy)),) * 2))
    claims = []
    for of, stated, ratios in asked:
        loss = partial(stream_loss, policy["chains"], ratios, stated["adversary"])
        claims.append(_claim(of, stated["epsilon"], stated["adversary"], loss))
    if policy["chains"]["kind"] == "joint":
        names = (policy["stream"], f"{policy['device']}/{policy['stream']}")
        (own,) = (one["rate"] for one in policy["chains"]["streams"] if one["name"] in names)
        claims.append(Claim("a tick of the stream", Fraction(own), "any", log_up(max(most))))
    return claims


def _claim(of: str, stated: float, adversary: str, loss: Callable[[], tuple[Fraction, bool]]) -> Claim:
    try:
        found, sharp = loss()
    except NotRecomputed as error:
        return Claim(of, Fraction(stated), adversary, None, str(error))
    why = "" if sharp or found <= stated else f"only that it is at most {float(found):.6g}"
    return Claim(of, Fraction(stated), adversary, None if why else found, why)


def tick_ratios(policy: Mapping[str, Any]) -> Ratios:
    """max over z of B[x][z] / B[x'][z], B the differences of cumulative thresholds, times e^rate of the windows."""
    beside = exp_up(window_rate(policy))
    table = policy.get("table") or {"rows": [[], []]}  # windows alone
    rows = [[b - a for a, b in pairwise([0, *row, 1 << 32])] for row in table["rows"]]
    told = [[beside * max(Fraction(a, b) for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    return (told[0][1], told[1][0]) if len(rows) == 2 else (max(map(max, told)),) * 2


def window_rate(policy: Mapping[str, Any]) -> Fraction:
    """The sum over windows of ceil(length / stride) * sensitivity / scale, in nats: noise is discrete Laplace."""
    each = ((one, 2 if one["states"] == "histogram" else 1) for one in policy.get("windows") or ())
    return sum((-(-w["length"] // w["stride"]) * most / Fraction(w["scale"]) for w, most in each), Fraction(0))


def stream_loss(chains: Mapping[str, Any], most: Ratios, adversary: str) -> tuple[Fraction, bool]:
    """At least the loss of an endless stream (of joint chains all), in nats; and whether no lower bound is proven."""
    if chains["kind"] == "binary":
        (q, p), (r, s) = (map(Fraction, chains[name]) for name in "qr")
        return log_up(binary_loss((q, p), (r, s), most, adversary)), True
    if chains["kind"] == "joint":
        shows, rates = chains["shows"], [Fraction(stream["rate"]) for stream in chains["streams"]]
        sums = [[sum(s for s, a, b in zip(rates, x, y, strict=True) if a != b) for y in shows] for x in shows]
        tick = [[exp_up(Fraction(rate)) for rate in row] for row in sums]
        most = (max(map(max, tick)),) * 2
    if (alpha := chains.get("odds_ratio")) is not None:
        return log_up(odds_ratio_loss(Fraction(alpha), max(most))), True
    known = chains["transitions"]
    if chains["kind"] == "finite":
        tick = [[max(most) if x != y else Fraction(1) for y in range(len(known[0]))] for x in range(len(known[0]))]
    odds = [one for chain in known if (one := known_odds(chain))]
    found = [odds_ratio_loss(max(odds), max(most))] if len(odds) == len(known) else []
    if adversary != "universal":
        with suppress(NotRecomputed) if found else nullcontext():
            found.append(max(known_loss(chain, tick, adversary) for chain in known))
    elif not found:
        raise NotRecomputed("known chains with impossible steps, and the universal adversary")
    return log_up(min(found)), adversary == "ignorant" or chains["kind"] == "finite"
