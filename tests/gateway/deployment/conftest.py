"""One fleet behind the shipped broker, with passwords and with certificates, for all the attacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.shipped import Shipped, promises


@pytest.fixture(params=["passwords", "certificates"], scope="module")
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shipped:
    """The folders of a broker with two devices, a gateway of two shards, and an account of each other role."""
    broker = Shipped(tmp_path_factory.mktemp("fleet"), mutual=request.param == "certificates")
    for name in ("watch", "ring"):
        broker.add("device", name)
    broker.add("gateway", "gateway", "--rollout", "--shards", 2)
    for kind, name in (("operator", "operator"), ("helper", "helper"), ("home-assistant", "ha")):
        broker.add(kind, name)
    broker.add("subscriber", "site", "--audience", "site")
    broker.add("subscriber", "public", *promises(broker.root))
    return broker


@pytest.fixture
def fleet(written: Shipped) -> Iterator[Shipped]:
    """The same, running and without memories."""
    (written.folder / "mosquitto.db").unlink(missing_ok=True)
    with written:
        yield written
