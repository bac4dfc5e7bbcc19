"""The rules of deploy/examples/alerts.yml that are alarms, made from what a gateway declares.

To write them anew: python -m tests.support.alert_rules
"""

from __future__ import annotations

from pathlib import Path

from fugu.contract.reports import AlarmCode
from gateway.health.findings import KINDS, Kind

FILE = Path(__file__).parents[2] / "deploy" / "examples" / "alerts.yml"
HEAD = "python -m tests.support.alert_rules writes this part.\n"
GAUGE = "fugu_gateway_alarms"


def written() -> str:
    """The file with its rules as they have to be."""
    return FILE.read_text().partition(HEAD)[0] + HEAD + "\n".join(rule(code, kind) for code, kind in KINDS.items())


def rule(code: AlarmCode, kind: Kind) -> str:
    name = "".join(word.capitalize() for word in code.split("-"))
    rule = f"""\
      - alert: Fugu{name}
        expr: {kind.metric}{kind.metric and " or "}{GAUGE}{{code="{code}"}} > 0
{f"        for: {kind.patience}" if kind.patience else ""}
        labels: {{severity: {kind.severity}}}
        annotations:
          summary: "{kind.words[0].upper()}{kind.words[1:]}"
          description: "{kind.advice[0].upper()}{kind.advice[1:]}"
"""
    return rule.replace("\n\n", "\n")


if __name__ == "__main__":
    FILE.write_text(written())
