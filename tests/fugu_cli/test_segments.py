"""`--segments`: what independent segments would be worth, and in no policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.command import Fugu


@pytest.mark.long
def test_what_segments_would_be_worth(fugu: Fugu, tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    rows, state, tick = ["t,value,seg"], 0, 0
    for segment in range(60):
        for _ in range(int(generator.integers(50, 80)) if segment else 80):
            state ^= int(generator.random() < (0.15, 0.25)[state])
            rows.append(f"{tick},{state},{segment}")
            tick += 30
        tick += 3000
    recording, model = tmp_path / "gaps.csv", tmp_path / "chain.json"
    recording.write_text("\n".join(rows) + "\n")
    fitted = fugu("plan", "model", recording, "--column", "value", "-o", model)
    assert fitted.code == 0
    assert "the longest segment without a gap has 80;" in " ".join(fitted.out.split())
    words = ("plan", "window", "--model", model, "--epsilon", 1, "--adversary", "universal", "--mechanism", "chain")
    alone, cut = fugu(*words, "--json").json(), fugu(*words, "--segments", "fitted", "--json").json()
    assert (alone["segments"], cut["segments"], cut["chains"]) == (None, 80, None)
    assert "goes into no policy" in fugu(*words, "--segments", 12).out
    refused = fugu(*words[:-2], "--segments", 12, "--window", "5m")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "a policy cannot hold it" in refused.err
    for text in ("0", "1.5", "x"):
        assert fugu(*words, "--segments", text).code == 2
    assert fugu("plan", "window", "--q", 0.1, "--r", 0.4, "--epsilon", 1, "--segments", "fitted").code == 2
