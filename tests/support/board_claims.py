"""Runs under MicroPython, or CPython: says of each line, a compiled policy, whether what it claims is proven."""

import sys

from fugu.core.compiled import read_policy
from fugu.core.guarantee import GuaranteeError, check

with open(sys.argv[1]) as lines:
    for line in lines:
        try:
            check(read_policy(bytes.fromhex(line.strip())))
        except GuaranteeError:
            print("refused")
        else:
            print("accepted")
