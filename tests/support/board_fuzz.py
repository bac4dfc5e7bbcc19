"""Runs under MicroPython: mutated policies and watermarks, which may crash nothing.

Arguments: a compiled policy, a watermark, its key in hexadecimal digits, a seed, how many of each. Prints how many of
the policies could be read, and how many of those were proven; none of the watermarks may be taken.
"""

import random
import sys

from fugu.core.compiled import read_policy
from fugu.core.guarantee import GuaranteeError, check
from fugu.core.messages import MessageError, read_watermark
from fugu.core.pins import check_pins
from fugu.core.policy import PolicyError

CEILINGS = ((1 << 140, 0),)


def mutated(data):
    data = bytearray(data)
    for _ in range(1 + random.getrandbits(2)):
        how, at = random.getrandbits(3), random.randrange(len(data))
        if how < 3:
            data[at] ^= 1 << random.getrandbits(3)
        elif how < 5:
            data[at] = random.choice((0, 1, 2, 127, 128, 254, 255, random.getrandbits(8)))
        elif how == 5 and len(data) > 2:
            data = data[:at] + data[at + 1 + random.getrandbits(3) :]
        elif how == 6:
            data = data[:at] + bytes([random.getrandbits(8)]) + data[at:]
        else:
            other = random.randrange(len(data))
            data = data[:at] + data[other : other + 4] + data[at + 4 :]
        if not data:
            data = bytearray(b"F")
    return bytes(data)


def main(policy, watermark, key, seed, count):
    random.seed(int(seed))
    with open(policy, "rb") as file:
        policy = file.read()
    with open(watermark, "rb") as file:
        watermark = file.read()
    key = bytes.fromhex(key)
    pinned = read_policy(policy)
    check(pinned, CEILINGS)
    genuine = read_watermark(watermark, key, "home", "watch")
    read = proven = accepted = 0
    for _ in range(int(count)):
        other = mutated(policy)
        if other == policy:
            continue
        try:
            policy_read = read_policy(other)
            read += 1
            check(policy_read, CEILINGS)
            proven += 1
            check_pins(policy_read, pinned)
            accepted += 1
        except (PolicyError, GuaranteeError):
            pass
        other = mutated(watermark)
        try:
            judged = read_watermark(other, key, "home", "watch")
        except MessageError:
            continue
        assert judged == genuine, "a watermark that nobody has said is taken"  # the same in other bytes is no other
    print(read, proven, accepted)


main(*sys.argv[1:])
