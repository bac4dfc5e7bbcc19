"""A fitted joint chain as tables and sentences."""

from __future__ import annotations

from fugu.cli.view.model import show_attacked, show_stretches, tell
from fugu.cli.view.terminal import say, show_table
from fugu.contract.sentences import protected_sentence
from fugu.privacy.joint_model import JointModel

__all__ = ["show_joint_model"]

_MOST_ROWS = 12


def show_joint_model(model: JointModel, left_out: int) -> None:
    """Print a joint chain: its streams, its steps, whether streams depend on each other, and its class.

    Args:
        model: the chain.
        left_out: rows that some stream has no state for.
    """
    period = "" if model.period_seconds is None else f", one tick every {model.period_seconds:g} s"
    for one in model.streams:
        say(
            f"{one.name}: {one.source}, column {one.column}, {one.states} states; {protected_sentence(one.discretiser)}"
        )
        if one.missing_state is not None:
            say(f"  {one.missing_share:.1%} of its rows have no reading: state {one.missing_state} stands for that")
    what = "pairs of states, before and now" if model.order == 2 else "joint states"
    say(f"{model.n} ticks that all have{period}; {left_out} rows left out; {len(model.shows)} {what}")
    if len(model.shows) <= _MOST_ROWS:
        show_table(
            "Steps of the joint chain (rows: from, columns: to)",
            ("state", "shows", *(str(x) for x in range(len(model.shows)))),
            [
                (str(x), ",".join(map(str, shown)), *(f"{p:.4f}" for p in row))
                for x, (shown, row) in enumerate(zip(model.shows, model.transition, strict=True))
            ],
        )
    if model.independent is not None:
        tell(
            "Independent?",
            model.independent,
            "the streams move on their own, as far as this shows; declared together they are safe all the same",
            "they move together: what they tell together is not what each tells",
        )
    tell(
        f"Order {model.order}?",
        model.more,
        f"order {model.order} is enough, as far as this shows",
        "a tick further back tells something as well; the size of it is the gain per step",
    )
    show_stretches(model.stretches, model.regimes)
    if model.attacked is not None:
        show_attacked(model.attacked)
    if model.odds_ratio is None:
        say(f"No class that covers every stretch: {model.refused}.", style="yellow")
        return
    lengths = [each.ticks for each in model.stretches]
    over = f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else f"{lengths[0]}"
    say(
        f"Class: joint steps of odds ratios up to {model.odds_ratio:.4g}, which may change from tick to tick; it "
        f"covers stretches of {over} ticks."
    )
