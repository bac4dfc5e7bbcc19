"""A statement says since when a promise is true: by a gateway's store, or that nothing is known of other versions."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from fugu.contract.chains import BinaryChains
from fugu.contract.dating import dated
from fugu.contract.guarantee import Guarantee
from fugu.contract.history import History, Noise, Span
from fugu.contract.policy import Policy
from fugu.privacy.randomised_response import calibrate
from fugu_cli.main import main
from gateway.audit.statement import policy_statement
from tests.support.scenes import Scene, frames, policy

CHAINS = BinaryChains(q=(0.1, 0.3), r=(0.1, 0.3))


def version_of(version: int, epsilon: float) -> Policy:
    table = calibrate(CHAINS, epsilon, "informed", slack=True).table
    promise = {"guarantee": Guarantee(epsilon=epsilon, adversary="informed")}
    return policy(version, chains=CHAINS, table=table).model_copy(update=promise)


LOUD, QUIET = version_of(1, 4.0), version_of(2, 1.0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    scene = Scene(tmp_path / "s.sqlite", policies=(LOUD, QUIET))
    scene.record(*frames((10,) * 30, versions=(1,) * 10 + (2,) * 20))
    scene.store.close()
    return tmp_path / "s.sqlite"


def test_by_a_store_it_is_dated_as_descriptions_are(store: Path) -> None:
    (when,) = policy_statement(QUIET.to_json().encode(), store=store).when
    truth = dated(QUIET, History((Span(1, Noise.of(LOUD), 0, 99), Span(2, Noise.of(QUIET), 100, None))))
    assert (when.since, when.until) == (truth.since, None)
    assert when.since is not None
    assert when.since > 100
    assert f"from tick {when.since} on" in when.words
    (before,) = policy_statement(LOUD.to_json().encode(), store=store).when
    assert before.since == 0
    assert (before.until, before.words) == (None, ""), "what follows is stronger"


def test_without_one_nothing_is_claimed_but_of_a_first_version(store: Path) -> None:
    (first,), (second,) = (policy_statement(policy_.to_json().encode()).when for policy_ in (LOUD, QUIET))
    assert (first.since, first.words) == (0, "")
    assert second.since is None
    assert "not shown to be true of any tick yet" in second.words


def test_the_command_shows_it(store: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text(QUIET.to_json())
    shown = StringIO()
    with redirect_stdout(shown):
        assert main(["check", "statement", str(tmp_path / "policy.json"), "--store", str(store), "--json"]) == 0
    (when,) = json.loads(shown.getvalue())["when"]
    assert when == policy_statement(QUIET.to_json().encode(), store=store).when[0]._asdict()
