"""`python -m tests.support.gateway_program PORT STORE POLICIES`: a gateway that comes back to its broker soon."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from fugu.mqtt import Broker
from gateway.loop.process import run
from tests.support.gateway_files import gateway_config

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    port, store, policies = sys.argv[1:]
    sys.exit(run(gateway_config("home", Broker("127.0.0.1", int(port), max_backoff=1), Path(store), Path(policies))))
