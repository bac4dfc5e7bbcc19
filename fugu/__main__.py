"""`python -m fugu`: the same as the command `fugu`."""

from __future__ import annotations

import sys

from fugu_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
