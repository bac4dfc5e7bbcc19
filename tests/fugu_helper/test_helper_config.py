"""A helper's file: its root key is nobody else's to read, and of a group's documents the newest comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fugu.contract.errors import FuguError
from fugu_helper.config import HelperConfig, read_root_key, signed_documents
from tests.support.groups import HELPER, group


def fields(**changes: Any) -> dict[str, Any]:
    """A group as the helper's file says it."""
    document = group(**changes).model_dump(mode="json")
    return {name: value for name, value in document.items() if name not in ("document", "fleet", "helper")}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o600, 0o400])
def test_a_root_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "root.key"
    path.write_bytes(HELPER.private_bytes_raw())
    path.chmod(mode)
    if mode & 0o077:
        with pytest.raises(FuguError, match="may be read by others: chmod 600 it"):
            read_root_key(path)
    else:
        assert read_root_key(path).private_bytes_raw() == HELPER.private_bytes_raw()


def test_the_newest_document_of_a_group_comes_first_whatever_their_order_in_the_file() -> None:
    times = (1_000_000, 2_000_000)
    for order in (times, times[::-1]):
        config = HelperConfig(fleet="home", groups=tuple(fields(valid_from=time) for time in order))
        documents = signed_documents(config, HELPER)["street"]
        assert [document.valid_from for document, _ in documents] == [2_000_000, 1_000_000]


@pytest.mark.parametrize("times", [(1_000_000, 1_000_000), (1_000_000, 2_000_000, 3_000_000)])
def test_a_group_has_two_documents_of_two_times_at_most(times: tuple[int, ...]) -> None:
    config = HelperConfig(fleet="home", groups=tuple(fields(valid_from=time) for time in times))
    with pytest.raises(FuguError, match="at most the newest and the one before"):
        signed_documents(config, HELPER)
