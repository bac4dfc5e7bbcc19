"""The noise for a small Bayesian network as JSON, or as a table and sentences."""

from __future__ import annotations

from typing import Any

from fugu.cli.view.terminal import say, show_table
from fugu.planning.network_plan import NetworkPlan
from fugu.planning.network_spec import NetworkSpec

__all__ = ["network_document", "show_network_plan"]


def network_document(spec: NetworkSpec, plan: NetworkPlan) -> dict[str, Any]:
    """The plan as an object for JSON, the least noise first."""
    return {
        "epsilon": spec.epsilon,
        "adversary": "ignorant",
        "variables": len(spec.values),
        "secrets": {
            name: [[spec.values[name][a], spec.values[name][b]] for a, b in pairs]
            for name, pairs in spec.secrets.items()
        },
        "least": plan.least.mechanism,
        "mechanisms": [
            {
                "mechanism": each.mechanism,
                "scale": each.scale,
                "protects_correlated": each.protects,
                "reason": each.reason,
            }
            for each in plan.found
        ],
        "refused": plan.refused,
    }


def show_network_plan(spec: NetworkSpec, plan: NetworkPlan) -> None:
    """Print the plan."""
    count = len(spec.values)
    rows = [
        (
            each.mechanism + (" (least)" if each is plan.least else ""),
            f"{each.scale:.6g}",
            "yes" if each.protects else "no",
            each.reason,
        )
        for each in plan.found
    ]
    title = f"Noise for one answer about {count} variable{'s' * (count > 1)} at epsilon {spec.epsilon:g}"
    show_table(title, ("mechanism", "scale", "protects", "determined by"), rows)
    for mechanism, why in plan.refused.items():
        say(f"{mechanism}: {why}", style="dim")
    say(
        "scale: of the Laplace noise on the answer, in its own unit. It protects the secrets against somebody who "
        "believes this network and knows no variable for certain, for one release."
    )
