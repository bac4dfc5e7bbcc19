"""Compilation of kernels: `kernel` for functions that Python calls, and `part` for functions that only kernels call.

A kernel takes arrays that its public wrapper has checked. With NUMBA_DISABLE_JIT=1 a kernel is a plain Python function.

Compiled kernels are cached on disk. Numba renews them when the kernel's own file changes, but not when a helper or a
constant from another file does. So each kernel has a folder named by a digest of all that it uses. Two processes that
compile one kernel at once for different types give their files the same number, and may swap their code. So the files
of each process have names of their own; at worst a kernel is compiled twice.

A program that may not wait for a compilation compiles beside its work. Until then a call runs the plain Python
function, with the same results.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.types import unliteral

__all__ = ["compile_in_background", "kernel", "part"]


_MOST_PLAIN = 1 << 14
"""The most entries of an array for a plain function: at a few microseconds for each, compiling takes longer."""

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_digests: dict[int, str] = {}
"""Digests of the kernels made so far, by the identity of the object that `kernel` returned, which is never freed."""
_submit: Callable[[Callable[[], bool]], object] | None = None
_submitted: set[tuple[int, Any]] = set()


def kernel(function: AnyFunction) -> AnyFunction:
    """Compile a pure function on arrays with numba, cached on disk if a directory can be written.

    The kernels that the function calls are compiled before it.
    """
    return _jit(function, {})


def part(function: AnyFunction) -> AnyFunction:
    """Compile a function that only kernels call, without a wrapper for Python, whose compilation takes long.

    A call from Python raises TypeError, unless compilation is off.
    """
    compiled_function = _jit(function, {"no_cpython_wrapper": True})
    if isinstance(compiled_function, Dispatcher):

        def refuse(*_args: Any, **_names: Any) -> None:
            raise TypeError(f"{function.__name__} is a part of kernels; call one of these, or its `py_func`")

        dispatcher: Any = compiled_function
        dispatcher._compile_for_args, dispatcher._insert = (refuse, lambda *_: None)  # what is inserted could be called
    return compiled_function


def _jit(function: AnyFunction, options: dict[str, bool]) -> AnyFunction:
    # error_model "numpy": a division does not test its divisor (kernels test likelihoods themselves), so
    # that loops vectorise. No fast-math: sums keep the order in which they are written.
    njit: Any = numba.njit  # its types leave out what need not be compiled
    options = {"nogil": True, "no_cfunc_wrapper": True, **options}
    digest = _digest(function, options)
    try:
        with _cached_under(digest, Path(inspect.getfile(function))):
            compiled_function = njit(error_model="numpy", cache=True, **options)(function)
            _set_up_cache(compiled_function)
    except RuntimeError:  # numba found no directory to write its cache to: a read-only installation
        compiled_function = njit(error_model="numpy", **options)(function)
    if isinstance(compiled_function, Dispatcher):  # else nothing is compiled
        dispatcher: Any = compiled_function
        dispatcher._compile_for_args = partial(_compile, compiled_function)  # what it calls for types that are new
        call_template = dispatcher.get_call_template
        # Numba would compile it anew for each constant that a kernel gives.
        dispatcher.get_call_template = lambda types, names: call_template(tuple(map(unliteral, types)), names)
    _digests[id(compiled_function)] = digest
    return cast(AnyFunction, compiled_function)


def compile_in_background(submit: Callable[[Callable[[], bool]], object] | None) -> None:
    """Run kernels that are not compiled yet as plain Python functions from now on, unless an array is large.

    `submit` gets a function that compiles the kernel, to be called elsewhere, once for each kernel and types. That
    function returns True if the kernel was not on the disk. With `None`, calls wait for the compilation again.
    """
    global _submit
    _submit = submit
    _submitted.clear()


def _compile(dispatcher: Any, *args: Any, **names: Any) -> Callable[..., Any]:
    """Return the function that runs a call with new types: compiled, or plain while `_submit` compiles it."""
    if _submit is None or any(getattr(array, "size", 0) > _MOST_PLAIN for array in args):
        return cast(Callable[..., Any], cast(Any, Dispatcher)._compile_for_args(dispatcher, *args, **names))
    types = tuple(dispatcher.typeof_pyval(array) for array in args)
    if (id(dispatcher), types) not in _submitted:
        _submitted.add((id(dispatcher), types))
        _submit(partial(_compile_types, dispatcher, types))
    return _plain_function(dispatcher)


def _compile_types(dispatcher: Any, types: Any) -> bool:
    dispatcher.compile(types)
    return types in dispatcher.stats.cache_misses


@cache
def _plain_function(dispatcher: Any) -> Callable[..., Any]:
    """Return a kernel as a plain Python function, which calls plain functions, too."""
    function = dispatcher.py_func
    global_values = dict(function.__globals__)
    for name in _global_names(function.__code__) & global_values.keys():
        if isinstance(global_values[name], Dispatcher):
            global_values[name] = _plain_function(global_values[name])
    return FunctionType(function.__code__, global_values, function.__name__)


def _digest(function: Callable[..., Any], options: dict[str, bool]) -> str:
    """Return a digest of a function's source and options, and of the kernels and constants that its source names.

    Options count, as a call of a kernel that was stored without a wrapper would end the process. Raises TypeError if
    the function uses a module of this package.
    """
    digested_texts = [inspect.getsource(function), repr(options)]
    global_values = function.__globals__
    for name in sorted(_global_names(function.__code__)):
        global_value = global_values.get(name)
        if isinstance(global_value, ModuleType) and global_value.__name__.startswith(__name__.partition(".")[0]):
            raise TypeError(f"kernel {function.__name__} reaches into module {name}: import what it uses by name")
        if id(global_value) in _digests:
            digested_texts.append(_digests[id(global_value)])
        elif isinstance(global_value, int | float | str | bytes | tuple):
            digested_texts.append(f"{name} = {global_value!r}")
        elif isinstance(global_value, np.ndarray):
            digested_texts.append(f"{name} = {global_value.dtype} {global_value.shape} {global_value.tobytes().hex()}")
    return hashlib.sha256("\n".join(digested_texts).encode()).hexdigest()[:20]


def _global_names(code: CodeType) -> set[str]:
    """Return every global name in the code of a function and of its inner functions."""
    return set(code.co_names).union(*(_global_names(const) for const in code.co_consts if isinstance(const, CodeType)))


def _set_up_cache(compiled_function: Any) -> None:
    """Set up a kernel's cache files: no other process uses their names, and faults of the disk are survived.

    A kernel that cannot be stored, as on a full disk, runs nevertheless; the next process compiles it again.
    """
    if isinstance(compiled_function, Dispatcher):  # else nothing is compiled
        kernel_cache: Any = cast(Any, compiled_function)._cache  # what numba's types do not name
        kernel_cache._cache_file._data_name_pattern = f"{secrets.token_hex(8)}.{{number:d}}.nbc"
        kernel_cache._guard_against_spurious_io_errors = partial(_survive_faults, kernel_cache)


@contextmanager
def _survive_faults(kernel_cache: Any) -> Iterator[None]:
    """Ignore errors of the disk, and forget the stored kernels of a damaged cache, so that they are compiled again."""
    with suppress(OSError):
        try:
            yield
        except OSError:
            raise
        except Exception:  # a file that a power cut left empty or cut off raises whatever its bytes mean
            kernel_cache.flush()


@contextmanager
def _cached_under(digest: str, source: Path) -> Iterator[None]:
    """Let numba cache kernels that this context compiles in a folder of this digest."""
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
