"""Twenty names, which load when they are used; a device needs nothing of what numbers need."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fugu
from fugu.contract.errors import FuguError
from tests.support.histories import fill_store

ROOT = Path(__file__).parents[2]


def test_there_are_about_twenty_names_each_with_a_docstring() -> None:
    assert len(fugu.__all__) <= 22
    assert [name for name in fugu.__all__ if not getattr(fugu, name).__doc__] == []
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        _ = fugu.plans


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "fugu/__init__.py").read_text())
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    imports = [node for node in nodes if str(node.module).startswith("fugu.")]
    seen = {(node.module, alias.asname) for node in imports for alias in node.names}
    assert seen == {(f"fugu.{module}", name) for name, module in fugu._MODULE_OF.items()}


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import fugu; fugu.__all__", set()),
        ("import fugu; fugu.Subscription; fugu.Policy; fugu.epsilon_to_odds(1)", {"paho", "pydantic", "msgpack"}),
    ],
)
def test_a_name_loads_only_what_it_needs(code: str, allowed: set[str]) -> None:
    code += "; import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    heavy = {"numpy", "numba", "scipy", "pandas", "typer", "rich", "gateway", "matplotlib"}
    assert loaded & (heavy | {"paho", "pydantic", "msgpack"}) <= allowed


def test_a_function_is_not_hidden_by_a_package() -> None:
    """A package that is imported becomes an attribute of `fugu`."""
    packages = {file.stem for file in (ROOT / "fugu").iterdir()}
    assert packages.isdisjoint(fugu.__all__)


@pytest.mark.parametrize(("epsilon", "odds"), [(0.0, 1.0), (1.0, 2.718), (2.0, 7.389), (1000.0, float("inf"))])
def test_epsilon_is_said_as_odds(epsilon: float, odds: float) -> None:
    assert round(fugu.epsilon_to_odds(epsilon), 3) == odds


@pytest.mark.long
def test_history_is_a_table_from_a_store_or_an_export(tmp_path: Path) -> None:
    from gateway.history.export import export_history
    from gateway.store.location import store_location
    from tests.support.histories import ALWAYS

    store = tmp_path / "home.db"
    fill_store(store, ("watch", "ring"), ticks=3_000)
    symbols = fugu.history(store, "symbols")
    assert len(symbols) == 6_000
    assert set(symbols.device.astype(str)) == {"watch", "ring"}
    export_history(store_location(str(store)), None, ALWAYS, tmp_path / "everything")
    watch = fugu.history(tmp_path / "everything", "symbols", device="watch")
    assert watch.symbol.tolist() == symbols[symbols.device == "watch"].symbol.tolist()
    middle = watch.time.iloc[1_000]
    part = fugu.history(store, "symbols", device="watch", since=middle.isoformat())
    assert 1_900 < len(part) <= 2_001
    with pytest.raises(fugu.FuguError, match="no table 'sums'; it has estimates"):
        fugu.history(store, "sums")
    with pytest.raises(fugu.FuguError, match="must be before"):
        fugu.history(store, since="2030-01-02", until="2030-01-01")
    with pytest.raises(FuguError):
        fugu.history(store, since="2001-01-01", until="2001-01-02")
