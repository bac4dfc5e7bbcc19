"""The generator of boards without a good one: the standard's numbers, and no output twice, whenever the power goes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from firmware_sim.build import COMPUTATIONAL, Burnt, build
from fugu.contract.errors import FuguError
from tests.support.board_modules import board_module
from tests.support.board_policies import board_policy
from tests.support.boards import SUPPORT, micropython
from tests.support.command import runner

VECTORS = [
    # NIST CAVP, HMAC_DRBG.rsp, SHA-256: entropy input, nonce, personalisation, reseed, second output of 128 bytes.
    (
        "ca851911349384bffe89de1cbdc46e6831e44d34a4fb935ee285dd14b71a7488", "659ba96c601dc69fc902940805ec0ca8", "", "",
        "e528e9abf2dece54d47c7e75e5fe302149f817ea9fb4bee6f4199697d04d5b89d54fbb978a15b5c443c9ec21036d2460"
        "b6f73ebad0dc2aba6e624abf07745bc107694bb7547bb0995f70de25d6b29e2d3011bb19d27676c07162c8b5ccde0668"
        "961df86803482cb37ed6d5c0bb8d50cf1f50d476aa0458bdaba806f48be9dcb8",
    ),
    (
        "5cacc68165a2e2ee20812f35ec73a79dbf30fd475476ac0c44fc6174cdac2b55", "6f885496c1e63af620becd9e71ecb824",
        "e72dd8590d4ed5295515c35ed6199e9d211b8f069b3058caa6670b96ef1208d0", "",
        "f1012cf543f94533df27fedfbf58e5b79a3dc517a9c402bdbfc9a0c0f721f9d53faf4aafdc4b8f7a1b580fcaa52338d4"
        "bd95f58966a243cdcd3f446ed4bc546d9f607b190dd69954450d16cd0e2d6437067d8b44d19a6af7a7cfa8794e5fbd72"
        "8e8fb2f2e8db5dd4ff1aa275f35886098e80ff844886060da8b1e7137846b23b",
    ),
    (
        "06032cd5eed33f39265f49ecb142c511da9aff2af71203bffaf34a9ca5bd9c0d", "0e66f71edc43e42a45ad3c6fc6cdc4df", "",
        "01920a4e669ed3a85ae8a33b35a74ad7fb2a6bb4cf395ce00334a9c9a5a5d552",
        "76fc79fe9b50beccc991a11b5635783a83536add03c157fb30645e611c2898bb2b1bc215000209208cd506cb28da2a51"
        "bdb03826aaf2bd2335d576d519160842e7158ad0949d1a9ec3e66ea1b1a064b005de914eac2e9d4f2d72a8616a802254"
        "22918250ff66a41bd2f864a6a38cc5b6499dc43f7f2bd09e1e0f8f5885935124",
    ),
]  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS)
def test_the_numbers_of_the_standard(vector: tuple[str, ...]) -> None:
    entropy, nonce, personal, reseed, second = map(bytes.fromhex, vector)
    board = board_module("drbg").Drbg(entropy + nonce + personal)
    if reseed:
        board.reseed(reseed)
    board.generate(128)
    assert board.generate(128) == second


@pytest.mark.long
def test_no_output_comes_twice_whenever_the_power_goes() -> None:
    generator = random.Random(4)
    seeds = (generator.randbytes(64).hex() for _ in range(2))
    cuts = int(micropython(SUPPORT / "board_generator.py", *seeds, heap="512k"))
    print(f"{cuts} cuts")
    assert cuts > 40


def test_an_esp32_whose_radio_is_off_draws_nothing() -> None:
    assert micropython(SUPPORT / "board_radio.py") == "refused\n"


@pytest.mark.parametrize("board", ["rp2040", "rp2350"])
def test_a_board_without_a_generator_takes_a_secret(
    board: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, secret = board_policy(), random.Random(5).randbytes(40)
    for weak, why in ((b"", "not of cryptographic grade"), (secret[:31], "at least 32"), (b"0123456789" * 9, "random")):
        with pytest.raises(FuguError, match=why):
            build([policy], tmp_path / "image", Burnt(board=board, secret=weak))
    with pytest.raises(FuguError, match="the others have a generator"):
        build([policy], tmp_path / "image", Burnt(board="esp32", secret=secret))
    assert not (tmp_path / "image").exists()
    (tmp_path / "policy.json").write_text(policy.to_json())
    (tmp_path / "secret").write_bytes(secret)
    words = (
        "deploy",
        "firmware",
        "build",
        tmp_path / "policy.json",
        "--board",
        board,
        "--secret-file",
        tmp_path / "secret",
        "-o",
    )
    seeds, fugu = set(), runner(capsys)
    for name in ("one", "two"):
        assert fugu(*words, tmp_path / name, "--json").json()["randomness"] == COMPUTATIONAL
        seeds.add((tmp_path / name / "generator.seed").read_bytes())
        files = [file.read_bytes() for file in (tmp_path / name).rglob("*") if file.is_file()]
        assert not any(secret[:16] in data or secret[:16].hex().encode() in data for data in files)
        assert repr(COMPUTATIONAL).encode() in (tmp_path / name / "image.py").read_bytes()
    assert len(seeds) == 2  # another image has another seed, from the same secret
    assert {len(seed) for seed in seeds} == {64}
