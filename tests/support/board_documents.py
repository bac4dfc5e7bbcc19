"""Runs under MicroPython, or CPython: an image's judge of documents, one after the other, and where it stands then.

Arguments: the folder of the image, and a file with a kind, a Unix time and a payload in each line.
"""

import hashlib
import sys

sys.path.insert(0, sys.argv[1])
import image

from fugu.core.derived import accept
from fugu.core.judge import judge
from fugu.core.trust import RefusedError, TrustState
from sanitiser.signatures import all_match

trusted = TrustState(image.ROOT)
with open(sys.argv[2]) as lines:
    for line in lines:
        kind, now, payload = line[:-1].split(" ")
        reason = "accepted"
        try:
            verified = lambda checks: all_match(checks, lambda: None)  # noqa: E731
            updated, content = judge(kind, bytes.fromhex(payload), image, trusted, int(now), verified)
            if content is not None:
                updated, _ = accept(content, image, trusted, lambda: None)
        except RefusedError as error:
            reason, updated = error.reason, None
        trusted = updated or trusted
        root = hashlib.sha256(trusted.root).digest()[:4].hex()
        print(kind, reason, trusted.version, trusted.time, trusted.stopped, root)
