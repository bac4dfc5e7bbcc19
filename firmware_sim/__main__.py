"""`python -m firmware_sim`: a crowd of simulated devices against a broker."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
from pathlib import Path

from firmware_sim.devices import run_crowd, simulate_recording, simulate_states, typical_chain, write_device
from fugu.contract.errors import FuguError, UsageError
from fugu.contract.policies import read_policy
from fugu.host.clock import Wake
from fugu.host.process import Parser, add_version
from fugu.mqtt import Broker

LENGTH = 10_000


def main() -> int:
    """Run the devices until SIGTERM, SIGINT or the given time; exit codes as of the other programs."""
    try:
        options = _parser().parse_args()
        stop = Wake()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: stop.set())
        configs = prepare(options)
        if options.seconds is not None:
            threading.Timer(options.seconds, stop.set).start()
        run_crowd(configs, stop)
    except (FuguError, OSError) as error:
        print(f"firmware_sim: {' '.join(str(error).split())}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="python -m firmware_sim",
        description="Run many simulated devices, each the real agent under its own name, in this process. "
        'Writes FOLDER/policies for a gateway: policies = "FOLDER/policies" in its file.',
        epilog="example: python -m firmware_sim policy.json --devices 50 --broker 127.0.0.1:1883 --folder crowd",
    )
    parser.add_argument("policy", type=Path, help="policy to give to every device, under the device's own name")
    parser.add_argument("--devices", type=int, default=10, help="how many (up to 300)")
    parser.add_argument("--broker", default="127.0.0.1:1883", help="host:port")
    parser.add_argument("--folder", type=Path, default=Path("crowd"), help="where to keep their files")
    parser.add_argument("--recording", type=Path, help="CSV or NPZ to replay; else the policy's chain is simulated")
    parser.add_argument("--column", default="value", help="column of the recording")
    parser.add_argument("--seed", type=int, default=1, help="seed of the simulated chains")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    add_version(parser, "firmware_sim")
    return parser


def prepare(options: argparse.Namespace) -> list[Path]:
    """Write the folders of all devices; returns their configuration files."""
    template = read_policy(options.policy.read_bytes())
    policies = options.folder / "policies"
    policies.mkdir(parents=True, exist_ok=True)
    configs = []
    for number in range(options.devices):
        policy = template.model_copy(update={"device": f"{template.device}-{number:04d}"})
        folder = options.folder / policy.device
        folder.mkdir(exist_ok=True)
        recording = options.recording or folder / "simulated.csv"
        if options.recording is None:
            path = simulate_states(typical_chain(policy), LENGTH, random.Random(f"{options.seed}-{number}"))
            simulate_recording(recording, policy, path)
        (policies / f"{policy.device}.json").write_text(policy.to_json())
        broker = Broker.parse(options.broker)
        configs.append(write_device(folder, policy, recording, options.column, broker, loop=True))
    return configs


if __name__ == "__main__":
    sys.exit(main())
