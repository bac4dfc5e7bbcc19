"""The LSTM attacker of the BDP paper's figure 4, if PyTorch is there: the extra `papers` brings it."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from fugu.attackers.learning import Attacker, training_ticks
from fugu.attackers.outputs import Knowledge, Outputs, SymbolOutputs
from fugu.chains.arrays import Floats, Ints

__all__ = ["lstm_attacker", "lstm_missing"]

_STRETCH, _UNITS, _ROUNDS, _RATE, _BATCH = 200, 24, 12, 0.01, 16


def lstm_missing() -> str | None:
    """Why there is no such attacker here, if there is none."""
    if find_spec("torch") is None:
        return "The LSTM attacker did not run: PyTorch is not installed (pip install 'fugu-edge[papers]')."
    return None


def lstm_attacker(folds: int) -> Attacker:
    """A bidirectional LSTM that learns states from symbols, on contiguous folds.

    Args:
        folds: each is attacked by a network that has not seen its truth.
    """

    def attack(outputs: Outputs, knowledge: Knowledge) -> Floats:
        assert isinstance(outputs, SymbolOutputs)
        if knowledge.truth is None or not (outputs.symbols >= 0).any():
            return knowledge.prior
        posteriors = np.empty((outputs.ticks, outputs.states))
        for fold, ticks in training_ticks(knowledge.truth, folds):
            truth = np.full(outputs.ticks, -1)
            truth[ticks] = knowledge.truth[ticks]
            posteriors[fold] = _trained(outputs, truth)[fold]
        return posteriors

    return attack


def _trained(outputs: SymbolOutputs, truth: Ints) -> Floats:
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(1)
    n = outputs.ticks
    stretches = -(-n // _STRETCH)

    def arranged(values: np.ndarray, fill: int) -> torch.Tensor:
        padded = np.full(stretches * _STRETCH, fill, dtype=np.int64)
        padded[:n] = values
        return torch.from_numpy(padded.reshape(stretches, _STRETCH))

    symbols = arranged(np.maximum(outputs.symbols, 0), 0)
    states = arranged(truth, -1)
    lstm = torch.nn.LSTM(outputs.emission.shape[1], _UNITS, batch_first=True, bidirectional=True)
    last = torch.nn.Linear(2 * _UNITS, outputs.states)
    optimiser = torch.optim.Adam([*lstm.parameters(), *last.parameters()], _RATE)
    loss = torch.nn.CrossEntropyLoss(ignore_index=-1)
    inputs = torch.nn.functional.one_hot(symbols, outputs.emission.shape[1]).float()
    for _ in range(_ROUNDS):
        for batch in torch.randperm(stretches).split(_BATCH):
            if bool((states[batch] >= 0).any()):
                optimiser.zero_grad()
                loss(last(lstm(inputs[batch])[0]).transpose(1, 2), states[batch]).backward()
                optimiser.step()
    with torch.no_grad():
        chances = torch.softmax(last(lstm(inputs)[0]), dim=2).reshape(-1, outputs.states)
    return np.asarray(chances[:n].double().numpy())
