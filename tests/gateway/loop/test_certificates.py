"""A certificate near its end is an alarm, whether it is the broker's, the gateway's own or the authority's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fugu.contract.reports import AlarmCode
from gateway.deployment.broker_files import BrokerFolder
from gateway.loop.gateway import Gateway
from tests.support.brokers import wait_until
from tests.support.gateway_files import gateway_config
from tests.support.gateway_service import gateway_here
from tests.support.scenes import policy, write_policies
from tests.support.shipped import Shipped


@pytest.mark.parametrize(("days", "mutual"), [(40, True), (20, False), (20, True)])
def test_a_certificate_near_its_end_is_an_alarm(tmp_path: Path, days: int, mutual: bool) -> None:
    broker = Shipped(tmp_path / "deployed", mutual=mutual)
    folder = BrokerFolder.open(broker.folder)
    folder.settings = folder.settings.model_copy(update={"days": days})
    folder._set_accounts(())
    folder.renew(datetime.now(UTC))
    broker.add("gateway", "gateway")
    policies = write_policies(tmp_path / "policies", [policy(1)])
    settings = gateway_config("home", broker.address("gateway"), tmp_path / "store.sqlite", policies)
    with broker, gateway_here(settings) as gateway:
        wait_until(lambda: set(gateway._monitor._certificates) >= {"broker", "authority"})
        expected = set() if days > 30 else {"broker", "gateway"} if mutual else {"broker"}
        wait_until(lambda: near_their_end(gateway) == expected, "the alarms")
        if days > 30:
            assert gateway._certificates()["broker"] - datetime.now(UTC).timestamp() < days * 86_400
            return
        folder = BrokerFolder.open(broker.folder)
        folder.settings = folder.settings.model_copy(update={"days": 365})
        folder.renew(datetime.now(UTC) + timedelta(hours=1))
        broker.restart()  # the gateway sees the new one when it connects
        wait_until(lambda: gateway._certificates()["broker"] - datetime.now(UTC).timestamp() > 300 * 86_400)


def near_their_end(gateway: Gateway) -> set[str]:
    alarms = gateway._monitor.health().alarms
    return {name for alarm in alarms if alarm.code == AlarmCode.CERTIFICATE for name in alarm.names}
