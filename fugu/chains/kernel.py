"""How the kernels of this room are compiled: one set of flags, `kernel` for what is called and `part` for the rest.

A kernel takes arrays that its public wrapper has checked. With NUMBA_DISABLE_JIT=1 it is a plain Python function.

Compiled kernels are kept on disk. Numba renews them when the kernel's own file changes, but not when a helper or a
constant from another file does. So each has a folder named by a digest of all it is made of. Two processes that compile
one kernel at once for different types take the same number for its file, and may swap their code. So the files of each
process have names of their own; at worst something is compiled again.

A program that may not wait for that compiles beside its work. Until then a kernel is the plain function that it was
written as, whose results are the same.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.types import unliteral

__all__ = ["compile_beside", "kernel", "part"]


_MOST_PLAIN = 1 << 14
"""Entries of an array that a plain function is given: at a few microseconds for each, compiling takes longer."""

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_digests: dict[int, str] = {}
"""Sources of the kernels compiled so far, by the identity of what `kernel` returned; these live for ever."""
_submit: Callable[[Callable[[], bool]], object] | None = None
_submitted: set[tuple[int, Any]] = set()


def kernel(function: AnyFunction) -> AnyFunction:
    """Compile a pure function on arrays with numba, keeping its type, cached on disk where a directory can be written.

    The kernels that it calls are compiled before it.
    """
    return _compiled(function, {})


def part(function: AnyFunction) -> AnyFunction:
    """Compile a kernel that only kernels call: half of the time to compile a small one is what makes it a function.

    A call from elsewhere is a TypeError, unless nothing is compiled.
    """
    compiled = _compiled(function, {"no_cpython_wrapper": True})
    if isinstance(compiled, Dispatcher):

        def refused(*_args: Any, **_names: Any) -> None:
            raise TypeError(f"{function.__name__} is a part of kernels; call one of these, or its `py_func`")

        dispatcher: Any = compiled
        dispatcher._compile_for_args, dispatcher._insert = refused, lambda *_: None  # what is inserted could be called
    return compiled


def _compiled(function: AnyFunction, options: dict[str, bool]) -> AnyFunction:
    # error_model "numpy": a division does not test its divisor (kernels test likelihoods themselves), so
    # that loops vectorise. No fast-math: sums keep the order in which they are written.
    njit: Any = numba.njit  # its types leave out what need not be compiled
    options = {"nogil": True, "no_cfunc_wrapper": True, **options}
    digest = _digest(function, options)
    try:
        with _cached_under(digest, Path(inspect.getfile(function))):
            compiled = njit(error_model="numpy", cache=True, **options)(function)
            _set_cache_name(compiled)
    except RuntimeError:  # numba found no directory to write its cache to: a read-only installation
        compiled = njit(error_model="numpy", **options)(function)
    if isinstance(compiled, Dispatcher):  # else nothing is compiled
        dispatcher: Any = compiled
        dispatcher._compile_for_args = partial(_compile, compiled)  # what it calls for types that are new
        call_template = dispatcher.get_call_template
        # Numba would compile it anew for each constant that a kernel gives.
        dispatcher.get_call_template = lambda types, names: call_template(tuple(map(unliteral, types)), names)
    _digests[id(compiled)] = digest
    return cast(AnyFunction, compiled)


def compile_beside(submit: Callable[[Callable[[], bool]], object] | None) -> None:
    """From now on a kernel that is called and not compiled runs as a plain function, unless an array is large.

    `submit` takes what compiles it, to be called elsewhere, once for each kernel and types: it returns True if the
    kernel was not on the disk. With `None` calls wait again until a kernel is compiled.
    """
    global _submit
    _submit = submit
    _submitted.clear()


def _compile(compiled: Any, *args: Any, **names: Any) -> Callable[..., Any]:
    """Return what a call runs whose types were not there before."""
    if _submit is None or any(getattr(array, "size", 0) > _MOST_PLAIN for array in args):
        return cast(Callable[..., Any], cast(Any, Dispatcher)._compile_for_args(compiled, *args, **names))
    types = tuple(compiled.typeof_pyval(array) for array in args)
    if (id(compiled), types) not in _submitted:
        _submitted.add((id(compiled), types))
        _submit(partial(_compile_types, compiled, types))
    return _plain_function(compiled)


def _compile_types(compiled: Any, types: Any) -> bool:
    compiled.compile(types)
    return types in compiled.stats.cache_misses


@cache
def _plain_function(compiled: Any) -> Callable[..., Any]:
    """The function that a kernel was written as; those that it calls are plain, too."""
    function = compiled.py_func
    namespace = dict(function.__globals__)
    for name in _names(function.__code__) & namespace.keys():
        if isinstance(namespace[name], Dispatcher):
            namespace[name] = _plain_function(namespace[name])
    return FunctionType(function.__code__, namespace, function.__name__)


def _digest(function: Callable[..., Any], options: dict[str, bool]) -> str:
    """A digest of a function's source, and of every kernel, constant and function of this package that it names.

    And of how it is compiled: to call what was stored without an entry for callers would end the process.
    """
    digested_texts = [inspect.getsource(function), repr(options)]
    namespace = function.__globals__
    for name in sorted(_names(function.__code__)):
        global_value = namespace.get(name)
        if isinstance(global_value, ModuleType) and global_value.__name__.startswith(__name__.partition(".")[0]):
            raise TypeError(f"kernel {function.__name__} reaches into module {name}: import what it uses by name")
        if id(global_value) in _digests:
            digested_texts.append(_digests[id(global_value)])
        elif isinstance(global_value, int | float | str | bytes | tuple):
            digested_texts.append(f"{name} = {global_value!r}")
        elif isinstance(global_value, np.ndarray):
            digested_texts.append(f"{name} = {global_value.dtype} {global_value.shape} {global_value.tobytes().hex()}")
    return hashlib.sha256("\n".join(digested_texts).encode()).hexdigest()[:20]


def _names(code: CodeType) -> set[str]:
    """Every global name that a function, or a function inside it, mentions."""
    return set(code.co_names).union(*(_names(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _set_cache_name(compiled: Any) -> None:
    """Let what this process compiles of a kernel be kept in files that no other process writes."""
    if isinstance(compiled, Dispatcher):  # else nothing is compiled
        own: Any = compiled  # what numba's types do not name
        own._cache._cache_file._data_name_pattern = f"{secrets.token_hex(8)}.{{number:d}}.nbc"


@contextmanager
def _cached_under(digest: str, source: Path) -> Iterator[None]:
    """Let numba keep what is compiled in here in a folder of this digest."""
    numba_config: Any = numba.config
    previous_folder = numba_config.CACHE_DIR
    source_cache = source.parent / "__pycache__"
    if previous_folder:
        cache_root = Path(previous_folder)
    elif os.access(source_cache if source_cache.exists() else source.parent, os.W_OK):
        cache_root = source_cache
    else:
        cache_root = Path.home() / ".cache" / "fugu-edge"
    numba_config.CACHE_DIR = str(cache_root / "kernels" / digest)
    try:
        yield
    finally:
        numba_config.CACHE_DIR = previous_folder
