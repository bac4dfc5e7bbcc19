"""`python -m papers all --quick`: nothing differs without a reason, golden digits hold, the report stands alone."""

from __future__ import annotations

import ast
import csv
import html
import json
import re
from pathlib import Path

import pytest

import papers
from papers.__main__ import main
from papers.targets import TARGETS
from tests.support.command import Fugu, runner

NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e-?\d+)?")
GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def fugu(capsys: pytest.CaptureFixture[str]) -> Fugu:
    return runner(capsys, main)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduction")
    assert main(["all", "--quick", "-o", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "rows.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.soak
def test_every_target_has_rows_and_none_differs_without_a_reason(rows: list[dict[str, str]]) -> None:
    assert {row["target"] for row in rows} == set(TARGETS)
    differ = [row for row in rows if row["status"] == "differs"]
    assert [row for row in differ if not row["explanation"]] == []
    assert {row["counterexample"] for row in rows} - {""} <= set(TARGETS)


@pytest.mark.soak
def test_every_correction_names_code_that_ran_and_shows_it(rows: list[dict[str, str]]) -> None:
    """A row that differs is of an erratum, or names one, which has a row of its own that differs; or is in kind."""
    shown = {row["target"] for row in rows if row["status"] == "differs"}
    for row in rows:
        if row["status"] == "differs" and row["basis"] != "in kind":
            by = row["counterexample"] or row["target"]
            assert by.startswith("erratum-"), row
            assert by in shown, row


@pytest.mark.soak
@pytest.mark.parametrize("table", ["mqm-table-1", "mqm-table-3"])
def test_every_mechanism_of_the_tables_in_kind_is_judged_by_drawn_trials(
    rows: list[dict[str, str]], table: str
) -> None:
    own = [row for row in rows if row["target"] == table]
    drawn = [row for row in own if "drawn trials" in row["quantity"]]
    assert all(float(row["low"]) < float(row["ours"]) < float(row["high"]) for row in drawn)
    assert {row["status"] for row in drawn} == {"agrees"}
    names = {row["quantity"].rpartition(": ")[2] for row in own if row["basis"] in ("ours", "other data")}
    applied = {row["quantity"].rpartition(": ")[2].partition(",")[0] for row in drawn}
    assert {"GroupDP", "MQMExact"} <= applied
    assert applied <= names


def literals() -> set[float]:
    """Every number that is written in the code of the targets."""
    values: set[float] = set()
    for module in Path(papers.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Constant):
                words = node.value.split() if isinstance(node.value, str) else [node.value]
                values |= {float(word) for word in words if NUMBER.fullmatch(str(word))}
    return values


def facts() -> set[float]:
    """Every number that a paper prints, as the file of facts has it."""
    rows = json.loads((GOLDEN / "papers" / "facts.json").read_text())
    words = (word for row in rows for word in str(row["value"]).split())
    return {float(word) for word in words if NUMBER.fullmatch(word)}


@pytest.mark.soak
def test_a_paper_s_number_is_written_in_the_code_or_marked_as_ours(rows: list[dict[str, str]]) -> None:
    written = literals()
    for row in rows:
        if NUMBER.fullmatch(row["paper"]) and not row["paper_is_ours"]:
            paper = float(row["paper"])
            assert any(abs(paper * by - value) <= 1e-12 * value for by in (1, 100) for value in written | facts()), row
    assert sum(bool(row["paper_is_ours"]) for row in rows) > 20


@pytest.mark.soak
def test_printed_values_have_the_digits_of_the_papers(rows: list[dict[str, str]]) -> None:
    printed = [row for row in rows if row["basis"] == "printed"]
    numbers = [row["paper"] for row in printed if NUMBER.fullmatch(row["paper"])]
    assert all(len(number.replace(".", "").lstrip("0")) <= 7 for number in numbers)
    rates = [row["paper"] for row in printed if "share of changes" in row["quantity"]]
    assert rates == ["0.0893", "0.1092", "0.2384", "0.3831"]


@pytest.mark.soak
def test_every_cell_of_a_table_has_the_paper_s_number(rows: list[dict[str, str]]) -> None:
    cells = [row for row in rows if row["target"].startswith("mqm-table") and row["basis"] == "other data"]
    mechanisms = ("GroupDP", "GK16", "MQMApprox", "MQMExact")
    for table, names in ((1, mechanisms[2:]), (2, mechanisms[1:]), (3, mechanisms[2:])):
        own = [row for row in cells if row["target"] == f"mqm-table-{table}"]
        assert all(any(row["quantity"].endswith(f": {name}") for row in own) for name in names)
    seconds = {row["paper"] for row in cells if row["target"] == "mqm-table-2"}
    assert {"0.00063589", "1.5186, 1.2786, 0.6299", "282.2273"} <= seconds
    assert all("every tick" in row["explanation"] for row in cells if row["paper"] == "282.2273")
    group = [row for row in rows if "GroupDP as printed" in row["quantity"]]
    assert [(row["paper"], row["status"]) for row in group] == [("102.8868", "agrees")]


@pytest.mark.soak
def test_figures_of_points_judge_the_paper_s_order_and_say_where_ours_is_another(rows: list[dict[str, str]]) -> None:
    for target in ("dphmm-11", "dphmm-12", "dphmm-13"):
        own = {row["quantity"]: row for row in rows if row["target"] == target}
        orders = [row for quantity, row in own.items() if quantity.endswith("order by degree of protection")]
        assert orders
        assert {row["ours"] for row in orders} == {"DPLS > G_trs > G_util"}
        judged = [row for row in own.values() if row["basis"] == "in kind"]
        assert {row["status"] for row in judged} == {"agrees", "differs"}
        assert all("over that of DPLS" in row["quantity"] for row in judged if row["status"] == "differs")


@pytest.mark.soak
def test_what_a_paper_itself_warns_of_is_not_its_error(rows: list[dict[str, str]]) -> None:
    assert [row["paper"] for row in rows if row["target"] == "comp-sums"] == [""] * 4
    assert [name for name in TARGETS if name.startswith("erratum-comp")] == ["erratum-comp-theorem-3-1"]


@pytest.mark.soak
def test_golden_digits_hold(rows: list[dict[str, str]]) -> None:
    golden = json.loads((GOLDEN / "bdp.json").read_text())
    values = {
        (row["target"], row["quantity"]): float(row["ours"]) for row in rows if row["target"] in ("bdp-2", "bdp-3")
    }
    checked = 0
    for row in golden["figure2"]:
        if (value := values.get(("bdp-2", f"theta {row['theta']:g}: success with all symbols"))) is not None:
            assert value == pytest.approx(row["CA"], rel=1e-12)
            checked += 1
    names = {
        "dp": "ordinary randomised response",
        "T0": "theorem 1 (ignorant)",
        "T1": "exact against who knows states (informed)",
        "T2": "universal",
        "cor2": "corollary 2",
        "zhao6": "Zhao et al., eps_6",
    }
    for row in golden["figure3_theta0_35"]:
        for key, name in names.items():
            if (value := values.get(("bdp-3", f"epsilon {row['eps']:g}: flip probability, {name}"))) is not None:
                assert value == pytest.approx(row[key], abs=1e-9)
                checked += 1
    assert checked == 3 + 9 * 6
    assert any("106929/3721" in row["quantity"] for row in rows if row["target"] == "erratum-bdp-theorem-2")


@pytest.mark.soak
def test_golden_scales_hold(rows: list[dict[str, str]]) -> None:
    golden = json.loads((GOLDEN / "mqm.json").read_text())
    values = {
        (row["target"], row["quantity"]): float(row["ours"])
        for row in rows
        if row["target"].startswith("mqm-") and row["status"] != "no number" and row["ours"][0].isdigit()
    }
    for name, key in (("theta1", "th1"), ("theta2", "th2")):
        for epsilon in ("0.2", "1.0", "5.0"):
            scale = golden["3_wasserstein"][f"{key}|T=100|eps={epsilon}"]["mqm_literal"]
            ours = values["mqm-examples", f"epsilon {float(epsilon):g}: MQMExact, {name}"]
            assert ours == pytest.approx(scale, rel=2e-9)
    for alpha in ("0.2", "0.4"):
        scales = golden["9_synthetic"][f"{alpha}|1.0"]
        for name, column in (("MQMExact", "exact_all"), ("MQMApprox", "approx_rev")):
            ours = values["mqm-4", f"alpha {alpha}, epsilon 1: error of {name}"]
            assert ours == pytest.approx(scales[column] / 100, rel=2e-9)


@pytest.mark.soak
def test_the_report_needs_nothing_else(folder: Path, rows: list[dict[str, str]]) -> None:
    text = (folder / "report.html").read_text()
    assert len(text) < 2_000_000
    assert not re.search(
        r"<script|<link|<img|src=|@import|url\(|https?://", text.replace("http://www.w3.org/2000/svg", "")
    )
    assert "<svg" in text
    words = html.unescape(text)
    assert all(row["quantity"] in words for row in rows)
    assert words.count("our number)") == sum(row["paper_is_ours"] == "yes" for row in rows)
    assert all(f'<h2 id="{name}">' in text for name in TARGETS)
    assert not any(re.search(r"\bnan\b", path.read_text()) for path in folder.glob("*.csv"))


def test_targets_are_named_by_name_and_by_group(fugu: Fugu, tmp_path: Path) -> None:
    done = fugu("erratum-bdp-theorem-2", "erratum-bdp-equation-6", "--out", tmp_path / "some")
    assert done.code == 0
    with (tmp_path / "some" / "rows.csv").open(newline="") as file:
        assert {row["target"] for row in csv.DictReader(file)} == {"erratum-bdp-theorem-2", "erratum-bdp-equation-6"}
    listed = fugu("--list").out
    assert all(name in listed for name in TARGETS)


def test_what_cannot_be_reproduced(fugu: Fugu, tmp_path: Path) -> None:
    for words in ((), ("fig-7",), ("bdp-",)):
        done = fugu(*words, "-o", tmp_path / "none")
        assert (done.code, "--list" in done.err) == (2, True)
    assert not (tmp_path / "none").exists()
