"""The structure that the architecture promises: who may import whom, and what stays off the edge."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.support.rooms import ROOMS, TOPS, room_of

ROOT = Path(__file__).parents[1]
HEAVY = {"numpy", "numba", "scipy", "pyarrow", "ray"}
PURE = {
    *("fugu.chains", "fugu.audit.exact", "fugu.privacy", "fugu.places", "fugu.attackers", "fugu.contract"),
    "fugu.core",
}
RETIRED = {"arms", "consider", "kept", "law", "laws", "news", "settled"}
"""Words for which docs/glossary.md has others: an idea has one name."""
EMPTY = re.compile(
    r"(?<![\w.])(?:one|found|known|told|made|given|left|said|kept)(?![\w=])"
    r"(?<!^    known)(?<!^    told)(?<!^    given)(?<!^    left)(?<!^    made)(?<!^    said)(?<!^    found)",
    re.MULTILINE,
)
"""Names that do not say what they hold, but for fields of classes."""
IO = {"socket", "sqlite3", "paho", "subprocess", "asyncio", "fugu.host", "fugu.mqtt"}


def files_of(package: str) -> list[Path]:
    """All files of a package, or the one of a module."""
    place = ROOT / package.replace(".", "/")
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


TEXTS = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|#[^\n]*', re.DOTALL)
IMPORT = re.compile(r"^( *)((?:from ([\w.]+) )?import (\([^)]*\)|.*))", re.MULTILINE)
PRIVATE = re.compile(r"(?:import|[.,(\n]) *_[A-Za-z]")
REACHED = re.compile(r"(?<![\w.])(\w+)(?:\.[a-z]\w*)*\._[A-Za-z]")
FOR_CHECKERS = re.compile(r"^if TYPE_CHECKING: *\n(?:(?: .*)?\n)+", re.MULTILINE)


@cache
def code(file: Path) -> str:
    """The tokens of a file outside texts and comments: to parse every file takes as long as all rules do."""
    return TEXTS.sub(lambda text: "" if text[0][0] == "#" else '""', file.read_text())


def imports(package: str) -> set[tuple[str, str]]:
    """(file, imported module) for every import in a package or module, also those inside functions."""
    return {(str(file.relative_to(ROOT)), name) for file in files_of(package) for name in imported(file)}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_only_what_they_may(room: str) -> None:
    allowed = ROOMS[room] | {room, None}
    wrong = [
        (file, module)
        for file, module in imports(room)
        if room_of(file.removesuffix(".py").replace("/", ".")) == room
        and module.partition(".")[0] in TOPS
        and room_of(module) not in allowed
    ]
    assert wrong == []


def test_every_wait_of_a_test_has_an_end() -> None:
    """Of threads by `tests.support.brokers.await_end`; a coroutine ends by a timeout around it."""
    endless = re.compile(r"^(?!.*\b(?:await|create_task)\b).*\.(?:join|wait|communicate)\(\).*$", re.MULTILINE)
    assert {str(file): lines for file in (ROOT / "tests").rglob("*.py") if (lines := endless.findall(code(file)))} == {}


def test_every_module_has_a_room() -> None:
    """But for the names that rooms are below."""
    assert {name for name in modules() if room_of(name) is None} == {"fugu", "fugu.__main__", "gateway"}


def test_what_another_module_uses_is_public() -> None:
    """So that `__all__` counts what a reader of a module meets elsewhere. Packages pass names on; papers/ reads all."""
    files, wrong = modules(), []
    public = {name: set(re.findall(r'"(\w+)"', all_of(file))) for name, file in files.items()}
    for user, file in files.items():
        for _, _, source, names in IMPORT.findall(code(file)) if not user.startswith("papers") else ():
            for name, alias in re.findall(r"(\w+)(?: as (\w+))?", names) if source in files else ():
                if (module := f"{source}.{name}") in files:
                    used = re.findall(rf"(?<![\w.]){alias or name}\.(\w+)", code(file))
                else:
                    module, used = source, [name]
                is_package = files[module].name == "__init__.py"
                wrong += [] if is_package else [(user, module, name) for name in used if name not in public[module]]
    assert sorted(set(wrong)) == []


def test_no_module_imports_a_name_with_an_underscore() -> None:
    """Tests, benchmarks and papers come in by the door, too; so many times they still reach for `module._name`."""
    house, names, reached = {*TOPS, "tests"}, [], 0
    for file in (file for package in (*TOPS, "tests", "benchmarks", "deploy") for file in files_of(package)):
        if not (private := PRIVATE.search(text := code(file))):
            continue
        modules_here = set[str]()
        for _, _, source, listed in IMPORT.findall(text) if private else ():
            pairs = re.findall(r"([\w.]+)(?: as (\w+))?", listed)
            if (source or listed).partition(".")[0] in house:
                names += [(str(file.relative_to(ROOT)), name) for name, _ in pairs if name[0] == "_" != name[1]]
                modules_here |= {alias or name for name, alias in pairs}
        reached += sum(name in modules_here for name in REACHED.findall(text))
    assert names == []
    assert reached <= 80


def all_of(file: Path) -> str:
    match = re.search(r"^__all__ = \[.*?\]", file.read_text(), re.MULTILINE | re.DOTALL)
    return match[0] if match else ""


def modules() -> dict[str, Path]:
    """The file of every module of every package, by its name."""
    files = (file for package in TOPS for file in (ROOT / package).rglob("*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


@cache
def imported(file: Path, *, typing: bool = True) -> frozenset[str]:
    """Every name that a file imports; without `typing` not those that only a type checker sees."""
    imported_names: set[str] = set()
    for _, _, module, listed in IMPORT.findall(code(file) if typing else FOR_CHECKERS.sub("", code(file))):
        if module.startswith("."):  # of the core alone: on a board it has no other name either
            assert file.parent == ROOT / "fugu" / "core", f"{file}: relative import"
            module = f"fugu.core{module}"
        alone = (name.split()[0] for name in listed.strip("()").split(",") if name.strip())
        imported_names |= {f"{module}.{name}" if module else name for name in alone}
    return frozenset(imported_names)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules in circles, and those that lead into them: all that is left when what imports nothing is taken away."""
    graph_left = {name: set(others) for name, others in graph.items()}
    while free := {name for name, others in graph_left.items() if not others}:
        graph_left = {name: others - free for name, others in graph_left.items() if name not in free}
    return sorted(graph_left)


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]


def test_no_module_imports_itself_in_a_circle_not_even_inside_a_function() -> None:
    files = modules()
    graph = {}
    for name, file in files.items():
        names = imported(file, typing=False)
        graph[name] = {name if name in files else name.rpartition(".")[0] for name in names} & set(files) - {name}
    assert circle(graph) == []


@pytest.mark.parametrize(
    "package", ["fugu.contract", "fugu.core", "fugu.host", "fugu.mqtt", "edge_agent", "firmware_sim"]
)
def test_the_edge_never_imports_heavy_libraries(package: str) -> None:
    assert [entry for entry in imports(package) if entry[1].partition(".")[0] in HEAVY] == []


@pytest.mark.parametrize("package", sorted(PURE))
def test_rooms_of_pure_logic_do_no_io(package: str) -> None:
    assert [entry for entry in imports(package) if {entry[1].partition(".")[0], room_of(entry[1])} & IO] == []


@pytest.mark.parametrize(
    ("package", "others"),
    [
        ("fugu.audit.exact", {"msgpack"}),
        ("fugu.audit.exact.chains", {"fugu.audit.exact", "fugu.audit.exact.guesses"}),
        ("fugu.audit.exact.guesses", set()),
    ],
)
def test_the_second_certificate_shares_no_code_and_can_be_read_in_an_hour(package: str, others: set[str]) -> None:
    """It imports nothing of what it checks, no numerical library and nothing that does I/O; all of it in a few pages.

    Known chains are a folder of their own, for a second hour; guesses need not be read.
    """
    files = sorted((ROOT / package.replace(".", "/")).glob("*.py"))
    names = {module for file, module in imports(package) if ROOT / file in files}
    used = {room_of(name) or name.partition(".")[0] for name in names} - {package}
    assert used - ({*sys.stdlib_module_names} - IO) == others
    assert sum(len(file.read_text().splitlines()) for file in files) < 500


@pytest.mark.parametrize(
    "package", sorted(ROOMS.keys() - {"firmware_sim", "fugu_cli", "fugu_cli.view", "fugu.host", "papers"})
)
def test_what_decides_never_prints(package: str) -> None:
    """Tables and sentences are `fugu`'s, and the words of command lines; only the agent's own entry point is one."""
    assert [entry for entry in imports(package) if entry[1].partition(".")[0] in {"rich", "typer", "click"}] == []
    for file in files_of(package):
        assert file.name == "__main__.py" or not re.search(r"(?<![\w.])(?:print|input)\(", code(file)), file


def test_no_test_imports_another() -> None:
    """Shared parts of tests are in tests/support: a test can be read, moved and removed on its own."""
    other = re.compile(r"^\s*(?:from|import)\s+(?:\.|tests(?!\.support\b)|.*,\s*tests\b)", re.MULTILINE)
    maybe = (file for file in files_of("tests") if other.search(file.read_text()))
    names = [(file, name) for file in maybe for name in imported(file) if name.partition(".")[0] == "tests"]
    assert [(file, name) for file, name in names if not f"{name}.".startswith("tests.support.")] == []


def test_commands_import_in_a_function_only_what_is_slow_to_load() -> None:
    """Numbers, certificates, connections and other commands wait until a command runs; the rest is at the top."""
    found_imports = [
        (str(file.relative_to(ROOT)), line)
        for file in files_of("fugu_cli")
        for indented, line, *_ in IMPORT.findall(FOR_CHECKERS.sub("", code(file)))
        if indented
    ]
    slow = (
        *("from gateway.", "from fugu.", "from fugu_cli.", "from edge_agent.", "from fugu_helper.", "from fugu.mqtt "),
        *("from amqtt.", "from pydantic "),
    )
    assert [entry for entry in found_imports if not entry[1].startswith(slow)] == []
    assert len(found_imports) <= 63


def test_no_public_method_of_a_store_hands_out_its_connection() -> None:
    """Parts of a store are given the connection when it opens; nobody gets it from a store."""
    wrong = []
    for file in (path for path in files_of("gateway") if re.search(r"\) -> .*Connection", path.read_text())):
        for node in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)):
            for method in (node for node in node.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"):
                if method.returns is not None and "Connection" in ast.unparse(method.returns):
                    wrong.append(f"{file.name}: {node.name}.{method.name}")
    assert wrong == []


def test_a_running_agent_loads_no_parser_and_no_command_line() -> None:
    """Everything the running agent needs, loaded in a fresh interpreter."""
    code = (
        "import sys, edge_agent.__main__, edge_agent.agent, edge_agent.sensors, edge_agent.config\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} | {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stdout.split())
    assert not {*HEAVY, "pydantic", "typer", "rich", "gateway"} & loaded
    rooms = {room_of(name) for name in loaded} - {None}
    assert rooms == {"edge_agent", "fugu.contract", "fugu.core", "fugu.host", "fugu.mqtt"}


def test_a_gateway_loads_nothing_that_its_file_does_not_configure() -> None:
    """A gateway of policies in files, without releases, fleet, page, places and shards."""
    code = "import sys, gateway.config, gateway.loop.process\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    rooms = {room_of(name) for name in done.stdout.split() if room_of(name)}
    bare = {"config", "estimates", "health", "loop", "parts", "store"}
    assert rooms == {f"gateway.{room}" for room in bare} | {f"fugu.{room}" for room in _BELOW_A_GATEWAY.split()}
    unasked = {"gateway.parts.home_assistant", "gateway.parts.place_tables", "gateway.store.postgresql"}
    unasked |= {"gateway.estimates.points", "fugu.contract.measure_policy", "fugu.chains.learning", "fugu.host.checks"}
    unasked |= {
        "fugu.contract.calendar",
        "fugu.core.noise",
        "gateway.store.sums",
        "fugu.contract.group_frames",
        "fugu.contract.measure_table",
    }
    assert not unasked & {*done.stdout.split()}
    assert sum(name.startswith(("gateway", "fugu")) for name in done.stdout.split()) <= 80


@pytest.mark.parametrize("package", [*TOPS, "benchmarks", "deploy", "tests"])
def test_no_class_with_slots_asks_for_its_own_class(package: str) -> None:
    """Slots make a second class; a bare `super()` and `__class__` mean the first, and fail when they are reached."""
    files = [file for file in files_of(package) if re.search(r"\bsuper\(\)|\b__class__\b", code(file))]
    classes = (
        node for file in files for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)
    )
    slotted = [
        node for node in classes if re.search("slots=True|frozen$", " ".join(map(ast.unparse, node.decorator_list)))
    ]
    assert [node.name for node in slotted if re.search(r"\bsuper\(\)|(?<!\.)\b__class__\b", ast.unparse(node))] == []


_BELOW_A_GATEWAY = "chains contract core host mqtt"


@pytest.mark.parametrize("package", TOPS)
def test_no_name_has_a_word_that_was_given_up(package: str) -> None:
    """Parts of a name between underscores, in whatever letters."""
    given_up = re.compile(rf"(?<![^\W_])(?:{'|'.join(RETIRED)})(?![^\W_])", re.IGNORECASE)
    assert [(file.name, matches) for file in files_of(package) if (matches := given_up.findall(code(file)))] == []


@pytest.mark.parametrize("package", [*TOPS, "benchmarks", "deploy", "tests"])
def test_no_name_says_nothing(package: str) -> None:
    """Of hypothesis is `given`; `known` is what users call an option; `left` may be beside `right`."""
    named = {"evaluation.py": "known", "checks.py": "known", "check.py": "known", "audit.py": "known"}
    wrong = set()
    for file in files_of(package):
        names = set(EMPTY.findall(code(file))) - {named.get(file.name)}
        names -= {"given"} if "from hypothesis import" in code(file) else set()
        names -= {"left"} if re.search(r"\bright\b", code(file)) else set()
        wrong |= {(str(file.relative_to(ROOT)), name) for name in names}
    assert sorted(wrong) == []


def test_no_name_of_a_page_says_nothing() -> None:
    """Variables, parameters, functions and fields of the scripts of pages."""
    word = r"(?:one|found|known|told|made|given|said|kept|left(?!, right))"
    name = re.compile(
        rf"(?:const |let |function |class |get |this\.|(?<!\$)[(,[{{] ?|\.\.\.){word}(?= ?[,)=\]}};(]| =>)"
    )
    scripts = [
        file for package in ("gateway/page", "fugu_cli/demo") for file in (ROOT / package / "assets").glob("*.js")
    ]
    assert len(scripts) > 10
    assert [(file.name, names) for file in scripts if (names := name.findall(file.read_text()))] == []


@pytest.mark.parametrize("file", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda file: file.stem)
def test_a_benchmark_finds_what_is_not_installed(file: Path) -> None:
    """It is started by its path, so that the repository is not where Python looks, until it says so."""
    lines = list(map(ast.unparse, ast.parse(file.read_text()).body))
    asks = [n for n, line in enumerate(lines) if line.startswith(("from tests", "from papers"))]
    says = [n for n, line in enumerate(lines) if line == "sys.path.insert(0, str(Path(__file__).parents[1]))"]
    assert not asks or min(says, default=len(lines)) < asks[0]


def test_nothing_tracked_names_a_machine_or_a_registry() -> None:
    """Paths of a machine and addresses of a package registry have no place in the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        file = ROOT / name
        if file.suffix in {".py", ".toml", ".md", ".sh", ".yml", ".yaml", ".json", ".conf"} and file != Path(__file__):
            text = file.read_text()
            for forbidden in ("/wo" + "rk/", "/ro" + "ot/", "index" + "-url", "../sha" + "red"):
                assert forbidden not in text, f"{name} holds {forbidden}"
