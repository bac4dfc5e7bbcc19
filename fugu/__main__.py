"""Run the command `fugu` by `python -m fugu`."""

from __future__ import annotations

import sys

from fugu_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
