"""Refusals of a gateway at its start: stores and policies that it cannot trust, in one line each."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from fugu.contract.errors import FuguError, GuaranteeError, PolicyError
from gateway.estimates.beliefs import SymbolModel
from gateway.estimates.catalogue import Catalogue
from gateway.store.store import Store
from tests.support.scenes import OTHER, Scene, frames, policy, write_policies


def line(error: pytest.ExceptionInfo[FuguError]) -> str:
    """Its text, which must be one line without the folder."""
    text = str(error.value)
    assert "\n" not in text
    assert "/" not in text.replace("watch/hr", "")
    return text


def test_a_store_hands_its_connection_to_nobody(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite")
    for part in (store, store.symbols, store.points, store.windows, store.releases):
        public = [getattr(part, name) for name in dir(part) if not name.startswith("_")]
        assert not [part for part in public if isinstance(part, sqlite3.Connection)]


def test_a_false_guarantee_is_refused_with_the_name_of_its_file(tmp_path: Path) -> None:
    write_policies(tmp_path)
    document = json.loads(policy().to_json())
    document["guarantee"]["epsilon"] = 0.01
    (tmp_path / "watch-false.json").write_text(json.dumps(document))
    with pytest.raises(GuaranteeError) as error:
        Catalogue.load(tmp_path, "home")
    assert line(error).startswith("watch-false.json: ")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("broken.json", b"{", "broken.json: "),
        ("binary.json", b"\xff\xfe", "binary.json: "),
        ("other.json", policy(fleet="away").to_json().encode(), "other.json: policy is for fleet away"),
        ("twice.json", policy(table=OTHER).to_json().encode(), "has version 1 too"),
    ],
)
def test_a_wrong_policy_file_is_refused_with_its_name(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    write_policies(tmp_path)
    (tmp_path / f"zz-{name}").write_bytes(content)
    with pytest.raises(PolicyError) as error:
        Catalogue.load(tmp_path, "home")
    assert says in line(error)


@pytest.mark.parametrize("there", [False, True])
def test_no_policies_at_all_are_refused(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "policies").mkdir()
    with pytest.raises(PolicyError) as error:
        Catalogue.load(tmp_path / "policies", "home")
    assert "the folder of policies policies" in line(error)


def test_a_policy_changed_under_stored_frames_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    scene.record(*frames([10]))
    catalogue = Catalogue("home")
    catalogue.add(policy(table=OTHER))
    with pytest.raises(PolicyError) as error:
        catalogue.retire(scene.store.policy_documents())
    assert "version 1 of watch/hr" in line(error)


def test_frames_under_a_policy_that_is_gone_still_have_its_model_but_no_successors(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s.sqlite")
    early, missing, late = frames([10, 10, 10], versions=[1, 2, 1])
    scene.record(early, late)
    scene.policies = (policy(2, table=OTHER),)
    scene.reopen()
    scene.record(missing)
    assert scene.committed().streams[0].through == 29
    with pytest.raises(FuguError) as error:
        scene.recorder._catalogue.find("watch", "hr", 1, SymbolModel)
    assert error.value.reason == "unknown_policy_version"
