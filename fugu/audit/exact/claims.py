"""Recompute the claims of a policy's JSON: each claim with the loss that is computed here."""

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
_MOST_SHARP_STATES = 12  # states, above which the other certificate may have found a smaller bound


class Claim(NamedTuple):
    """A policy's claim about outputs, and an upper bound on the true loss in nats, or why it is not computed."""

    output: str
    stated: Fraction
    adversary: str
    loss: Fraction | None
    reason: str = ""


def recompute(policy: Mapping[str, Any], all_points: PointsLoss | None = None) -> list[Claim]:
    """Recompute all claims of a policy: about all its outputs together, about windows alone, about points.

    `all_points` computes the loss of all points of a stream; `fugu.audit.exact.chains` has it.
    """
    if policy.get("kind") == "points":
        epsilon, far_epsilon, promise = policy["epsilon"], policy["factor"] * policy["epsilon"], policy["stream_loss"]
        claims = [
            _claim("a point, of joined states", epsilon, "any", lambda: log_up(point_losses(policy)[0])),
            _claim("a point, of two possible states", far_epsilon, "any", lambda: log_up(point_losses(policy)[1])),
        ]
        if promise["epsilon"] is not None:
            loss = partial(_all_points, policy, all_points)
            is_large = len(policy["transition"]) > _MOST_SHARP_STATES
            claims.append(_claim("all points", promise["epsilon"], promise["adversary"], loss, is_sharp=not is_large))
        return claims
    windows = policy.get("windows") or policy.get("sums")
    outputs = [name for name, is_present in (("symbols", policy.get("table")), ("windows", windows)) if is_present]
    chains, rate, all_ratios = policy["chains"], window_rate(policy), tick_ratios(policy)
    own_names = (policy["stream"], f"{policy['device']}/{policy['stream']}")
    streams = chains.get("streams", ())
    rates = [stream["rate"] for stream in streams if stream["name"] in own_names]
    promises = [(" and ".join(outputs), policy["guarantee"], chains, all_ratios)]
    if len(outputs) == 2:  # the other streams of joint chains keep their full rates
        window_chains = {
            **chains,
            "streams": [{**stream, "rate": rate} if stream["name"] in own_names else stream for stream in streams],
        }
        promises.append(("windows alone", policy["windows_guarantee"], window_chains, (exp_up(rate),) * 2))
    claims = []
    for promise_name, guarantee, promise_chains, ratios in promises:
        symbols = Fraction(0)
        if "symbols" in promise_name:
            symbols = log_up(max(tick_ratios({**policy, "windows": (), "sums": ()})))
        loss = partial(_stretch_loss, policy, promise_chains, ratios, guarantee, symbols)
        claims.append(_claim(promise_name, guarantee["epsilon"], guarantee["adversary"], loss))
    return [*claims, *(Claim("a tick of the stream", Fraction(loss), "any", log_up(max(all_ratios))) for loss in rates)]


def _stretch_loss(
    policy: Mapping[str, Any],
    chains: Mapping[str, Any],
    ratios: Ratios,
    guarantee: Mapping[str, Any],
    symbols_loss: Fraction,
) -> Fraction:
    """An upper bound on the loss about `stretch_ticks` in a row: one tick's loss and the rates of the others.

    For joint chains past and future may each add the loss of a whole tick, as different states may show the same.
    """
    stretch_ticks: int = guarantee.get("stretch_ticks", 1)
    tick_loss = stream_loss(chains, ratios, guarantee["adversary"])
    if stretch_ticks == 1:
        return tick_loss
    # holds for any tick, whichever windows a change of policy or clock puts it into
    rate = symbols_loss + window_rate(policy)
    if chains["kind"] == "joint":
        rates = [Fraction(stream["rate"]) for stream in chains["streams"]]
        return Fraction(2 * tick_loss + stretch_ticks * (rate if len(rates) == 1 else sum(rates)))
    return Fraction(tick_loss + (stretch_ticks - 1) * rate)


def _claim(output: str, stated: float, adversary: str, loss: Callable[[], Fraction], *, is_sharp: bool = True) -> Claim:
    try:
        true_loss = loss()
    except NotRecomputed as error:
        return Claim(output, Fraction(stated), adversary, None, str(error))
    if true_loss > stated and not is_sharp:
        return Claim(output, Fraction(stated), adversary, None, f"only that it is at most {float(true_loss):.6g}")
    return Claim(output, Fraction(stated), adversary, true_loss)


def _all_points(policy: Mapping[str, Any], all_points: PointsLoss | None) -> Fraction:
    if all_points is None:
        raise NotRecomputed("all points together: see fugu.audit.exact.chains")
    return log_up(all_points(policy))


def tick_ratios(policy: Mapping[str, Any]) -> Ratios:
    """The largest ratio of the probabilities of a symbol under two states, times e^rate of the windows."""
    window_ratio = exp_up(window_rate(policy))
    table = policy.get("table") or {"rows": [[], []]}  # windows alone
    weights = [[b - a for a, b in pairwise([0, *row, 1 << 32])] for row in table["rows"]]
    ratios = [[window_ratio * max(Fraction(a, b) for a, b in zip(x, y, strict=True)) for y in weights] for x in weights]
    return (ratios[0][1], ratios[1][0]) if len(weights) == 2 else (max(map(max, ratios)),) * 2


def window_rate(policy: Mapping[str, Any]) -> Fraction:
    """The sum over windows of ceil(length / stride) * sensitivity / scale, in nats, for discrete Laplace noise.

    A sum over homes adds -log p, where p is the ratio of the discrete Laplace noise that `honest` shares add up to.
    """
    moves = ((window, 2 if window["states"] == "histogram" else 1) for window in policy.get("windows") or ())
    rate = sum((-(-w["length"] // w["stride"]) * move / Fraction(w["scale"]) for w, move in moves), Fraction(0))
    groups = (window["group"] for window in policy.get("sums") or ())
    return rate + sum((log_up(1 / (1 - Fraction(g["noise"], 1 << 32) ** g["honest"])) for g in groups), Fraction(0))


def stream_loss(chains: Mapping[str, Any], ratios: Ratios, adversary: str) -> Fraction:
    """An upper bound on the loss of an endless stream, or of all streams of joint chains, in nats."""
    if chains["kind"] == "binary":
        (q, p), (r, s) = (map(Fraction, chains[name]) for name in "qr")
        return log_up(binary_loss((q, p), (r, s), ratios, adversary))
    if chains["kind"] == "joint":  # its odds ratios are those of `steps` ticks, which may all differ
        rates, shows = [Fraction(stream["rate"]) for stream in chains["streams"]], chains["shows"]
        pair_rates = (sum(s for s, a, b in zip(rates, x, y, strict=True) if a != b) for x in shows for y in shows)
        ratios = (exp_up(chains["steps"] * Fraction(max(pair_rates))),) * 2
    return log_up(odds_ratio_loss(Fraction(chains["odds_ratio"]), max(ratios)))
