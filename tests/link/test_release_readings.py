"""Releases as a subscriber gets them: once each, of the streams that it wants, and never under another name."""

from __future__ import annotations

from dataclasses import replace

from contract.release_frames import encode_release
from contract.topics import release_topic
from mqtt_link import Broker, ReleaseReading, Subscription
from tests.support.example_frames import RELEASE_FRAME

TOPIC = release_topic("home", "public", "active")


def test_a_release_is_handed_out_once_and_the_next_one_too() -> None:
    readings = Subscription(Broker(), fleet="home")
    assert readings.decode(TOPIC, encode_release(RELEASE_FRAME)) == [ReleaseReading("active", RELEASE_FRAME)]
    assert readings.decode(TOPIC, encode_release(RELEASE_FRAME)) == []
    following = replace(RELEASE_FRAME, first=10_800, entry=13)
    assert readings.decode(TOPIC, encode_release(following)) == [ReleaseReading("active", following)]
    assert not readings.rejected


def test_other_streams_are_left_out() -> None:
    assert Subscription(Broker(), fleet="home", stream="steps").decode(TOPIC, encode_release(RELEASE_FRAME)) == []
    assert len(Subscription(Broker(), fleet="home", stream="hr").decode(TOPIC, encode_release(RELEASE_FRAME))) == 1


def test_what_is_no_release_of_that_name_is_counted_and_left_out() -> None:
    readings = Subscription(Broker(), fleet="home")
    assert readings.decode(release_topic("home", "public", "other"), encode_release(RELEASE_FRAME)) == []
    assert readings.decode(release_topic("home", "other", "active"), encode_release(RELEASE_FRAME)) == []
    assert readings.decode(TOPIC, encode_release(RELEASE_FRAME)[:-1]) == []
    assert readings.decode(TOPIC, b"") == []
    assert readings.rejected == {"topic": 2, "malformed": 2}


def test_releases_are_subscribed_to_with_all_devices_only() -> None:
    assert "fugu/2/home/release/+/+" in Subscription(Broker(), fleet="home").link.subscriptions
    assert "fugu/2/home/release/+/+" not in Subscription(Broker(), fleet="home", device="watch").link.subscriptions
    assert "fugu/2/home/release/+/+" not in Subscription(Broker(), fleet="home", releases=False).link.subscriptions
