"""Messages over 2, 3 or 4 states as values of one vector register, and what kernels do with them.

Numba makes scalar instructions of tuples of floats: a step with 4 states then takes 28 of them instead of 11. So
each operation is here twice: in Python on tuples, which says what it does and is used with NUMBA_DISABLE_JIT=1, and
as instructions on LLVM vectors, which exist for every processor. Both add and multiply in the same order.

A message's length is part of its type. Arrays are C-contiguous, and positions are from 0 on: nothing checks them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from llvmlite import ir
from numba.core import cgutils, errors, types
from numba.extending import models, register_model

from fugu.chains.arrays import Floats, Ints
from fugu.chains.kernel import operation

__all__ = ["Message", "advance", "load", "message", "prefetch", "product", "scaled", "store", "total"]

Message: TypeAlias = tuple[float, ...]

_INDEX = ir.IntType(32)
_LINE = 8  # numbers in a line of the cache
_BYTES = ir.IntType(8).as_pointer()


class _Vector(types.Type):
    """The type of a message over so many states in compiled code."""

    def __init__(self, states: int) -> None:
        self.states = states
        super().__init__(name=f"Message({states})")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: _Vector) -> None:
        super().__init__(manager, kind, ir.VectorType(ir.DoubleType(), kind.states))  # type: ignore[no-untyped-call]


def _states(like: Any) -> int:
    """How many states a message has, or a tuple that stands for one."""
    return like.states if isinstance(like, _Vector) else len(like)


def _place(context: Any, builder: Any, kind: Any, array: Any, position: Any, size: int) -> Any:
    """Where the numbers of the item at a position begin, an item having so many."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [builder.mul(position, ir.Constant(position.type, size))])


def _read(builder: Any, place: Any, states: int) -> Any:
    value = builder.load(builder.bitcast(place, ir.VectorType(ir.DoubleType(), states).as_pointer()))
    value.align = 8
    return value


def _everywhere(builder: Any, vector: Any, lane: int, states: int) -> Any:
    """One of a vector's numbers in all its places."""
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_INDEX, states), [lane] * states))


def _sum(builder: Any, terms: list[Any]) -> Any:
    """(a + b) + (c + d), or a + b + c, or a + b."""
    half = builder.fadd(terms[0], terms[1])
    if len(terms) == 4:
        return builder.fadd(half, builder.fadd(terms[2], terms[3]))
    return half if len(terms) == 2 else builder.fadd(half, terms[2])


def _contiguous(*arrays: Any) -> None:
    if any(array.layout != "C" for array in arrays):
        raise errors.TypingError("messages are read from and written to C-contiguous arrays")


_Lowered: TypeAlias = tuple[Any, Callable[..., Any]]


def _message(unit: Message) -> Message:
    """A tuple of k numbers as a message."""
    return unit


def _lower_message(_: Any, unit: Any) -> _Lowered:
    states = len(unit)

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        vector = ir.Constant(ir.VectorType(ir.DoubleType(), states), ir.Undefined)
        for x in range(states):
            vector = builder.insert_element(vector, builder.extract_value(given[0], x), _INDEX(x))
        return vector

    return _Vector(states)(unit), lower


def _load(rows: Floats, t: int, like: Message) -> Message:
    """Row t of `rows` (n, k) as a message; `like` only says, by its type, what k is."""
    return tuple(rows[t].tolist())


def _lower_load(_: Any, rows: Any, t: Any, like: Any) -> _Lowered:
    _contiguous(rows)
    states = _states(like)

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _read(builder, _place(context, builder, rows, given[0], given[1], states), states)

    return _Vector(states)(rows, t, like), lower


def _store(out: Floats, t: int, a: Message) -> None:
    """Write a message into row t of `out` (n, k)."""
    out[t] = a


def _lower_store(_: Any, out: Any, t: Any, a: Any) -> _Lowered:
    _contiguous(out)

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        place = _place(context, builder, out, given[0], given[1], a.states)
        written = builder.store(given[2], builder.bitcast(place, given[2].type.as_pointer()))
        written.align = 8
        return context.get_dummy_value()

    return types.void(out, t, a), lower


def _prefetch(symbols: Ints, out: Floats, t: int, like: Message) -> None:
    """Have four ticks from t on brought near: their symbols (n,), and their rows of `out` (n, k). Any t is allowed."""


def _lower_prefetch(_: Any, symbols: Any, out: Any, t: Any, like: Any) -> _Lowered:
    _contiguous(symbols, out)

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_BYTES, _INDEX, _INDEX, _INDEX])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        for array, value, size, writes in (symbols, given[0], 1, 0), (out, given[1], _states(like), 1):
            place = _place(context, builder, array, value, given[2], size)
            for line in range(0, 4 * size, _LINE):
                there = builder.bitcast(builder.gep(place, [_INDEX(line)]), _BYTES)
                builder.call(function, [there, _INDEX(writes), _INDEX(3), _INDEX(1)])
        return context.get_dummy_value()

    return types.void(symbols, out, t, like), lower


def _product(a: Message, b: Message) -> Message:
    """The componentwise product of two messages."""
    return tuple(x * y for x, y in zip(a, b, strict=True))


def _lower_product(_: Any, a: Any, b: Any) -> _Lowered:
    return a(a, b), lambda context, builder, signature, given: builder.fmul(*given)


def _scaled(a: Message, factor: float) -> Message:
    """A message times a number."""
    return tuple(x * factor for x in a)


def _lower_scaled(_: Any, a: Any, factor: Any) -> _Lowered:
    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = given[0].type
        one = builder.insert_element(ir.Constant(kind, ir.Undefined), given[1], _INDEX(0))
        return builder.fmul(given[0], _everywhere(builder, one, 0, a.states))

    return a(a, types.float64), lower


def _total(a: Message) -> float:
    """The sum of a message's components."""
    if len(a) == 4:
        return (a[0] + a[1]) + (a[2] + a[3])
    return a[0] + a[1] if len(a) == 2 else a[0] + a[1] + a[2]


def _lower_total(_: Any, a: Any) -> _Lowered:
    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _sum(builder, [builder.extract_element(given[0], _INDEX(x)) for x in range(a.states)])

    return types.float64(a), lower


def _advance(a: Message, table: Floats, symbols: Ints, t: int) -> Message:
    """Predict and condition in one: the row vector `a` times the matrix of the symbol of tick t, not normalised.

    Args:
        table: (m + 1, k, w), the matrices Pr(next state, symbol | state), that of an unobserved tick (symbol -1)
            first; their transposes for the backward direction. w is 4 for k = 3, whose fourth column is 0.
        symbols: (n,) in -1..m-1.
    """
    matrix = table[symbols[t] + 1].tolist()
    terms = ([x * y for y in row[: len(a)]] for x, row in zip(a, matrix, strict=True))
    return tuple(_total(column) for column in zip(*terms, strict=True))


def _lower_advance(_: Any, a: Any, table: Any, symbols: Any, t: Any) -> _Lowered:
    _contiguous(table, symbols)
    states = a.states
    width = 4 if states == 3 else states  # reading three numbers takes twice as long as reading four
    low = ir.Constant(ir.VectorType(_INDEX, states), list(range(states)))

    def lower(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        vector, numbers, stream, position = given
        symbol = builder.load(_place(context, builder, symbols, stream, position, 1))
        slot = builder.add(symbol, ir.Constant(symbol.type, 1))
        place = _place(context, builder, table, numbers, slot, states * width)
        terms = []
        for x in range(states):
            row = _read(builder, builder.gep(place, [_INDEX(x * width)]), width)
            row = builder.shuffle_vector(row, row, low)
            terms.append(builder.fmul(_everywhere(builder, vector, x, states), row))
        return _sum(builder, terms)

    return a(a, table, symbols, t), lower


message = operation(_message, _lower_message)
load = operation(_load, _lower_load)
store = operation(_store, _lower_store)
prefetch = operation(_prefetch, _lower_prefetch)
product = operation(_product, _lower_product)
scaled = operation(_scaled, _lower_scaled)
total = operation(_total, _lower_total)
advance = operation(_advance, _lower_advance)
