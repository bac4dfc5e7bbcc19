"""The claims of a policy's JSON, each with the loss that is computed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from fugu.audit.exact.binary import binary_loss, odds_ratio_loss
from fugu.audit.exact.numbers import NotRecomputed, exp_up, log_up
from fugu.audit.exact.points import point_losses

__all__ = ["Claim", "recompute", "stream_loss", "tick_ratios", "window_rate"]

Ratios = tuple[Fraction, Fraction]  # of a tick's outputs, state 0 over 1 and 1 over 0; of more states the largest twice
PointsLoss = Callable[[Mapping[str, Any]], Fraction]
_MANY = 12  # states, above which the other certificate may have found a smaller bound


class Claim(NamedTuple):
    """Statement of a policy about outputs, and a loss in nats not below the true one, or why it is not computed."""

    of: str
    stated: Fraction
    adversary: str
    loss: Fraction | None
    why: str = ""


def recompute(policy: Mapping[str, Any], all_points: PointsLoss | None = None) -> list[Claim]:
    """All claims of a policy: of all that it releases, of windows alone, of points.

    What all points of a stream lose is told by `fugu.audit.exact.chains`.
    """
    if policy.get("kind") == "points":
        near, far, stream_loss = policy["epsilon"], policy["factor"] * policy["epsilon"], policy["stream_loss"]
        claims = [
            _claim("a point, of joined states", near, "any", lambda: log_up(point_losses(policy)[0])),
            _claim("a point, of two possible states", far, "any", lambda: log_up(point_losses(policy)[1])),
        ]
        if stream_loss["epsilon"] is not None:
            loss = partial(_all_points, policy, all_points)
            many = len(policy["transition"]) > _MANY
            claims.append(_claim("all points", stream_loss["epsilon"], stream_loss["adversary"], loss, sharp=not many))
        return claims
    counted = policy.get("windows") or policy.get("sums")
    outputs = [name for name, there in (("symbols", policy.get("table")), ("windows", counted)) if there]
    chains, rate, most = policy["chains"], window_rate(policy), tick_ratios(policy)
    names = (policy["stream"], f"{policy['device']}/{policy['stream']}")
    own, streams = (
        [chain["rate"] for chain in chains.get("streams", ()) if chain["name"] in names],
        chains.get("streams", ()),
    )
    asked = [(" and ".join(outputs), policy["guarantee"], chains, most)]
    if len(outputs) == 2:  # of streams that move together the others tell what they may
        windows_policy = {
            **chains,
            "streams": [{**stream, "rate": rate} if stream["name"] in names else stream for stream in streams],
        }
        asked.append(("windows alone", policy["windows_guarantee"], windows_policy, (exp_up(rate),) * 2))
    claims = []
    for of, stated, ticks, ratios in asked:
        symbols = Fraction(0)
        if "symbols" in of:
            symbols = log_up(max(tick_ratios({**policy, "windows": (), "sums": ()})))
        loss = partial(_stretch_loss, policy, ticks, ratios, stated, symbols)
        claims.append(_claim(of, stated["epsilon"], stated["adversary"], loss))
    return [*claims, *(Claim("a tick of the stream", Fraction(loss), "any", log_up(max(most))) for loss in own)]


def _stretch_loss(
    policy: Mapping[str, Any],
    chains: Mapping[str, Any],
    ratios: Ratios,
    stated: Mapping[str, Any],
    symbols: Fraction,
) -> Fraction:
    """At least the loss about `stretch_ticks` in a row: what one tick loses, and what the others add by themselves.

    Of joint chains past and future may each be all of what one tick loses, as states may differ that show the same.
    """
    ticks: int = stated.get("stretch_ticks", 1)
    fraction = stream_loss(chains, ratios, stated["adversary"])
    if ticks == 1:
        return fraction
    rate = symbols + window_rate(policy)  # of any tick, whichever windows a change of policy or of a clock puts it into
    if chains["kind"] == "joint":
        rates = [Fraction(stream["rate"]) for stream in chains["streams"]]
        return Fraction(2 * fraction + ticks * (rate if len(rates) == 1 else sum(rates)))
    return Fraction(fraction + (ticks - 1) * rate)


def _claim(of: str, stated: float, adversary: str, loss: Callable[[], Fraction], *, sharp: bool = True) -> Claim:
    try:
        epsilon = loss()
    except NotRecomputed as error:
        return Claim(of, Fraction(stated), adversary, None, str(error))
    if epsilon > stated and not sharp:
        return Claim(of, Fraction(stated), adversary, None, f"only that it is at most {float(epsilon):.6g}")
    return Claim(of, Fraction(stated), adversary, epsilon)


def _all_points(policy: Mapping[str, Any], all_points: PointsLoss | None) -> Fraction:
    if all_points is None:
        raise NotRecomputed("all points together: see fugu.audit.exact.chains")
    return log_up(all_points(policy))


def tick_ratios(policy: Mapping[str, Any]) -> Ratios:
    """max over z of B[x][z] / B[x'][z], B the differences of cumulative thresholds, times e^rate of the windows."""
    beside = exp_up(window_rate(policy))
    table = policy.get("table") or {"rows": [[], []]}  # windows alone
    rows = [[b - a for a, b in pairwise([0, *row, 1 << 32])] for row in table["rows"]]
    ratios = [[beside * max(Fraction(a, b) for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    return (ratios[0][1], ratios[1][0]) if len(rows) == 2 else (max(map(max, ratios)),) * 2


def window_rate(policy: Mapping[str, Any]) -> Fraction:
    """The sum over windows of ceil(length / stride) * sensitivity / scale, in nats: noise is discrete Laplace.

    A sum over homes adds -log p, p the ratio of the discrete Laplace noise that `honest` shares are together.
    """
    moved = ((window, 2 if window["states"] == "histogram" else 1) for window in policy.get("windows") or ())
    own = sum((-(-w["length"] // w["stride"]) * most / Fraction(w["scale"]) for w, most in moved), Fraction(0))
    groups = (shared["group"] for shared in policy.get("sums") or ())
    return own + sum((log_up(1 / (1 - Fraction(g["noise"], 1 << 32) ** g["honest"])) for g in groups), Fraction(0))


def stream_loss(chains: Mapping[str, Any], most: Ratios, adversary: str) -> Fraction:
    """At least the loss of an endless stream (of joint chains all), in nats."""
    if chains["kind"] == "binary":
        (q, p), (r, s) = (map(Fraction, chains[name]) for name in "qr")
        return log_up(binary_loss((q, p), (r, s), most, adversary))
    if chains["kind"] == "joint":  # ticks that its odds ratios are of are one, and may all differ
        rates, shows = [Fraction(stream["rate"]) for stream in chains["streams"]], chains["shows"]
        apart = (sum(s for s, a, b in zip(rates, x, y, strict=True) if a != b) for x in shows for y in shows)
        most = (exp_up(chains["steps"] * Fraction(max(apart))),) * 2
    return log_up(odds_ratio_loss(Fraction(chains["odds_ratio"]), max(most)))
