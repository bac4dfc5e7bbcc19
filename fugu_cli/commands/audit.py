"""`fugu check statement`, `fugu check device`, `fugu check stream` and `fugu check ledger`."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer import Argument, Option

from firmware_sim.constant import run_constant
from fugu.audit.device import device_tests
from fugu.contract.envelope import sign
from fugu.contract.errors import FuguError, PolicyError, UsageError
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.host.arguments import positive
from fugu.host.files import write_public
from fugu.library.checks import load_policy
from fugu.library.report import Result
from fugu.mqtt.broker import LinkError
from fugu.mqtt.probe import listen, probe
from fugu.planning.recorded_policy import true_states
from fugu.recordings.options import read_options
from fugu_cli.app import BrokerOption, KnownOption, PolicyArgument, check_commands, output_option
from fugu_cli.commands.fleet_keys import EnrolmentsOption, PassphraseFiles, enrolments_in, passphrases_in
from fugu_cli.commands.ledger import LedgerOption, ledger_location
from fugu_cli.commands.plan_options import RecordingOptions
from fugu_cli.connection import broker_of
from fugu_cli.view.audit import device_result, statement_result, stream_result
from fugu_cli.view.ledger import audit_result
from fugu_cli.view.terminal import say_waiting, working
from gateway.audit.access import AccessList, planned_audiences
from gateway.audit.recordings import Message, read_messages, stream_topics
from gateway.audit.statement import Finding, Statement, policy_statement
from gateway.audit.stream import audit_stream
from gateway.config import Place
from gateway.fleet.keys import Root, key_files
from gateway.fleet.signing import policies_in
from gateway.releases.config import ReleaseConfig
from gateway.releases.ledger import Ledger

if TYPE_CHECKING:
    from fugu.audit.device import DrawTest
    from fugu.contract.fleet_documents import Enrolment


_PATIENCE = 300.0
"""Seconds without a message after which an agent counts as stopped; a slow agent takes long to fill a frame."""


def policy(
    file: PolicyArgument,
    *,
    enrolment: Annotated[
        Path | None, Option(metavar="FILE", help="Hold it against this device's ceilings and pins.")
    ] = None,
    broker: Annotated[
        Path | None, Option(metavar="DIR", help="Folder of the broker: who may read what is released.")
    ] = None,
    store: Annotated[
        str | None,
        Option(
            metavar="FILE|URL", help="The gateway's store, which knows since when the policy is true after another one."
        ),
    ] = None,
    sign: Annotated[Path | None, Option(metavar="KEY", help="Sign the statement with this key's file.")] = None,
    output: Annotated[Path | None, output_option("FILE", "Where the signed statement is written.")] = None,
    passphrase_file: PassphraseFiles = None,
) -> Result:
    """State what a policy releases, to whom, and what that loses.

    Every epsilon is computed again by a second implementation, in exact fractions. What it does not compute is said to
    be NOT RECOMPUTED.

    Exit code 1 if something is wrong, or not recomputed.

    \b
    examples:
      fugu check statement policy.json
      fugu check statement policy.json --enrolment watch/enrolment.json --broker broker --json
      fugu check statement policy.json --store home.db
      fugu check statement policy.json --sign keys/policy-0a1b2c3d.key -o statement.envelope
    """
    if (sign is None) != (output is None):
        raise UsageError("--sign and --output belong together")
    device_enrolment: Enrolment | None = next(iter(enrolments_in([enrolment] if enrolment else None)), None)
    try:
        with working("computing every epsilon again"):
            store_place = None if store is None else Place.of(store).store
            statement = policy_statement(file.read_bytes(), device_enrolment, broker, store_place)
    except PolicyError as error:
        raise PolicyError(f"{file}: {error}") from None
    if sign is not None and output is not None:
        write_public(output, _signed_statement(statement, _signing_key(sign, passphrase_file)))
    return statement_result(statement)


def _signed_statement(statement: Statement, signing_key: Ed25519PrivateKey) -> bytes:
    """Return a statement's JSON in a signed envelope of the kind `statement`."""
    payload = json.dumps(statement.document(), sort_keys=True, separators=(",", ":")).encode()
    return sign("statement", payload, [signing_key]).encode()


def device(
    file: Annotated[Path, Argument(metavar="FILE", help="The policy that the device runs, in its JSON form.")],
    *,
    broker: BrokerOption = "127.0.0.1:1883",
    command: Annotated[
        str, Option(metavar="WORDS", help="The agent's program; the path of a configuration is added.")
    ] = "fugu-agent",
    draws: Annotated[int, Option(metavar="N", min=1000, help="Symbols or points of every state.")] = 100_000,
    counts: Annotated[int, Option(metavar="N", min=100, help="Counts of every state and window.")] = 100_000,
    false_alarms: Annotated[float, Option(metavar="P", help="Chance of an alarm without a fault.")] = 0.001,
    period: Annotated[
        float, Option(metavar="SECONDS", help="Time from draw to draw; shorter is faster, while the agent keeps up.")
    ] = 0.0005,
) -> Result:
    """Test the randomness of a device, from what it publishes.

    The agent runs with readings that stay the same, one stream for each of up to 8 states, and with readings that
    change by a script. For each kind of draws it is started three times, and only its draws may differ. Symbols, counts
    and points are held against the distributions that the policy gives them, and against each other. They must not
    depend on the states of other ticks. A hundred million draws take hours.

    Exit code 1 if anything is not as it should be.

    \b
    examples:
      fugu check device policy.json
      fugu check device policy.json --command "/opt/agent/bin/agent" --draws 100000000 --json
    """
    if not 0.0 < false_alarms < 1.0:
        raise FuguError(f"false alarms are a probability inside (0, 1), got {false_alarms:g}")
    period_us = max(1, round(positive(period, "period") * 1e6))
    try:
        command_words = shlex.split(command)
    except ValueError:
        command_words = []
    if not command_words:
        raise UsageError(f"--command is a program with its options, got {command[:80]!r}")
    policy = load_policy(file)
    tests: list[DrawTest] = []
    problem, policy_parts = "", _policy_parts(policy)
    address = broker_of(broker).beside(Path.cwd())  # the agent's configuration is in another folder
    if (outcome := probe(address, log_in=False, on_wait=say_waiting)).step != "done":
        raise LinkError(f"the agent has to reach the broker: {outcome.problem}")
    for policy_part in policy_parts:
        draw_count = counts if isinstance(policy_part, Policy) and policy_part.table is None else draws
        with tempfile.TemporaryDirectory() as folder, working("drawing"):
            outputs = run_constant(
                command_words, policy_part, address, Path(folder), draw_count, period_us=period_us, patience=_PATIENCE
            )
        problem = problem or outputs.problem
        draws_heard = outputs.symbols, outputs.noise, outputs.points
        tests += device_tests(policy, *draws_heard, false_alarms / len(policy_parts), outputs.script, outputs.changes)
    return device_result(tests, problem, false_alarms)


def _policy_parts(policy: AnyPolicy) -> list[AnyPolicy]:
    """Split a policy with symbols and windows into two policies, since counts take longer to publish."""
    if not isinstance(policy, Policy) or policy.table is None or not policy.windows:
        return [policy]
    no_guarantee = {"windows_guarantee": None}
    return [
        policy.model_copy(update={**no_guarantee, "windows": ()}),
        policy.model_copy(update={**no_guarantee, "table": None, "frame_ticks": 1}),
    ]


def stream(
    file: Annotated[Path, Argument(metavar="POLICY", help="The policy of the stream, in its JSON form.")],
    truth: Annotated[
        Path | None,
        Argument(
            metavar="[TRUTH]",
            help="What was read, as a recording of any form; it is taken at the policy's clock. If none of its "
            "times is one of what was heard, it was replayed from its first row on.",
        ),
    ] = None,
    *,
    related_policies: Annotated[
        list[Path] | None,
        Option("--with", metavar="POLICY", help="Policy of a stream that moves together with it; may be repeated."),
    ] = None,
    releases: Annotated[Path | None, Option(metavar="FILE", help="The gateway's configuration of releases.")] = None,
    access: Annotated[
        Path | None, Option(metavar="DIR", help="Folder of the broker: who may read what by its access list.")
    ] = None,
    recording: Annotated[
        Path | None, Option(metavar="FILE", help="Lines of a topic, a space and the payload in hex.")
    ] = None,
    live: Annotated[float | None, Option(metavar="SECONDS", help="Instead: listen at the broker.")] = None,
    broker: BrokerOption = "127.0.0.1:1883",
    reading: RecordingOptions,
    loop: Annotated[bool, Option("--loop", help="Rows of the truth begin anew after the last.")] = False,
    known: KnownOption = None,
    trials: Annotated[int, Option(metavar="N", min=1000, help="Simulated draws of each of two states.")] = 20_000,
) -> Result:
    """Attack all that each audience may read of a stream.

    What an audience may read is attacked as it is configured, by simulation. What was heard is held against that, and
    attacked too if its truth is given. What attackers reach shows an epsilon that there is at least, at a confidence
    of 95 %.

    Exit code 1 if that is above what is promised, or something that was heard is not as it is stated.

    \b
    examples:
      fugu check stream policy.json --releases releases.toml --access broker
      fugu check stream light.json --with motion.json
      fugu check stream policy.json night.csv --recording heard.txt
      fugu check stream policy.json night.csv --loop --live 600 --broker screen/broker.toml
    """
    if recording is not None and live is not None:
        raise UsageError("give either --recording or --live")
    if truth is not None and recording is None and live is None:
        raise UsageError("what was read is of use beside --recording or --live")
    policies = [load_policy(path) for path in (file, *(related_policies or ()))]
    config = ReleaseConfig.load(releases) if releases is not None else None
    access_list = AccessList.of(access) if access is not None else None
    audiences = planned_audiences(policies, config) if access_list is None else access_list.audiences(policies, config)
    address = broker_of(broker)
    with working("listening and attacking"):
        messages = None
        if recording is not None:
            messages = read_messages(recording)
        elif live is not None:
            topics = stream_topics(policies[0])
            messages = listen(address, topics, positive(live, "live"), say_waiting)
        recorded_truth = None
        if truth is not None:
            if not isinstance(policies[0], Policy):
                raise UsageError("what was read is held against symbols and windows, not against points")
            recorded_truth = true_states(policies[0], truth, read_options(**reading.texts()))
        stream_audit = audit_stream(
            policies, audiences, config,
            messages=messages, truth=recorded_truth, loop=loop, known_one_in=known, trials=trials,
        )  # fmt: skip
    if access_list is not None and live is not None:
        stream_audit = stream_audit._replace(
            findings=(*_unlisted_findings(access_list, address.username or "", messages or ()), *stream_audit.findings)
        )
    return stream_result(stream_audit)


def _unlisted_findings(access_list: AccessList, account: str, messages: Iterable[Message]) -> list[Finding]:
    """Return a finding for each topic that a broker delivered to an account against its access list."""
    return [
        Finding("delivered-not-listed", f"{account or 'whoever gives no name'} was told {topic}, which is not granted")
        for topic in dict.fromkeys(topic for topic, _ in messages)
        if not access_list.may_read(account, topic)
    ]


def ledger(
    *,
    ledger: LedgerOption = None,
    store: Annotated[
        str | None, Option(metavar="FILE|URL", help="The gateway's store: is this its newest ledger?")
    ] = None,
    broker: Annotated[
        Path | None, Option(metavar="DIR", help="Folder of the broker: what each reader was told in all.")
    ] = None,
    policies: Annotated[
        list[Path] | None,
        Option(metavar="PATH", help="Policies that were in force, JSON or signed, or a folder; may be repeated."),
    ] = None,
    root: Annotated[Path | None, Option(metavar="FILE", help="The fleet's root, for signed policies.")] = None,
    enrolment: EnrolmentsOption = None,
    releases: Annotated[
        Path | None, Option(metavar="FILE", help="The gateway's configuration: what audiences are promised.")
    ] = None,
) -> Result:
    """Recompute what audiences have learned.

    Every charge is added up again, and every release is computed again from its sums and its noise. The loss of each
    stream's worst tick is held against what the audience is promised. The store shows whether this is the newest
    ledger, or one that was put back from a copy: it knows which releases were published. It also knows how many ticks
    lay between a policy that allowed more and a later one that allows less; without a store none are assumed.

    Without --policies and --releases the ledger alone says what its charges are for, and whoever can write to it can
    change that. The output says what was believed.

    Exit code 1 if more was told than promised, or something does not agree.

    \b
    examples:
      fugu check ledger --store home.db
      fugu check ledger --store home.db --policies policies --releases releases.toml
      fugu check ledger --ledger home-ledger.db --store home.db --broker broker --json
    """
    from gateway.audit.ledger import audit_ledger
    from gateway.releases.setup import histories_in, ledger_problem

    location = ledger_location(ledger, store)
    with closing(Ledger(location, create=False)) as ledger_db, working("computing everything again"):
        problem = ledger_problem(ledger_db, Place.of(store).store) if store is not None else ""
        with ledger_db.snapshot() as ledger_tables:
            devices = {account_row[1] for account_row in ledger_tables.accounts()}
        documents = policies_in(
            _policy_files(policies), None if root is None else Root.read(root), enrolments_in(enrolment), devices
        )
        if policies and not any(isinstance(document, Policy) for document in documents):
            raise UsageError("--policies has no policy of symbols or windows: nothing would be held against them")
        release_config = None if releases is None else ReleaseConfig.load(releases)
        promises = None
        if release_config is not None:
            promises = {name: audience.promise for name, audience in release_config.audiences.items()}
        with ExitStack() as stack:
            histories = None if store is None else stack.enter_context(histories_in(Place.of(store).store, ""))
            audit = audit_ledger(ledger_db, broker, documents, promises, histories)
    return audit_result(audit._replace(problems=((problem,) if problem else ()) + audit.problems), location.name)


def _policy_files(paths: list[Path] | None) -> list[Path]:
    """Return the named files, and the policies in the named folders."""
    named_paths = paths or []
    files = [file for path in named_paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    return [file for file in files if file.suffix in (".json", ".envelope") or file in named_paths]


def _signing_key(file: Path, passphrases: list[Path] | None) -> Ed25519PrivateKey:
    """Unlock the key in a file; FuguError if the file holds none, or no passphrase opens it."""
    matching_keys = [key_file for key_file in key_files([file.parent]) if key_file.path == file]
    if not matching_keys:
        raise FuguError(f"{file} is no file of a key, as 'fugu fleet init' writes them")
    return matching_keys[0].unlock(passphrases_in(passphrases))


check_commands(__name__)
