"""Runs under MicroPython: the board of an image in a folder judges documents, one after the other, as they arrive.

Arguments: the folder, then a kind and a file for each document. Prints the version in force and the reason of each.
"""

import os
import sys

os.chdir(sys.argv[1])
sys.path.insert(0, sys.argv[1])
import image  # noqa: E402

from sanitiser.following import Following  # noqa: E402
from sanitiser.start import TRUST_FILE, accepted  # noqa: E402

trusted, own, policies = accepted(image, lambda: None)
switch = lambda trusted, policies: trusted.store(TRUST_FILE)  # noqa: E731
follows = Following(image, trusted, policies[0].version, lambda: 1800000000, switch, lambda: None, "", "")
print("start", policies[0].version, trusted.stopped)
for at in range(2, len(sys.argv), 2):
    with open(sys.argv[at + 1], "rb") as file:
        follows.arrived(
            {"root": "root", "policy": "policy/set", "time": "time", "stop": "stop"}[sys.argv[at]], file.read()
        )
    for kind in list(follows._waiting):
        follows._judge(kind, follows._waiting.pop(kind))
    print(follows.version, follows._reason or "accepted")
