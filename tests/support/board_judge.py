"""Runs under MicroPython: the policy that an image in a folder would run. Argument: the folder."""

import os
import sys

os.chdir(sys.argv[1])
sys.path.insert(0, sys.argv[1])
import image  # noqa: E402

from sanitiser.start import accepted  # noqa: E402

print(accepted(image).version)
