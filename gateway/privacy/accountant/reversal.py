"""The chain seen backward: the kernels Q[x,y] = Pr(X_{t-1} = y | X_t = x).

Source: docs/privacy.md, "The chain accountant".
"""

from __future__ import annotations

import numpy as np

from gateway.chain.arrays import Bools, Floats, Ints
from gateway.privacy.accountant.inner_maximum import Order, ratio_order
from gateway.privacy.chain_class import TINY, ChainClassError, MarkovChain

__all__ = ["reversed_kernel", "reversed_stationary"]


def reversed_kernel(transition: Floats, possible: Bools, law: Floats, rows: Ints, columns: Ints) -> Floats | None:
    """Pr(earlier state = y | later state = x), x in rows and y in columns; none if a product is too rare for a float.

    Args:
        transition: (k, k), and `possible` which of its entries are not 0, whatever became of them in floats.
        law: (k,) of the earlier state, positive on `columns`.
        rows, columns: the states that are possible later and earlier.
    """
    joint = (law[:, None] * transition)[np.ix_(columns, rows)].T
    if np.any(possible[np.ix_(columns, rows)].T & (joint < TINY)):
        return None
    return np.ascontiguousarray(joint / joint.sum(axis=1, keepdims=True))


def reversed_stationary(chain: MarkovChain) -> tuple[Floats, Floats, Order] | None:
    """Stationary law (k,), reversed kernel (k, k) and its order; none if some state is not visited for ever."""
    try:
        law = chain.stationary_law
    except ChainClassError:
        return None
    if np.any(law <= 0.0):
        return None
    everywhere = np.arange(chain.states)
    kernel = reversed_kernel(chain.transition, chain.transition > 0.0, law, everywhere, everywhere)
    return None if kernel is None else (law, kernel, ratio_order(kernel))
