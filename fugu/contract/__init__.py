"""The agreement of device, gateway and subscriber, without I/O; names load on first use: parsers take memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fugu.contract.chains import BinaryChains as BinaryChains
    from fugu.contract.chains import BoundedChains as BoundedChains
    from fugu.contract.chains import ChainClass as ChainClass
    from fugu.contract.chains import FiniteChains as FiniteChains
    from fugu.contract.chains import JointChains as JointChains
    from fugu.contract.chains import Shown as Shown
    from fugu.contract.descriptions import Description as Description
    from fugu.contract.descriptions import decode_description as decode_description
    from fugu.contract.descriptions import describe as describe
    from fugu.contract.errors import FrameError as FrameError
    from fugu.contract.errors import FuguError as FuguError
    from fugu.contract.errors import GuaranteeError as GuaranteeError
    from fugu.contract.errors import PolicyError as PolicyError
    from fugu.contract.errors import TopicError as TopicError
    from fugu.contract.frames import Committed as Committed
    from fugu.contract.frames import Status as Status
    from fugu.contract.frames import SymbolFrame as SymbolFrame
    from fugu.contract.frames import WindowFrame as WindowFrame
    from fugu.contract.guarantee import Adversary as Adversary
    from fugu.contract.guarantee import Guarantee as Guarantee
    from fugu.contract.guarantee import Loss as Loss
    from fugu.contract.guarantee import check_guarantee as check_guarantee
    from fugu.contract.guarantee import loss as loss
    from fugu.contract.measure_frames import MeasureFrame as MeasureFrame
    from fugu.contract.measure_policy import MeasurePolicy as MeasurePolicy
    from fugu.contract.measure_table import TimedTable as TimedTable
    from fugu.contract.noise_table import NoiseTable as NoiseTable
    from fugu.contract.policies import read_policy as read_policy
    from fugu.contract.policy import Policy as Policy
    from fugu.contract.reports import Estimate as Estimate
    from fugu.contract.reports import PlaceEstimate as PlaceEstimate
    from fugu.contract.reports import ReleaseFrame as ReleaseFrame
    from fugu.contract.reports import StateEstimate as StateEstimate
    from fugu.contract.reports import ValueEstimate as ValueEstimate
    from fugu.contract.reports import WindowCount as WindowCount
    from fugu.contract.reports import decode_estimate as decode_estimate
    from fugu.contract.topics import Topic as Topic
    from fugu.contract.topics import count_topic as count_topic
    from fugu.contract.topics import description_topic as description_topic
    from fugu.contract.topics import estimate_topic as estimate_topic
    from fugu.contract.topics import parse_topic as parse_topic
    from fugu.contract.topics import release_topic as release_topic
    from fugu.contract.topics import status_topic as status_topic
    from fugu.contract.topics import symbols_topic as symbols_topic
    from fugu.contract.topics import table_topic as table_topic
    from fugu.contract.topics import window_topic as window_topic
    from fugu.contract.windows import Window as Window

_HOME = {
    "chains": ("BinaryChains", "BoundedChains", "ChainClass", "FiniteChains", "JointChains", "Shown"),
    "descriptions": ("Description", "decode_description", "describe"),
    "errors": ("FrameError", "FuguError", "GuaranteeError", "PolicyError", "TopicError"),
    "frames": ("Committed", "Status", "SymbolFrame", "WindowFrame"),
    "guarantee": ("Adversary", "Guarantee", "Loss", "check_guarantee", "loss"),
    "measure_frames": ("MeasureFrame",),
    "measure_policy": ("MeasurePolicy",),
    "measure_table": ("TimedTable",),
    "policies": ("read_policy",),
    "policy": ("Policy",),
    "reports": (
        *("Estimate", "PlaceEstimate", "ReleaseFrame", "StateEstimate", "ValueEstimate", "WindowCount"),
        "decode_estimate",
    ),
    "noise_table": ("NoiseTable",),
    "topics": (
        "Topic",
        "count_topic",
        "description_topic",
        "estimate_topic",
        "parse_topic",
        "release_topic",
        "status_topic",
        "symbols_topic",
        "table_topic",
        "window_topic",
    ),
    "windows": ("Window",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE)


def __getattr__(name: str) -> object:
    if name not in _MODULE:
        raise AttributeError(f"module 'fugu.contract' has no attribute {name!r}")
    return getattr(import_module(f"fugu.contract.{_MODULE[name]}"), name)
