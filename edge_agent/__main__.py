"""`fugu-agent CONFIG.toml`: run the agent of one device."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fugu.host.terminal import LOG_FORMATS, Parser, add_version, exit_code, log_to_stderr, print_lines, run_program

if TYPE_CHECKING:
    from edge_agent.plan import AgentPlan

__all__ = ["main"]

_COMMANDS = ("pause", "resume", "moved", "set-back", "key", "join")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an agent until SIGTERM or SIGINT, or run one of its commands.

    The exit code is 0 after an orderly stop. It is 1 if the agent or a command refuses, `--check` finds a sensor that
    cannot be used, or `--doctor` a failure; 2 if the command line cannot be read, 130 if interrupted.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    return run_program(lambda: exit_code("fugu-agent", lambda: _run(words)))


def _parser() -> Parser:
    parser = Parser(
        prog="fugu-agent",
        description="Randomise a sensor's readings and publish the symbols.",
        epilog="example: fugu-agent /etc/fugu/agent.toml. For the person who is measured: "
        "fugu-agent pause CONFIG.toml [--for 2h], fugu-agent resume CONFIG.toml. "
        "For groups of homes: fugu-agent key CONFIG.toml, fugu-agent join CONFIG.toml GROUP. "
        "After the device's disk was moved to another machine: fugu-agent moved CONFIG.toml",
    )
    parser.add_argument("config", metavar="CONFIG.toml", help="the device's configuration")
    parser.add_argument(
        "--check",
        action="store_true",
        help="check configuration and policies, show what is pinned, read each sensor once, send nothing, then "
        "stop; 1 if one cannot be used",
    )
    parser.add_argument("--status", action="store_true", help="show how the agent that runs here is, then stop")
    parser.add_argument(
        "--doctor", action="store_true", help="look at the whole installation, say what to do, then stop"
    )
    parser.add_argument("--verbose", action="store_true", help="log what happens, not only what goes wrong")
    parser.add_argument(
        "--log-format", choices=LOG_FORMATS, default="text", help="of the log: an object a line is json"
    )
    add_version(parser, "fugu-agent")
    return parser


def _run(words: Sequence[str]) -> int:
    if words and words[0] in _COMMANDS:
        from edge_agent.commands import run_command

        print(run_command(words, input))
        return 0
    options = _parser().parse_args(words)
    log_to_stderr(options.log_format, verbose=options.verbose)
    from edge_agent.config import check_in_child

    if options.status:
        from edge_agent.config_schema import read_config
        from edge_agent.local_control import ask_status, status_words

        config = Path(options.config)
        status = ask_status(config.parent / read_config(config).outbox)
        print_lines(status_words(status, _promises(config, status)))
        return 0
    if options.doctor:
        return _run_doctor(Path(options.config))
    from fugu.host.process import Notifier, at_stop_signals

    at_stop_signals(sys.exit)
    wait_for_plan = check_in_child(options.config)
    # Loaded while the child checks the configuration.
    from edge_agent.agent import Agent
    from edge_agent.randomiser import system_entropy
    from edge_agent.sensors.sharing import open_sensors

    plan = wait_for_plan()
    if options.check:
        return _run_check(options.config, plan)
    agent = Agent(plan, open_sensors(plan.streams), system_entropy(), notifier=Notifier.of_process())
    at_stop_signals(agent.stop)
    agent.run()
    return 0


def _promises(config: Path, status: dict[str, Any]) -> dict[str, list[str]]:
    """Return by stream the promises of its policy, with dates. Streams whose policy has changed are left out."""
    from edge_agent.dating import describe_streams, promise_sentences

    drawn_ticks = {stream["stream"]: stream["drawn"] for stream in status["streams"]}
    return {name: promise_sentences(promise) for name, promise in describe_streams(config, drawn_ticks).items()}


def _run_check(config: str, plan: AgentPlan) -> int:
    from edge_agent.doctor import limits, try_sensors
    from edge_agent.local_control import LocalStatusError, ask_status
    from edge_agent.sensors.opening import silence_warning

    print_lines(f"{config}: {len(plan.streams)} stream(s), every guarantee holds")
    for line in limits(config):
        print_lines(line)
    for stream in plan.streams:
        if warning := silence_warning(stream.sensor):
            print_lines(f"stream {stream.stream}: {warning}")
    try:
        ask_status(plan.outbox)
    except LocalStatusError:
        outcomes = try_sensors(plan.streams)
        for sentence, _ in outcomes:
            print_lines(sentence)
        return int(any(is_wrong for _, is_wrong in outcomes))
    print_lines("the agent runs, and has its sensors open: fugu-agent --status says how they are")
    return 0


def _run_doctor(config: Path) -> int:
    from edge_agent.doctor import examine
    from fugu.host.checks import has_failure, lines

    findings = examine(config, lambda reason: print(f"fugu-agent: {reason}", file=sys.stderr, flush=True))
    print_lines("\n".join(lines(findings)))
    return 1 if has_failure(findings) else 0


if __name__ == "__main__":
    sys.exit(main())
