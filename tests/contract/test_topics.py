"""Topics are built and parsed in one place, and hold no wildcard, separator or reserved name."""

from __future__ import annotations

import pytest

from fugu.contract.errors import TopicError
from fugu.contract.topics import RESERVED_DEVICES, Topic, check_device_name, parse_topic, topic_of


@pytest.mark.parametrize(
    ("topic", "parsed"),
    [
        (topic_of("status", "home", "watch"), Topic("status", "home", "watch", "")),
        (topic_of("committed", "home", "watch"), Topic("committed", "home", "watch", "")),
        (topic_of("symbols", "home", "watch", "hr"), Topic("symbols", "home", "watch", "hr")),
        (topic_of("window", "home", "watch", "hr"), Topic("window", "home", "watch", "hr")),
        (topic_of("estimate", "home", "watch", "hr"), Topic("estimate", "home", "watch", "hr")),
        (topic_of("count", "home", "watch", "hr"), Topic("count", "home", "watch", "hr")),
        (topic_of("description", "home", "watch", "hr"), Topic("description", "home", "watch", "hr")),
        (topic_of("health", "home"), Topic("health", "home", "", "")),
        (topic_of("release", "home", "public", "active"), Topic("release", "home", "", "", "public", "active")),
    ],
)
def test_topics_come_apart_as_they_were_put_together(topic: str, parsed: Topic) -> None:
    assert topic.startswith("fugu/2/")
    assert parse_topic(topic) == parsed


@pytest.mark.parametrize(
    "name",
    [
        *("", "a/b", "#", "a+", "a b", "ä", "x" * 65),
        *("a\n", "estimate", "count", "description", "release", "health", "$SYS"),
    ],
)
def test_a_name_that_could_reach_elsewhere_is_refused(name: str) -> None:
    for kind in ("status", "committed"):
        with pytest.raises(TopicError):
            topic_of(kind, "home", name)
    with pytest.raises(TopicError):
        parse_topic(f"fugu/2/home/{name}/status")
    with pytest.raises(TopicError):
        parse_topic(f"fugu/2/home/watch/symbols/{name}/")


def test_what_is_told_of_no_device_looks_like_a_policy_for_one() -> None:
    """Or an operator, who may write `+/policy/set`, could forge what the gateway says of a device's stream."""
    for kind in ("description", "estimate", "count"):
        with pytest.raises(TopicError):
            topic_of(kind, "home", "policy", "set")


@pytest.mark.parametrize(
    ("audience", "release"),
    [
        *((name, "active") for name in (*sorted(RESERVED_DEVICES), "", "a/b", "x" * 65)),
        *((kind, "set") for kind in ("symbols", "window", "table", "policy")),
    ],
)
def test_an_audience_cannot_look_like_a_device_or_a_part_of_its_topic(audience: str, release: str) -> None:
    """Or an operator, who may read and write `+/policy/set`, could read and forge its release `set`."""
    with pytest.raises(TopicError):
        topic_of("release", "home", audience, release)
    with pytest.raises(TopicError):
        parse_topic(f"fugu/2/home/release/{audience}/{release}")


@pytest.mark.parametrize("name", sorted(RESERVED_DEVICES))
def test_streams_and_releases_may_have_the_names_that_devices_may_not(name: str) -> None:
    assert parse_topic(topic_of("symbols", "home", "watch", name)) == Topic("symbols", "home", "watch", name)
    assert parse_topic(topic_of("count", "home", "watch", name)) == Topic("count", "home", "watch", name)
    assert parse_topic(topic_of("release", "home", "public", name)) == Topic("release", "home", "", "", "public", name)


@pytest.mark.parametrize(
    "topic",
    [
        *("", "fugu", "fugu/1/home/watch/status", "other/2/home/watch/status", "fugu/2/home/watch/symbols"),
        *("fugu/2/h/w/x", "fugu/2/home/watch/symbols/", "fugu/2/home/watch/window/"),
        *("fugu/2/home/watch/window/hr/high", "fugu/2/home/watch/symbols/hr/more", "fugu/2/home/estimate/watch"),
        *("fugu/2/home/count/watch", "fugu/2/home/description/watch/", "fugu/2/home/release/active"),
    ],
)
def test_other_topics_are_refused(topic: str) -> None:
    with pytest.raises(TopicError):
        parse_topic(topic)


def test_the_name_of_one_device_is_no_wildcard_and_no_other_part() -> None:
    for name in ("watch", "ring-0001", "x" * 64):
        check_device_name(name)
    for name in ("", "+", "#", "a/b", "a b", "x" * 65, "watch\n", *RESERVED_DEVICES):
        with pytest.raises(TopicError):
            check_device_name(name)
