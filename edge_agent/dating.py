"""`python -m edge_agent.dating CONFIG PARENT < DRAWN`: describe streams by the ticks that their device has drawn.

A running agent does not load the mathematics of a change of policy. It sends its rows of drawn ticks to this process;
`fugu-agent --status` calls this module itself. PARENT is the number of the parent process. The answer is a JSON object
with the descriptions by stream.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edge_agent.config_schema import read_config, read_policies
from edge_agent.enrolled import open_trust
from edge_agent.policy_history import Edition
from fugu.contract.descriptions import DescribedPromise, Description, describe
from fugu.contract.history import History, Noise, RelatedStream, history_alone, history_of, related_names
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.timeline import Drawn
from fugu.host.child import Answer, answer_of
from fugu.host.process import end_with_parent

__all__ = ["describe_streams", "device_history", "promise_sentences"]


def device_history(
    policy: AnyPolicy, drawn_ticks: Mapping[str, Mapping[str, Any]], policies: Iterable[AnyPolicy] = ()
) -> History:
    """Build the history of a policy's stream.

    `drawn_ticks` has `DrawnTicks.document` by stream of the device; `policies` are the policies that the device runs.
    """
    own_history, default_history = _own_history(policy, drawn_ticks[policy.stream]), history_alone(policy)
    peer_names = related_names(policy)
    peer_histories = [
        RelatedStream(f"{peer.device}/{peer.stream}", _own_history(peer, drawn_ticks[peer.stream]), (peer,))
        for peer in policies
        if f"{peer.device}/{peer.stream}" in peer_names and peer.stream in drawn_ticks
    ]
    return own_history._replace(related_streams=(*default_history.related_streams, *peer_histories))


def _own_history(policy: AnyPolicy, drawn_document: Mapping[str, Any]) -> History:
    drawn_rows = [Drawn(*row) for row in drawn_document["rows"]]
    if not drawn_rows:
        return history_alone(policy)
    editions = {int(number): Edition(*edition) for number, edition in drawn_document["editions"].items()}
    running = _edition(policy)
    # A version whose document was replaced under the same number is another policy.
    versions = {number: policy.version if edition == running else -number for number, edition in editions.items()}
    noises = {versions[number]: Noise.read(edition.noise) for number, edition in editions.items()}
    return history_of([row._replace(version=versions[row.version]) for row in drawn_rows], noises)


def describe_streams(config: Path, drawn_ticks: Mapping[str, Mapping[str, Any]]) -> dict[str, Description]:
    """Describe the streams whose policies on disk the agent still runs; FuguError if policies cannot be read."""
    descriptions, policies = {}, list(_read_policies(config))
    for policy in policies:
        drawn_document = drawn_ticks.get(policy.stream)
        if drawn_document is not None and Edition(*drawn_document["running"]) == _edition(policy):
            descriptions[policy.stream] = describe(policy, history=device_history(policy, drawn_ticks, policies))
    return descriptions


def promise_sentences(description: Description) -> list[str]:
    """Say what a stream promises, and when the promise is true."""
    promises = [("", description.guarantee), ("its windows alone: ", description.windows_guarantee)]
    return [f"{prefix}{_sentence(promise)}" for prefix, promise in promises if promise is not None]


def _sentence(promise: DescribedPromise) -> str:
    stretch_words = "any tick" if promise.stretch_ticks == 1 else f"any {promise.stretch_ticks} ticks in a row"
    if promise.epsilon is None:
        return f"no bound about {stretch_words}"
    return f"epsilon {promise.epsilon:g} about {stretch_words}, {promise.when_words or 'whenever they begin'}"


def _edition(policy: AnyPolicy) -> Edition:
    return Edition(policy.version, Noise.of(policy).text() if isinstance(policy, Policy) else "")


def _read_policies(path: Path) -> Iterable[AnyPolicy]:
    config = read_config(path)
    if config.enrolment is not None:
        verdict = open_trust(config, path.parent).in_force()
        return () if verdict is None else verdict.policies
    return read_policies(config, path.parent)


def main(arguments: list[str]) -> int:
    """Describe the streams of the rows on standard input; the arguments are CONFIG and PARENT."""
    config, parent = arguments
    end_with_parent(int(parent))
    os.nice(10)

    def date_streams() -> Answer:
        documents = describe_streams(Path(config), json.load(sys.stdin))
        return {"descriptions": {stream: description.encode().decode() for stream, description in documents.items()}}

    sys.stdout.write(json.dumps(answer_of(date_streams)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
