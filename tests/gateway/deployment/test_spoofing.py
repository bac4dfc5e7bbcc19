"""Everybody tries to speak on everybody's topics: only who a topic belongs to is let through."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.support.shipped import DENIED, Shipped

OF_A_DEVICE = (
    "status",
    "symbols/hr",
    "symbols/other",
    "window/hr",
    "window/other",
    "policy/status",
    "policy/set",
    "committed",
    "table/hr",
    "stop",
    "anything",
)
OF_THE_FLEET = (
    "estimate/watch/hr",
    "count/watch/hr",
    "description/watch/hr",
    "release/public/active",
    "release/site/active",
    "time",
    "root",
    "health",
    "anything",
)
TOPICS = [
    *(
        f"fugu/2/home/{name}/{kind}"
        for name in ("watch", "ring", "stranger", "gateway", "gateway-1")
        for kind in OF_A_DEVICE
    ),
    *(f"fugu/2/home/{kind}" for kind in OF_THE_FLEET),
    *(f"fugu/2/other/{kind}" for kind in ("watch/symbols/hr", "watch/status", "time", "root")),
    *("fugu/1/home/watch/symbols/hr", "fugu/2/home", "watch/symbols/hr", "anything"),
]
OWN = {
    "watch": ["fugu/2/home/watch/" + kind for kind in ("status", "symbols/hr", "window/hr", "policy/status")],
    "ring": ["fugu/2/home/ring/" + kind for kind in ("status", "symbols/hr", "window/hr", "policy/status")],
    "gateway": [
        *("fugu/2/home/*/" + kind for kind in ("committed", "table/hr", "stop")),
        *("fugu/2/home/" + kind for kind in ("estimate/*", "count/*", "description/*", "release/*", "time", "health")),
    ],
    "gateway-1": [
        *("fugu/2/home/*/" + kind for kind in ("committed", "table/hr", "stop")),
        *("fugu/2/home/" + kind for kind in ("estimate/*", "count/*")),
    ],
    "operator": ["fugu/2/home/*/policy/set", "fugu/2/home/root"],
    "gateway-rollout": ["fugu/2/home/*/policy/set", "fugu/2/home/root"],
    "site": [],
    "public": [],
}
"""Topics that each account may publish; of the gateway and its shards none under its own name."""


@pytest.mark.long
def test_hundreds_of_spoofed_publications_are_refused(fleet: Shipped) -> None:
    refused = 0
    for name, own in OWN.items():
        with fleet.client(name) as client:
            for topic in TOPICS:
                mine = any(fnmatchcase(topic, pattern) for pattern in own)
                mine = mine and not (name.startswith("gateway") and topic.startswith(f"fugu/2/home/{name}/"))
                assert client.attempt(topic, b"") == (0 if mine else DENIED), (name, topic)
                refused += not mine
    assert refused > 300


@pytest.mark.long
def test_accounts_may_be_called_like_topics_of_the_fleet(tmp_path: Path) -> None:
    """Topics under an account's name are denied to it, but not the topic of that name."""
    broker = Shipped(tmp_path)
    broker.add("gateway", "time")
    broker.add("operator", "root")
    with broker:
        for name in ("time", "root"):
            assert broker.publish(name, f"fugu/2/home/{name}") == 0
            for kind in OF_A_DEVICE:
                assert broker.publish(name, f"fugu/2/home/{name}/{kind}") == DENIED
