"""`python -m edge_agent.judge CONFIG KIND NOW PARENT SURE < ENVELOPE`: judge a document, in a process of its own.

So the running agent does not load large libraries, and a fault in a parser does not end it. Memory and time are
limited, and no file is written; the answer is one JSON object on standard output. An accepted document takes effect
only when the agent has stored it. SURE is `sure` if the clock is known to be synchronised.
"""

from __future__ import annotations

import base64
import binascii
import json
import resource
import sys
from pathlib import Path

from edge_agent.config_schema import read_config
from edge_agent.enrolled import open_trust, stream_forms
from fugu.contract.envelope import MAX_ENVELOPE_BYTES, Kind
from fugu.contract.errors import TrustError
from fugu.contract.fleet_documents import TableDocument
from fugu.host.child import Answer, answer_of
from fugu.host.process import end_with_parent

MEMORY_BYTES = 1 << 29
PROCESSOR_SECONDS = 60
_KINDS: dict[str, Kind] = {"root": "root", "policy": "policy", "table": "table", "time": "time", "stop": "stop"}


def main(arguments: list[str]) -> int:
    """Judge the document on standard input and print the answer; the exit code is 0, also for a refusal."""
    limits = {resource.RLIMIT_AS: MEMORY_BYTES, resource.RLIMIT_CPU: PROCESSOR_SECONDS, resource.RLIMIT_FSIZE: 0}
    for resource_kind, limit in limits.items():
        _, hard_limit = resource.getrlimit(resource_kind)
        limit = limit if hard_limit == resource.RLIM_INFINITY else min(limit, hard_limit)
        resource.setrlimit(resource_kind, (limit, limit))
    path, kind, now, parent, clock_word = arguments
    end_with_parent(int(parent))
    payload = sys.stdin.buffer.read(MAX_ENVELOPE_BYTES + 1)
    answer = answer_of(lambda: judge(Path(path), kind, payload, int(now), is_synchronised=clock_word == "sure"))
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    return 0


def judge(path: Path, kind: str, payload: bytes, now: int, *, is_synchronised: bool = False) -> Answer:
    """Judge a document as the device of a configuration, and return the answer for its agent. Raises TrustError.

    `now` is Unix time in seconds, `is_synchronised` whether the clock is known to be synchronised.
    """
    config = read_config(path)
    trust = open_trust(config, path.parent)
    if (expected_kind := _KINDS.get(kind)) is None:
        raise TrustError(f"documents of kind {kind} are not sent")
    verdict = trust.judge(payload, expected_kind, now, is_synchronised=is_synchronised)
    answer: Answer = {"kind": kind, "changes": verdict.changes, "state": verdict.state.pack().hex()}
    if verdict.compiled:
        answer["plans"] = stream_forms(verdict, config, path.parent)
    elif isinstance(verdict.document, TableDocument):
        try:
            base64.b64decode(verdict.document.table, validate=True)
        except binascii.Error:
            raise TrustError("a table that is no base64") from None
        answer |= {"stream": verdict.document.stream, "table": verdict.document.table}
    return answer


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
