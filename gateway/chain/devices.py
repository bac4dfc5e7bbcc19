"""Tracking many devices: the beliefs of a whole batch, one tick on.

The layout is a structure of arrays, beliefs[x, device]. For k = 2 both rows are kept although they sum to 1:
p and 1 - p are then both known to full relative precision, while 1 - p computed from p loses what a sticky
chain and a surprising symbol need.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gateway.chain.arrays import Floats
from gateway.chain.kernel import kernel
from gateway.chain.model import check_emission, check_symbols, check_transition

__all__ = ["update_devices"]

_CHUNK = 256  # devices at a time for k > 4: the working rows of a chunk stay in the first-level cache

Symbols = NDArray[np.signedinteger[Any]]


@kernel
def _update_two(beliefs: Floats, symbols: Symbols, transition: Floats, columns: Floats, out: Floats) -> int:
    """Update devices with k = 2; returns how many saw a symbol of probability zero."""
    stay0, leave0 = transition[0, 0], transition[0, 1]
    leave1, stay1 = transition[1, 0], transition[1, 1]
    failed = 0
    for d in range(symbols.size):
        a, b = beliefs[0, d], beliefs[1, d]
        z = symbols[d]
        p = (a * stay0 + b * leave1) * columns[0, z]
        q = (a * leave0 + b * stay1) * columns[1, z]
        mass = p + q
        failed += mass == 0.0
        scale = 1.0 / mass
        out[0, d] = p * scale
        out[1, d] = q * scale
    return failed


@kernel
def _update_three(beliefs: Floats, symbols: Symbols, transition: Floats, rows: Floats, out: Floats) -> int:
    """Update devices with k = 3; returns how many saw a symbol of probability zero."""
    t00, t01, t02 = transition[0, 0], transition[0, 1], transition[0, 2]
    t10, t11, t12 = transition[1, 0], transition[1, 1], transition[1, 2]
    t20, t21, t22 = transition[2, 0], transition[2, 1], transition[2, 2]
    a, b, c = beliefs[0], beliefs[1], beliefs[2]
    out_a, out_b, out_c = out[0], out[1], out[2]
    failed = 0
    for d in range(symbols.size):
        x, y, z, symbol = a[d], b[d], c[d], np.uint64(np.int64(symbols[d]) + 1)
        p = (x * t00 + y * t10 + z * t20) * rows[symbol, 0]
        q = (x * t01 + y * t11 + z * t21) * rows[symbol, 1]
        r = (x * t02 + y * t12 + z * t22) * rows[symbol, 2]
        mass = p + q + r
        failed += mass == 0.0
        scale = 1.0 / mass
        out_a[d], out_b[d], out_c[d] = p * scale, q * scale, r * scale
    return failed


@kernel
def _update_four(beliefs: Floats, symbols: Symbols, transition: Floats, rows: Floats, out: Floats) -> int:
    """Update devices with k = 4; returns how many saw a symbol of probability zero."""
    t00, t01, t02, t03 = transition[0, 0], transition[0, 1], transition[0, 2], transition[0, 3]
    t10, t11, t12, t13 = transition[1, 0], transition[1, 1], transition[1, 2], transition[1, 3]
    t20, t21, t22, t23 = transition[2, 0], transition[2, 1], transition[2, 2], transition[2, 3]
    t30, t31, t32, t33 = transition[3, 0], transition[3, 1], transition[3, 2], transition[3, 3]
    a, b, c, e = beliefs[0], beliefs[1], beliefs[2], beliefs[3]
    out_a, out_b, out_c, out_e = out[0], out[1], out[2], out[3]
    failed = 0
    for d in range(symbols.size):
        w, x, y, z, symbol = a[d], b[d], c[d], e[d], np.uint64(np.int64(symbols[d]) + 1)
        p = ((w * t00 + x * t10) + (y * t20 + z * t30)) * rows[symbol, 0]
        q = ((w * t01 + x * t11) + (y * t21 + z * t31)) * rows[symbol, 1]
        r = ((w * t02 + x * t12) + (y * t22 + z * t32)) * rows[symbol, 2]
        s = ((w * t03 + x * t13) + (y * t23 + z * t33)) * rows[symbol, 3]
        mass = (p + q) + (r + s)
        failed += mass == 0.0
        scale = 1.0 / mass
        out_a[d], out_b[d], out_c[d], out_e[d] = p * scale, q * scale, r * scale, s * scale
    return failed


@kernel
def _add_scaled(target: Floats, source: Floats, factor: float) -> None:
    """Add `factor` times `source` (w,) to `target` (w,)."""
    for d in range(target.size):
        target[d] += source[d] * factor


@kernel
def _condition(target: Floats, mass: Floats, column: Floats, symbols: Symbols) -> None:
    """Weigh one state's row `target` (w,) by its likelihoods `column` (m + 1,), and add it to `mass` (w,)."""
    for d in range(target.size):
        target[d] *= column[symbols[d]]
        mass[d] += target[d]


@kernel
def _update_many(beliefs: Floats, symbols: Symbols, transition: Floats, columns: Floats, out: Floats) -> int:
    """Update devices with any k, a chunk at a time; returns how many saw a symbol of probability zero."""
    k, devices = beliefs.shape
    work = np.empty((k, _CHUNK))
    total = np.empty(_CHUNK)
    failed = 0
    for low in range(0, devices, _CHUNK):
        high = min(low + _CHUNK, devices)
        width = high - low
        mass = total[:width]
        mass[:] = 0.0
        for j in range(k):
            row = work[j, :width]
            row[:] = 0.0
            for i in range(k):
                _add_scaled(row, beliefs[i, low:high], transition[i, j])
            _condition(row, mass, columns[j], symbols[low:high])
        for d in range(width):
            failed += mass[d] == 0.0
            mass[d] = 1.0 / mass[d]
        for j in range(k):
            for d in range(width):
                out[j, low + d] = work[j, d] * mass[d]
    return failed


_UPDATES = {2: (False, _update_two), 3: (True, _update_three), 4: (True, _update_four)}
"""For so many states: whether likelihoods are read by row, an unobserved tick first, and the kernel."""


def update_devices(
    beliefs: Floats,
    symbols: ArrayLike,
    transition: ArrayLike,
    emission: ArrayLike,
    *,
    out: Floats | None = None,
) -> Floats:
    """Predict and condition the beliefs of many devices that share a chain and an emission table.

    Args:
        beliefs: (k, devices), column d = Pr(state of device d | its symbols so far); columns are trusted to be
            distributions.
        symbols: (devices,) this tick's symbol of each device in -1..m-1, -1 for none. int8 is the fastest;
            anything else is copied. Bytes with 255 for "none" are int8 already: `symbols.view(np.int8)`.
        transition: (k, k) row-stochastic.
        emission: (k, m), Pr(symbol | state).
        out: (k, devices) float64, where to put the result; may be `beliefs` itself. None: a new array.

    Returns:
        (k, devices), the beliefs one tick later.

    Raises:
        ValueError: bad shapes or distributions, or a symbol of probability zero (`out` is then unchanged if the
            emission table has zeros, which alone makes this possible).
    """
    matrix = check_transition(transition)
    k = matrix.shape[0]
    table = check_emission(emission, k)
    before = np.ascontiguousarray(beliefs, dtype=np.float64)
    if before.ndim != 2 or before.shape[0] != k:
        raise ValueError(f"beliefs have shape {before.shape}; they must be ({k}, devices)")
    stream = _check_tick(symbols, table.shape[1], before.shape[1])
    if out is not None and not (out.shape == before.shape and out.dtype == np.float64 and out.flags.c_contiguous):
        raise ValueError(f"out must be a C-contiguous float64 array of shape {before.shape}")
    some, update = _UPDATES.get(k, (False, _update_many))
    unobserved = np.ones((k, 1))
    likelihoods = np.hstack([unobserved, table]).T if some else np.hstack([table, unobserved])
    direct = out is not None and bool((table > 0.0).all())
    after = out if out is not None and direct else np.empty_like(before)
    with np.errstate(divide="ignore", invalid="ignore"):
        failed = update(before, stream, matrix, np.ascontiguousarray(likelihoods), after)
    if failed:
        raise ValueError(f"{failed} devices sent a symbol of probability zero under this emission table")
    if out is not None and not direct:
        np.copyto(out, after)
        return out
    return after


def _check_tick(symbols: ArrayLike, alphabet: int, devices: int) -> Symbols:
    """The symbols of one tick (devices,), as int8 if they came so, else as int64."""
    given = np.asarray(symbols)
    if given.shape != (devices,):
        raise ValueError(f"symbols have shape {given.shape}; there must be one for each of {devices} devices")
    if given.dtype != np.int8:
        return check_symbols(given, alphabet)
    stream = np.ascontiguousarray(given)
    if stream.size and (stream.min() < -1 or stream.max() >= alphabet):
        raise ValueError(f"symbols reach from {stream.min()} to {stream.max()}; allowed: -1..{alphabet - 1}")
    return stream
