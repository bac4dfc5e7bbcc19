"""How the kernels of this room are compiled: one decorator, one set of flags, one pair of array types.

A kernel takes arrays whose shapes and types its public wrapper has already made sure of, and holds no
state. With NUMBA_DISABLE_JIT=1 every kernel is the plain Python function it was written as.

The disk cache of a kernel is renewed when the kernel's own file changes, not when a helper in another file
does: after an edit of `steps.py`, remove `gateway/chain/__pycache__`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Ints", "kernel"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def kernel(function: AnyFunction) -> AnyFunction:
    """Compile a function on arrays with numba, keeping its type.

    Args:
        function: a pure function on arrays and scalars.

    Returns:
        The compiled function, cached on disk where a directory can be written.
    """
    # error_model "numpy": a division does not test its divisor (kernels test likelihoods themselves), so
    # that loops vectorise. No fast-math: sums keep the order in which they are written.
    try:
        compiled = numba.njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError:  # numba found no directory to write its cache to: a read-only installation
        compiled = numba.njit(nogil=True, error_model="numpy")(function)
    return cast(AnyFunction, compiled)
