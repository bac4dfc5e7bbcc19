"""A board refuses any bytes in an orderly way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgpack
import pytest

from fugu.contract.chains import BoundedChains
from fugu.contract.compiler import compile_board_policy
from fugu.contract.envelope import Envelope, Kind, encode_roots, sign
from fugu.contract.frames import Committed, Gap, StreamCommit
from fugu.contract.guarantee import Guarantee
from fugu.contract.windows import Window
from fugu.core.derived import of_boards
from fugu.core.judge import judge
from fugu.core.trust import RefusedError, TrustState
from tests.support.board_modules import verified
from tests.support.board_policies import board_policy
from tests.support.board_trust import board_document, burnt_image
from tests.support.boards import SUPPORT, micropython
from tests.support.mutations import changed, garbled
from tests.support.signing import NOW, Keys

KEY = bytes(range(32))
TEN = Window(name="ten", length=10, stride=10, states=(1,), scale="20")


@pytest.mark.long
@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.soak)])
def test_mutated_policies_and_watermarks(tmp_path: Path, count: int) -> None:
    promise = Guarantee(epsilon=6.0, adversary="universal")  # the quickest to derive
    policy = board_policy(TEN).model_copy(update={"guarantee": promise, "windows_guarantee": promise})
    (tmp_path / "policy.bin").write_bytes(compile_board_policy(policy))
    message = Committed((StreamCommit("hr", 900, (Gap(3, 70),)), StreamCommit("hr/ten", 80, ())), 1_795_423_929_926_860)
    (tmp_path / "watermark").write_bytes(message.signed(KEY, "home", "watch").encode())
    files = tmp_path / "policy.bin", tmp_path / "watermark"
    process = micropython(SUPPORT / "board_fuzz.py", *files, KEY.hex(), 7, count, heap="96k")
    read, proven, _ = map(int, process.split())
    assert count > read > proven > 0


class _Signed:
    """Signed documents that a board has not seen, changed in some way, and what it makes of them."""

    def __init__(self, folder: Path) -> None:
        self.keys = Keys()
        promise = Guarantee(epsilon=4.0, adversary="universal")  # the quickest to derive
        wide = {"guarantee": promise, "chains": BoundedChains(states=2, odds_ratio=1.5)}
        policies = [board_policy(version=version).model_copy(update=wide) for version in (1, 2)]
        self.image = burnt_image(folder, policies[:1], self.keys.enrolment(ceiling=5.0))
        self.trusted = TrustState(self.image.ROOT)
        self.genuine: dict[Kind, bytes] = {
            "policy": self.keys.signed(board_document(policies[1], version=2)),
            "stop": self.keys.signed_stop(3),
            "time": self.keys.signed_time(NOW),
            "root": encode_roots([self.keys.root_envelope(), Keys().root_envelope(2, *self.keys.root[:2])]),
        }
        self.content = {kind: self.judged(kind, payload) for kind, payload in self.genuine.items()}
        assert all(self.content.values())

    def judged(self, kind: Kind, payload: bytes) -> Any:
        """State to keep, as far as the document says; none if it is refused."""
        try:
            trusted, content = judge(kind, payload, self.image, self.trusted, NOW, verified)
            if content is not None:
                trusted, _ = of_boards(content, self.image, self.trusted, lambda: None)
        except RefusedError:
            return None
        return None if trusted is None else {name: value for name, value in vars(trusted).items() if name != "digest"}

    def resigned(self, kind: Kind, generator: random.Random) -> bytes:
        """Another content, validly signed by those who may."""
        signers = {"policy": self.keys.policy[:2], "root": self.keys.root[:2]}.get(kind, self.keys.gateway)
        payload = self.genuine[kind]
        if kind == "root":
            return encode_roots([sign(kind, _other(self.keys.root_envelope(), generator), signers).encode()])
        return sign(kind, _other(payload, generator), signers).encode()


def _other(envelope: bytes, generator: random.Random) -> bytes:
    """The content of an envelope, changed: its fields, or its bytes."""
    content = Envelope.decode(envelope).payload
    if generator.random() < 0.7:
        fields = msgpack.unpackb(content)
        place = generator.choice(list(fields))
        fields[place] = changed(fields[place], generator)
        return bytes(msgpack.packb(fields))
    return garbled(content, generator) or b"x"


@pytest.mark.long
@pytest.mark.parametrize("count", [300, pytest.param(5_000, marks=pytest.mark.soak)])
def test_mutated_signed_documents(tmp_path: Path, count: int) -> None:
    kind: Kind
    signed, generator = _Signed(tmp_path), random.Random(5)
    outcomes = {"refused": 0, "the same": 0, "signed anew": 0}
    for number in range(count):
        kind = generator.choice(
            ("policy", "policy", "policy", "policy", "stop", "stop", "time", "time", "time", "root")
        )
        if number % 50 == 0:
            signed.judged(kind, signed.resigned(kind, generator))
            outcomes["signed anew"] += 1
            continue
        payload = signed.genuine[kind]
        if generator.random() < 0.5:
            fields = msgpack.unpackb(payload[1:])
            other = payload[:1] + msgpack.packb(changed(fields, generator))
        else:
            other = garbled(payload, generator)
        verdict = signed.judged(kind, other)
        outcomes["refused" if verdict is None else "the same"] += 1
        assert verdict in (None, signed.content[kind]), "what nobody has signed is accepted"
    assert outcomes["refused"] > count // 2
