"""Documents for Home Assistant: fields that it documents, and values that its templates make of messages."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.contract.descriptions import Description, PlaceGrid, describe
from fugu.contract.reports import AlarmCode, Health, HealthAlarm, PlaceEstimate, StateEstimate, ValueEstimate
from fugu.contract.sentences import instant
from fugu.contract.windows import Window
from gateway.parts.home_assistant import LIKELY, MOST_STATES, device_document, gateway_document
from tests.support.example_frames import COUNT as EXAMPLE
from tests.support.home_assistant import check_document, rendered
from tests.support.processes import policy

SECOND = 1_000_000
HOSTILE = ("{{ states }}", "{% raw %}", "'", '"', "\\", "\\'", "}}", "{#", "ümläut", "a b", "#", "on", "0")
NAMES = st.text(min_size=1, max_size=64).filter(str.isprintable)
SYMBOLS = describe(policy(epoch_us=0, period_us=60 * SECOND, frame_ticks=10))
HOUR = Window(name="hour", length=60, stride=60, states=("high",), scale="200")
COUNTED = describe(policy(epoch_us=0, period_us=60 * SECOND, windows=(HOUR,), epsilon=20.0))
GRID = PlaceGrid(origin=(52.0, 4.0), step=(0.001, 0.001), cell_size=(1.0, 1.0), cells=((0, 0), (1, 0)))
ESTIMATE = StateEstimate(
    *(instant(10 * SECOND), instant(1 * SECOND), 9, 10, "high", 0.9, {"low": 0.25, "high": 0.75}),
    *(1.0, "universal", False),
)
COUNT = replace(
    EXAMPLE, window="hour", states=("high",), values=(30.0,), low=(12.0,), high=(48.0,), observed=60
)  # fmt: skip


def named(labels: tuple[str, ...], **changes: Any) -> Description:
    """A stream of symbols with these states."""
    return SYMBOLS.model_copy(update={"states": labels, **changes})


def components(description: Description) -> dict[str, dict[str, Any]]:
    """Entities of a device with this stream alone; its document is one that Home Assistant takes."""
    document = device_document([description])
    check_document(json.loads(json.dumps(document)))
    return document["cmps"]


def value(component: dict[str, Any], payload: bytes) -> str:
    return rendered(component["value_template"], payload)


def attributes(component: dict[str, Any], payload: bytes) -> dict[str, Any]:
    return json.loads(rendered(component["json_attributes_template"], payload))


def test_a_share_is_a_measurement_in_percent_that_expires() -> None:
    share = components(SYMBOLS)["hr.share.1"]
    assert share["unit_of_measurement"] == "%"
    assert share["state_class"] == "measurement"
    assert share["state_topic"] == "fugu/2/home/estimate/watch/hr"
    assert share["expire_after"] == 3 * 600
    assert value(share, replace(ESTIMATE, useful=True).encode()) == "75.0"
    assert value(share, replace(ESTIMATE, useful=False).encode()) == "None", "no better than a guess: it is unknown"
    assert attributes(share, ESTIMATE.encode())["useful"] is False


def test_what_the_device_has_counted_is_shown_with_its_interval_and_not_the_symbols() -> None:
    entities = components(COUNTED)
    assert entities.keys() == {"hr.privacy", "hr.window.hour"}
    share = entities["hr.window.hour"]
    assert share["state_topic"] == "fugu/2/home/count/watch/hr"
    assert share["expire_after"] == 3 * 3600
    assert value(share, COUNT.encode()) == "50.0"
    shown = attributes(share, COUNT.encode())
    assert (shown["low"], shown["high"], shown["confidence"], shown["useful"]) == (20.0, 80.0, 0.95, True)
    noise = replace(COUNT, useful=False).encode()
    assert value(share, noise) == "None"
    assert (attributes(share, noise)["low"], attributes(share, noise)["high"]) == (None, None)


def test_of_several_windows_each_takes_its_own_messages() -> None:
    hour = COUNTED.windows[0]
    entities = components(COUNTED.model_copy(update={"windows": (hour, hour.model_copy(update={"name": "day"}))}))
    assert value(entities["hr.window.hour"], COUNT.encode()) == "50.0"
    assert value(entities["hr.window.day"], COUNT.encode()) == ""
    assert entities["hr.window.hour"]["name"] != entities["hr.window.day"]["name"]


def test_a_histogram_has_a_share_of_each_state() -> None:
    labels = ("one", "two", "three")
    window = COUNTED.windows[0].model_copy(update={"states": "histogram"})
    entities = components(COUNTED.model_copy(update={"states": labels, "windows": (window,)}))
    count = replace(COUNT, states=labels, values=(6.0, -3.0, 57.0), low=(0.0, -9.0, 51.0), high=(12.0, 3.0, 63.0))
    shown = [value(entities[f"hr.window.hour.{index}"], count.encode()) for index in range(3)]
    assert shown == ["10.0", "-5.0", "95.0"]
    assert attributes(entities["hr.window.hour.2"], count.encode())["high"] == 105.0


@pytest.mark.parametrize(
    ("useful_for", "kind", "states", "there"),
    [
        ("state", "symbols", ("off", "on"), True),
        ("state", "both", ("off", "on"), True),
        ("share", "symbols", ("off", "on"), False),
        (None, "symbols", ("off", "on"), False),
        ("state", "windows", ("off", "on"), False),
        ("state", "symbols", ("bath", "hall", "away"), False),
    ],
)
def test_a_state_is_shown_only_where_the_plan_calls_it_useful(
    useful_for: str | None, kind: str, states: tuple[str, ...], there: bool
) -> None:
    assert ("hr.state" in components(named(states, useful_for=useful_for, kind=kind))) == there


@pytest.mark.parametrize(
    ("state", "probability", "shown"),
    [("on", LIKELY, "ON"), ("off", LIKELY, "OFF"), ("on", LIKELY - 1e-6, "None"), ("off", 0.5, "None")],
)
def test_a_state_that_is_not_likely_is_unknown(state: str, probability: float, shown: str) -> None:
    component = components(named(("off", "on"), useful_for="state"))["hr.state"]
    estimate = replace(ESTIMATE, state=state, probability=probability, shares={"off": 0.5, "on": 0.5})
    assert value(component, estimate.encode()) == shown


@pytest.mark.parametrize(
    ("states", "on", "device_class"),
    [
        (("off", "on"), "on", None),
        (("Home", "not_home"), "Home", "presence"),
        (("closed", "open"), "open", "opening"),
        (("low", "high"), "high", None),
    ],
)
def test_which_state_is_on_and_of_which_class_follows_from_the_names(
    states: tuple[str, str], on: str, device_class: str | None
) -> None:
    component = components(named(states, useful_for="state"))["hr.state"]
    assert component.get("device_class") == device_class
    estimate = replace(ESTIMATE, state=on, shares=dict.fromkeys(states, 0.5))
    assert value(component, estimate.encode()) == "ON"


def test_a_place_is_on_the_map_with_how_far_off_it_can_be() -> None:
    entities = components(SYMBOLS.model_copy(update={"kind": "points", "place": GRID}))
    estimate = PlaceEstimate(instant(SECOND), 1, 52.25, 4.5, 351.5, 400.0, 200.0, 0.0, 3, 1.0, "universal", True)
    assert "state_topic" not in entities["hr.place"]
    shown = attributes(entities["hr.place"], estimate.encode())
    assert (shown["latitude"], shown["longitude"], shown["gps_accuracy"]) == (52.25, 4.5, 351.5)


def test_a_measurement_has_its_unit_and_interval() -> None:
    entities = components(SYMBOLS.model_copy(update={"kind": "points", "unit": "lux"}))
    estimate = ValueEstimate(instant(SECOND), 1, (41.5,), (30.0,), (50.0,), "lux", 3, None, "universal", False)
    assert entities["hr.value"]["unit_of_measurement"] == "lux"
    assert value(entities["hr.value"], estimate.encode()) == "41.5"
    shown = attributes(entities["hr.value"], estimate.encode())
    assert (shown["low"], shown["high"], shown["useful"]) == (30.0, 50.0, False)


def test_what_a_tick_may_tell_stands_beside_what_is_protected() -> None:
    component = components(SYMBOLS)["hr.privacy"]
    assert component["entity_category"] == "diagnostic"
    epsilon = SYMBOLS.guarantee.epsilon
    assert epsilon is not None
    assert float(value(component, SYMBOLS.encode())) == math.ceil(1000 / (1 + math.exp(-epsilon))) / 10
    shown = attributes(component, SYMBOLS.encode())
    assert shown["epsilon"] == epsilon
    assert shown["promise"].startswith("Private: about any single tick, from 50 % to at most ")
    assert shown["protects"] == SYMBOLS.protects
    assert shown["does_not_protect"] == SYMBOLS.does_not_protect


def test_the_gateway_has_an_entity_for_its_alarms() -> None:
    document = gateway_document("home")
    check_document(document)
    alarm = HealthAlarm(AlarmCode.SILENT, 0, 1, ("watch",), 0, "see to it")
    (component,) = document["cmps"].values()
    (availability,) = document["availability"]
    for health, available, shown, codes in (
        (Health(True), "online", "OFF", ""),
        (Health(True, alarms=(alarm,)), "online", "ON", "silent"),
        (Health(False), "offline", "OFF", ""),
    ):
        assert rendered(availability["value_template"], health.encode()) == available
        assert value(component, health.encode()) == shown
        assert attributes(component, health.encode())["codes"] == codes


@pytest.mark.long
@settings(max_examples=6)
@given(st.lists(st.one_of(st.sampled_from(HOSTILE), NAMES), min_size=2, max_size=4, unique=True))
def test_names_of_states_are_never_a_part_of_a_template(labels: list[str]) -> None:
    """They may be any text: what it says is compared, and evaluated nowhere."""
    states = tuple(labels)
    entities = components(named(states, useful_for="state"))
    shares = {label: (index + 1) / sum(range(1, len(states) + 1)) for index, label in enumerate(states)}
    payload = replace(ESTIMATE, state=states[-1], shares=shares, useful=True).encode()
    for key, component in entities.items():
        if key.startswith("hr.share."):
            assert value(component, payload) == str(round(100 * shares[states[int(key.rpartition(".")[2])]], 2))
    if len(states) == 2:
        assert value(entities["hr.state"], payload) in ("ON", "OFF")
    window = COUNTED.windows[0].model_copy(update={"states": "histogram"})
    counted = components(COUNTED.model_copy(update={"states": states, "windows": (window,)}))
    numbers = tuple(float(index) for index in range(len(states)))
    count = replace(COUNT, states=states, values=numbers, low=numbers, high=numbers, observed=100)
    for key, component in counted.items():
        if key.startswith("hr.window."):
            assert float(value(component, count.encode())) == float(key.rpartition(".")[2])
            assert attributes(component, count.encode())["low"] == float(key.rpartition(".")[2])


def test_many_states_make_no_entities() -> None:
    assert components(named(tuple(f"c{x}" for x in range(MOST_STATES + 1)))).keys() == {"hr.privacy"}
    every = COUNTED.windows[0].model_copy(update={"states": tuple(f"c{x}" * 16 for x in range(20))})
    entities = components(COUNTED.model_copy(update={"states": every.states, "windows": (every,)}))
    assert "20 states" in entities["hr.window.hour"]["name"]


def test_names_do_not_depend_on_the_policy_and_belong_to_one_device() -> None:
    first, second = (components(named(("a", "b"), version=version)) for version in (1, 2))
    assert first == second
    other = components(named(("a", "b"), device="wa-tch"))
    assert {component["unique_id"] for component in first.values()}.isdisjoint(
        component["unique_id"] for component in other.values()
    )
    document = device_document([SYMBOLS])
    assert document["dev"]["via_device"] in gateway_document("home")["dev"]["identifiers"]


@pytest.mark.parametrize(
    ("address", "of_device"),
    [
        ("https://gw.example:8443/", "https://gw.example:8443/device/watch"),
        ("https://gw.example/fugu", "https://gw.example/fugu/device/watch"),
        ("homeassistant://hassio/ingress/local_fugu_edge", "homeassistant://hassio/ingress/local_fugu_edge"),
    ],
)
def test_devices_link_to_the_page(address: str, of_device: str) -> None:
    device, gateway = device_document([SYMBOLS], address), gateway_document("home", address)
    for document, link in ((device, of_device), (gateway, address)):
        check_document(json.loads(json.dumps(document)))
        assert document["dev"]["configuration_url"] == link
    assert "configuration_url" not in device_document([SYMBOLS])["dev"]


def test_every_entity_has_an_icon_of_its_own_or_of_its_class() -> None:
    points = [SYMBOLS.model_copy(update={"kind": "points", **more}) for more in ({"place": GRID}, {"unit": "lux"})]
    states = [named(labels, useful_for="state") for labels in (("off", "home"), ("a", "b"))]
    for description in (SYMBOLS, COUNTED, *points, *states):
        for component in components(description).values():
            assert ("icon" in component) is not ("device_class" in component), component


@pytest.mark.parametrize(
    "change",
    [
        {"object_id": "x"},
        {"expire_after": "60"},
        {"state_topic": "fugu/#"},
        {"value_template": "{{ states('sensor.x') }}"},
        {"unique_id": None},
        {"default_entity_id": "sensor.Bad"},
    ],
)
def test_a_document_that_is_wrong_is_refused(change: dict[str, Any]) -> None:
    """The check can fail."""
    document = json.loads(json.dumps(device_document([SYMBOLS])))
    document["cmps"]["hr.share.1"].update(change)
    with pytest.raises(AssertionError):
        check_document(document)
