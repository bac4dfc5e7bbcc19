"""Private sensor streams: plan what a device may release, check a promise, attack it, and read what was released.

    import fugu

    plan = fugu.plan("motion.csv", "share", epsilon=1, protect="1h")
    print(plan.verdict[0])
    plan.save("plan")

Names load when they are first used: a device lacks the packages that most of them need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fugu.contract.errors import FuguError as FuguError
    from fugu.contract.measure_policy import MeasurePolicy as MeasurePolicy
    from fugu.contract.policy import Policy as Policy
    from fugu.contract.sentences import epsilon_to_odds as epsilon_to_odds
    from fugu.library.checks import Check as Check
    from fugu.library.checks import attack as attack
    from fugu.library.checks import check as check
    from fugu.library.checks import load_policy as load_policy
    from fugu.library.history import history as history
    from fugu.library.plans import Plan as Plan
    from fugu.library.plans import plan as plan
    from fugu.library.recordings import read as read
    from fugu.library.streets import street as street
    from fugu.mqtt.broker import Broker as Broker
    from fugu.mqtt.readings import CountReading as CountReading
    from fugu.mqtt.readings import EstimateReading as EstimateReading
    from fugu.mqtt.readings import PointReading as PointReading
    from fugu.mqtt.readings import ReleaseReading as ReleaseReading
    from fugu.mqtt.readings import SymbolReading as SymbolReading
    from fugu.mqtt.subscription import AsyncSubscription as AsyncSubscription
    from fugu.mqtt.subscription import Subscription as Subscription
    from fugu.recordings.errors import QuestionError as QuestionError

_NAMES_BY_MODULE = {
    "contract.errors": "FuguError",
    "contract.measure_policy": "MeasurePolicy",
    "contract.policy": "Policy",
    "contract.sentences": "epsilon_to_odds",
    "library.checks": "Check attack check load_policy",
    "library.history": "history",
    "library.plans": "Plan plan",
    "library.recordings": "read",
    "library.streets": "street",
    "mqtt.broker": "Broker",
    "mqtt.readings": "CountReading EstimateReading PointReading ReleaseReading SymbolReading",
    "recordings.errors": "QuestionError",
    "mqtt.subscription": "AsyncSubscription Subscription",
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fugu' has no attribute {name!r}")
    return getattr(import_module(f"fugu.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
