"""Key files: a standard encrypted form."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from gateway.fleet.keys import decrypted, encrypted
from tests.support.signing import new_keys


def test_a_key_is_written_in_a_form_that_others_read_too(tmp_path: Path) -> None:
    (key,) = new_keys(1)
    path = tmp_path / "key.pem"
    path.write_bytes(encrypted(key, "correct horse"))
    shown = subprocess.run(["openssl", "asn1parse", "-in", str(path)], capture_output=True, text=True, check=True)
    assert re.findall(r"INTEGER +:(\w+)", shown.stdout) == ["4000", "08", "05"]
    assert decrypted(path.read_bytes(), "correct horse", path).private_bytes_raw() == key.private_bytes_raw()
    command = ["openssl", "pkey", "-in", str(path), "-passin", "pass:correct horse", "-pubout", "-outform", "DER"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.endswith(key.public_key().public_bytes_raw())
