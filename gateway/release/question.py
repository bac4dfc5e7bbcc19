"""What a release asks of its devices: all that has to be known to count their symbols and windows, and nothing else.

Its canonical bytes, as `gateway.release.canonical` writes them, are the same wherever they are made, so that their
digest names the question.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fugu.contract.mechanisms import Mechanism
from fugu.contract.windows import Window
from gateway.release.statistics import Query

__all__ = ["Question"]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of some devices.

    Attributes:
        name: of the release.
        stream: that is counted.
        devices: whose symbols are counted together.
        labels: of all states, in order; symbols of policies that mean other states are not counted with them.
        query: what is asked.
        length: ticks of a window.
        source: as in the configuration of the release.
        mechanism: by whose rule it is charged.
        confidence: of the intervals.
        windows: by device, that of its windows which answers the query, if it is to be answered from them.
        silent: the devices that have windows only.
    """

    name: str
    stream: str
    devices: tuple[str, ...]
    labels: tuple[str, ...]
    query: Query
    length: int
    source: str
    mechanism: Mechanism
    confidence: float
    windows: Mapping[str, Window]
    silent: frozenset[str]

    def document(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "name": self.name,
            "stream": self.stream,
            "devices": list(self.devices),
            "labels": list(self.labels),
            "query": [self.query.kind, list(self.query.states)],
            "length": self.length,
            "source": self.source,
            "mechanism": self.mechanism,
            "confidence": self.confidence,
            "windows": {device: window.model_dump(mode="json") for device, window in self.windows.items()},
            "silent": sorted(self.silent),
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Question:
        """What `document` made."""
        kind, states = document["query"]
        return cls(
            name=document["name"],
            stream=document["stream"],
            devices=tuple(document["devices"]),
            labels=tuple(document["labels"]),
            query=Query(kind, tuple(states)),
            length=document["length"],
            source=document["source"],
            mechanism=document["mechanism"],
            confidence=document["confidence"],
            windows={
                device: Window.model_validate_json(json.dumps(window)) for device, window in document["windows"].items()
            },
            silent=frozenset(document["silent"]),
        )
