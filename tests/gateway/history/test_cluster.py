"""The same work as tasks of Ray: the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu.contract.errors import FuguError
from gateway.history.learning import learn_class
from gateway.history.smoothing import smooth_history
from gateway.history.tasks import Source, open_tasks
from tests.support.histories import ALWAYS, fill_store


def files(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.parquet")}


@pytest.mark.soak
@pytest.mark.processes
def test_a_cluster_comes_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.history.tasks._MOST_STREAMS", 1)
    fill_store(tmp_path / "s.sqlite", ("watch", "ring", "belt"), 20_000)
    source = Source(tmp_path / "s.sqlite", ALWAYS)
    shares: list[float] = []
    smooth_history(source, tmp_path / "alone", progress=lambda _, share: shares.append(share))
    with open_tasks("local") as tasks:
        smooth_history(source, tmp_path / "many", tasks=tasks, progress=lambda _, share: shares.append(share))
        assert learn_class(source, tasks=tasks) == learn_class(source)
        with pytest.raises(FuguError, match="the reason, in a line"):
            tasks.map(refuse, [(1,)])
    assert files(tmp_path / "many") == files(tmp_path / "alone")
    assert len(files(tmp_path / "many")) == 3 * 4 + 1
    assert shares == sorted(shares[:3]) + sorted(shares[3:])
    assert shares.count(1.0) == 2


def refuse(_: int) -> None:
    raise FuguError("the reason, in a line")
