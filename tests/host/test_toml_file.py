"""Values that are written as TOML are read again as they were."""

from __future__ import annotations

import tomllib

from fugu.host.toml_file import toml_lines


def test_every_character_comes_back() -> None:
    values = {"text": "".join(map(chr, range(0x100))), "words": ["\x7f", "é\u2028"], "table": {"inside": '"\\'}}
    assert tomllib.loads("\n".join(toml_lines({**values, "left_out": None}))) == values
