"""What the watch over a stream's class has found, told to the device's owner and nobody else.

It follows from true states, without noise. So it is neither in a file nor on the network: `fugu-agent --status` asks
the running agent for it, over a socket beside the outbox that only the agent's own account can open.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge_agent.stream import Stream
from host.asking import Answering, ask

__all__ = ["LocalWatch", "ask_watch"]


class LocalWatch:
    """The agent's end of the socket."""

    def __init__(self, outbox: str | Path) -> None:
        self._asked = Answering(_beside(outbox))

    def answer(self, streams: Sequence[Stream]) -> None:
        """Tell those who wait, if anybody does."""
        while self._asked.answer(lambda: "\n".join(map(_line, streams))):
            pass

    def close(self) -> None:
        """Answer nobody any more."""
        self._asked.close()


def ask_watch(outbox: str | Path) -> str:
    """What the running agent that has an outbox finds, as lines for people."""
    if (found := ask(_beside(outbox))) is None:
        return "  model watch: no answer; the agent that runs gives one, to its own account only"
    return found


def _line(stream: Stream) -> str:
    text = "nothing that the guarantee assumes of the readings' chain could be seen to be wrong"
    return f"  model watch, stream {stream.plan.stream}: {stream.watch.sentence() if stream.watch else text}"


def _beside(outbox: str | Path) -> Path:
    return Path(f"{outbox}.watch")
