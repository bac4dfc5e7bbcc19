"""What a message of a local device says."""

from __future__ import annotations

import pytest

from edge_agent.sensors.payload import MalformedError, value_at

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
