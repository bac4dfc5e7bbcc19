"""Images and a benchmark are built from policies that a board can run; everything else is refused in one line."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from firmware_sim.build import Burnt, build, enrol, modules, strip_for_board
from fugu.contract.compiler import compile_board_policy
from fugu.contract.discretisers import Baseline, Cells, Thresholds
from fugu.contract.errors import FuguError, GuaranteeError, PolicyError
from fugu.contract.guarantee import Guarantee
from fugu.contract.pins import pins_of
from fugu.contract.policy import Policy
from fugu.contract.stretches import Ceiling
from fugu.contract.windows import Window
from fugu.core.stream import Stream
from tests.support.board_policies import board_policy
from tests.support.command import runner
from tests.support.groups import shared
from tests.support.signing import Keys

POLICY = board_policy()
MEAN = Baseline(baseline_ticks=100, lowest=0.0, highest=200.0)
PLACES = Cells(origin=(0.0, 0.0), step=(1.0, 1.0), cells=((0, 0), (1, 0)), states=("west", "east"))
HIGHER = Thresholds(edges=(80.0,), states=("low", "high"))
LONG = Window(name="w", length=6000, stride=100, states="histogram", scale="9999999999")


def test_the_benchmark_asks_a_stream_for_what_it_has() -> None:
    """It is a script for a board: no type checker reads it."""
    calls = re.findall(
        r"^ *stream\.(\w+)\(", (Path(__file__).parents[2] / "benchmarks" / "firmware.py").read_text(), re.M
    )
    assert calls
    assert all(hasattr(Stream, name) for name in calls)


def test_an_image_has_the_sanitiser_and_what_is_burnt_into_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fugu = runner(capsys)
    (tmp_path / "policy.json").write_text(POLICY.to_json())
    image = tmp_path / "image"
    done = fugu(
        "deploy", "firmware", "build", str(tmp_path / "policy.json"), "--board", "unix", "-o", str(image), "--json"
    )
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["epsilon"] <= 4.0
    assert document["bytes"] == sum(file.stat().st_size for file in image.rglob("*") if file.is_file()) < 60_000
    burnt: dict[str, Any] = {}
    exec((image / "image.py").read_text(), burnt)
    assert burnt["POLICIES"] == [compile_board_policy(POLICY)]
    assert fugu("deploy", "firmware", "build", str(tmp_path / "policy.json"), "-o", str(image)).out.endswith(
        "function read().\n"
    )


@pytest.mark.parametrize(
    ("change", "unit", "why"),
    [
        ({"discretiser": PLACES}, "1", "no grids of places"),
        ({"discretiser": MEAN}, "1/10", "exact in binary"),
        ({"discretiser": MEAN.model_copy(update={"highest": 1e300})}, "1", "too large"),
        ({}, "0", "above 0, and at most"),
        ({}, "1e300", "above 0, and at most"),
        (
            {"windows": (LONG,), "windows_guarantee": Guarantee(epsilon=4.0, adversary="informed"), "table": None},
            "1",
            "1024 counts",
        ),
        ({"guarantee": Guarantee(epsilon=2000.0, adversary="informed")}, "1", "at most 1000"),
        ({"sums": (shared(),)}, "1", "cannot encrypt reports to the helper of group street: use the agent"),
    ],
)  # fmt: skip
def test_what_the_firmware_does_not_do_is_refused(change: dict[str, Any], unit: str, why: str) -> None:
    labels = tuple(str(i) for i in range(20))
    wide = {"discretiser": Thresholds(edges=tuple(range(1, 20)), states=labels)} if "windows" in change else {}
    with pytest.raises(PolicyError, match=why) as caught:
        compile_board_policy(POLICY.model_copy(update=wide | change), Fraction(unit))
    assert "\n" not in str(caught.value)


def test_a_false_guarantee_a_low_ceiling_and_a_weak_generator_are_refused(tmp_path: Path) -> None:
    false = POLICY.model_copy(update={"guarantee": Guarantee(epsilon=0.1, adversary="informed")})
    refusals: list[tuple[Policy, Burnt, type[FuguError], str]] = [
        (false, Burnt(), GuaranteeError, "above the 0.1 of its guarantee"),
        (POLICY, Burnt(ceilings=(Ceiling(epsilon=3.0),)), GuaranteeError, "above this device's ceiling 3"),
        (POLICY, Burnt(board="rp2040"), FuguError, "not of cryptographic grade"),
    ]
    for policy, burnt, kind, why in refusals:
        with pytest.raises(kind, match=why):
            build([policy], tmp_path / "image", burnt)
    assert not (tmp_path / "image").exists()


OTHER = POLICY.model_copy(update={"stream": "motion"})


@pytest.mark.parametrize(
    ("policies", "enrolment", "why"),
    [
        ((POLICY, POLICY), {}, "two policies of an image are for one stream"),
        ((POLICY, OTHER.model_copy(update={"version": 2})), {}, "of one fleet, one device and one version"),
        ((), {}, "0 policies; an image has 1 to 8"),
        ((POLICY, OTHER), {"total_ceiling": 9.0}, "what all streams tell together"),
        ((POLICY,), {"total_ceiling": 3.0}, "above this device's ceiling 3"),
        ((POLICY,), {"adversaries": ("universal",)}, "its owner accepts universal"),
        ((POLICY,), {"device": "ring"}, "the enrolment is of home/ring"),
        ((POLICY,), {"pins": {"motion": pins_of(OTHER)}}, "nothing is pinned of stream hr"),
        ((POLICY,), {"pins": {"hr": pins_of(POLICY.model_copy(update={"discretiser": HIGHER}))}}, "another disc"),
    ],
)  # fmt: skip
def test_images_that_their_owner_or_the_board_would_not_have(
    tmp_path: Path, policies: tuple[Policy, ...], enrolment: dict[str, Any], why: str
) -> None:
    with pytest.raises((FuguError, GuaranteeError), match=why):
        build(policies, tmp_path, enrol(Burnt(), Keys().enrolment(**{"ceiling": 9.0} | enrolment), policies))
    assert not (tmp_path / "image.py").exists()


def test_a_unit_of_a_stream_without_a_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FuguError, match="stream haert has a unit, but no policy"):
        build([POLICY], tmp_path, Burnt(), {"haert": Fraction(1, 10)})


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FuguError, match="no certificate in PEM form"):
        build([POLICY], tmp_path, Burnt(ca=b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"))


LEAN = """
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
__all__ = ["f"]
LIMIT = 7
_FEW = 1 << 4
_FAR = 1 << 40

def f(first, second, third, given=_FEW):
    left = third
    def inner(second):
        nonlocal left
        left += second + third
        return left
    return inner(_FAR) + sum([first for first in (second, _FEW)]) + first + given + LIMIT
"""


def test_a_board_keeps_few_names_and_does_the_same() -> None:
    """Names that a function or a comprehension within another has as well stay as they are."""
    lean = strip_for_board(LEAN)
    words = set(re.findall(r"\w+", lean))
    assert not {"TYPE_CHECKING", "_FEW", "__all__", "third"} & words
    assert {"LIMIT", "_FAR", "given", "first", "second", "left"} <= words
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    exec(LEAN, before)
    exec(lean, after)
    assert before["f"](3, 4, 5) == after["f"](3, 4, 5) == (1 << 40) + 56
    joint = "def f(a):\n    if a.chains == JOINT:\n        return _joint(a)\n    return _alone(a)\n"
    own = "\ndef _joint(a):\n    return 1\n\ndef _alone(a):\n    return 2\n"
    lean = strip_for_board(joint + own)
    assert lean.count("def ") == 2
    assert "return _a(a)" in lean
    imported = "from .policy import NONE, Policy\n\ndef f(a: Policy):\n    return a.place != NONE\n"
    assert strip_for_board(imported) == imported.replace("NONE, ", "").replace("NONE", "255")
    assert (
        strip_for_board("def f(tick, index=1):\n    return tick + index\n")
        == "def f(a, index=1):\n    return a + index\n"
    )


def test_no_module_of_a_board_gives_a_parameter_without_a_default_by_its_name() -> None:
    """Its name is another on the board."""
    required, keywords = set[str](), set[str]()
    for file in modules().values():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.arguments):
                required |= {argument.arg for argument in node.args[: len(node.args) - len(node.defaults)]}
            elif isinstance(node, ast.Call):
                keywords |= {word.arg for word in node.keywords if word.arg}
    assert keywords & required == {"policies", "root"}, "with_changes takes any"


ROOT = Path(__file__).parents[2]
_READINGS = """
import sys
sys.path.insert(0, "benchmarks")
from pathlib import Path
import firmware
folder = Path(sys.argv[1])
policy = firmware._policy(frame_ticks=60, period_us=1_000_000)
image = firmware.build([policy], folder / "stream", firmware.Burnt())
print(firmware._run(folder, firmware._STREAM.format(folder=str(image.folder), readings=300), 64))
"""


def test_the_benchmark_reads_on_a_board(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _READINGS, str(tmp_path)]
    microseconds, frames = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert float(microseconds) > 0.0
    assert int(frames) == 300 // 60 + 300 // 100  # of symbols, and of one of its two windows
