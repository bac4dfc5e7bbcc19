"""Readings in a message of a local device."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu.host.payload import MalformedError, ResentCheck, message, parse_path, quoted_key, value_at

SECRET = "71.53194726"


@pytest.mark.parametrize(
    ("payload", "path", "expected"),
    [
        ("21.5", None, "21.5"),
        (" ON\n", None, "ON"),
        ('{"occupancy": true}', "occupancy", "true"),
        ('{"occupancy": false, "battery": 90}', "occupancy", "false"),
        ('{"ENERGY": {"Power": 1.50}}', "ENERGY.Power", "1.50"),
        ('{"outputs": [{"on": "ON"}, {"on": "OFF"}]}', "outputs.1.on", "OFF"),
        ('{"0": "a key of digits"}', "0", "a key of digits"),
        ('{"at": {"lat": 52.1, "lon": 4}}', "at.lat, at.lon", "52.1,4"),
        ("[1, 2]", "1", "2"),
        ('{"1.7.0": "840"}', '"1.7.0"', "840"),
        ('{"meter": {"1.7.0": 840, "2.7.0": 0}}', 'meter."1.7.0",meter . "2.7.0"', "840,0"),
        ('{"a,b": [{"c\\"d": 1}]}', '"a,b".0."c\\"d"', "1"),
        ('{"1.7.0": "840"}', "1.7.0", None),
        ("9" * 5000, None, "9" * 5000),
        ('{"v": ' + "9" * 5000 + "}", "v", "9" * 5000),
        ('{"v": NaN}', "v", "NaN"),
        ('{"v": 1e999}', "v", "1e999"),
        ('{"battery": 90}', "occupancy", None),
        ('{"lat": 52.1}', "lat,lon", None),
        ("[1]", "1", None),
        ("[1]", "-1", None),
        ("[1]", "9" * 5000, None),
        ("[1]", "²", None),
        ('"71"', "deeper", None),
    ],
)
def test_the_value_of_a_message_is_its_text_as_it_was_written(payload: str, path: str | None, expected: str) -> None:
    assert value_at(payload.encode(), path) == expected


@settings(max_examples=30)
@given(st.lists(st.text(max_size=6), min_size=1, max_size=4), st.text(max_size=3))
def test_every_key_can_be_written(keys: list[str], value: str) -> None:
    document: object = f"<{value}>"
    for key in reversed(keys):
        document = {key: document}
    assert parse_path(".".join(map(quoted_key, keys))) == (tuple(keys),)
    assert value_at(json.dumps(document).encode(), ".".join(map(quoted_key, keys))) == f"<{value}>"


@pytest.mark.parametrize("path", ['"1.7.0', 'a"b', '"a"b', '"\\x"', 'a."'])
def test_a_path_that_cannot_be_read_is_refused_in_one_line(path: str) -> None:
    with pytest.raises(ValueError, match=r"^path .*(written as in JSON|is no text of JSON)") as error:
        parse_path(path)
    assert "\n" not in str(error.value)


NOW = 1_750_000_000.0


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1750000000123", 1_750_000_000.123),
        ('"2025-06-15T15:06:40.000Z"', NOW),
        ('"2025-06-15T17:06:40+02:00"', NOW),
        ("1750000000", NOW),
        ("12", None),
        ('"just now"', None),
        ("null", None),
        ("[1]", None),
        ("9" * 5000, None),
    ],
)
def test_when_a_device_was_heard(written: str, expected: float | None) -> None:
    payload = f'{{"occupancy": true, "last_seen": {written}}}'.encode()
    assert message(payload, "occupancy") == ("true", expected)


def test_a_value_that_is_sent_again_is_no_measurement() -> None:
    check = ResentCheck()
    assert not check.is_new(NOW - 60.1, NOW), "the first, from a cache"
    assert not check.is_new(NOW - 60.1, NOW + 1)
    assert check.is_new(NOW - 50, NOW + 2), "a bridge whose clock is a minute behind"
    assert check.is_new(NOW - 40, NOW + 3)
    assert not check.is_new(NOW - 40, NOW + 4), "sent again"
    assert not check.is_new(NOW - 600, NOW + 5), "an older cache, after a restart"
    assert check.is_new(None, NOW + 6), "a payload that does not say"
    assert check.is_new(NOW - 30, NOW + 7), "its clock was set back"
    assert ResentCheck().is_new(NOW - 60, NOW)


@given(st.binary(max_size=200), st.sampled_from([None, "a", "0", ".", ",", "a,b"]))
def test_no_bytes_are_too_odd(payload: bytes, path: str | None) -> None:
    try:
        part = value_at(payload, path)
    except MalformedError:
        return
    assert part is None or part


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab0"), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.long
@settings(max_examples=40)
@given(JSON, st.lists(st.sampled_from("ab01"), min_size=1, max_size=3))
def test_a_path_leads_where_python_s_own_indices_lead(document: object, keys: list[str]) -> None:
    expected: object = document
    for key in keys:
        try:
            expected = expected[int(key) if isinstance(expected, list) else key]
        except (KeyError, IndexError, TypeError, ValueError):
            assert value_at(json.dumps(document).encode(), ".".join(keys)) is None
            return
    if expected is None or isinstance(expected, list | dict) or (isinstance(expected, str) and not expected.strip()):
        with pytest.raises(MalformedError):
            value_at(json.dumps(document).encode(), ".".join(keys))
    else:
        written = expected if isinstance(expected, str) else json.dumps(expected)
        assert value_at(json.dumps(document).encode(), ".".join(keys)) == written.strip()


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (b"", None),
        (b"  ", None),
        (b"\xff" + SECRET.encode(), None),
        (b"1" * 65537, None),
        (SECRET.encode() + b"}", "v"),
        (b'{"v": null}', "v"),
        (b'{"v": {"deeper": 71.53194726}}', "v"),
        (b'{"v": [71.53194726]}', "v"),
        (b'{"v": ""}', "v"),
        (b"[" * 60000, "v"),
        (b'{"v":' * 10000, "v"),
    ],
)
def test_what_has_no_value_is_malformed_and_nothing_of_it_is_told(payload: bytes, path: str | None) -> None:
    with pytest.raises(MalformedError) as error:
        value_at(payload, path)
    assert str(error.value) == ""
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None
