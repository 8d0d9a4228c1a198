# python/seqtile/_library.py -- finds libseqtile and its functions.
# SPDX-License-Identifier: Apache-2.0
import ctypes
import ctypes.util
import os
from types import SimpleNamespace

import tvm_ffi

# Errors of the library travel by the names of these exceptions.
for _error in (LookupError, NotImplementedError, OSError, TimeoutError):
    tvm_ffi.error.register_error(_error.__name__, _error)

_NAMES = ("operations", "engine_open", "engine_refresh", "engine_counters", "engine_write_misses", "engine_release",
          "engine_prepare", "op_call", "op_describe", "op_explain", "op_release")


def _path() -> str:
    """$SEQTILE_LIBRARY, or the library beside this file, or the loader's."""
    named = os.environ.get("SEQTILE_LIBRARY")
    if named:
        return named
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libseqtile.so")
    found = beside if os.path.isfile(beside) else ctypes.util.find_library("seqtile")
    if found is None:
        raise ImportError("the loader knows no libseqtile.so; install the library, or set SEQTILE_LIBRARY to its path")
    return found


def _load(path: str) -> SimpleNamespace:
    """The library's functions. tvm_ffi.load_module() goes by the end of the name, which versions change."""
    try:
        library = ctypes.CDLL(path)
        symbols = {name: getattr(library, "__tvm_ffi_seqtile_" + name) for name in _NAMES}
    except (OSError, AttributeError) as error:
        raise ImportError(f"{path} is not the library seqtile of this package: {error}; give the path of libseqtile.so in "
                          "SEQTILE_LIBRARY, or unset it") from None
    addresses = {name: ctypes.cast(symbol, ctypes.c_void_p).value for name, symbol in symbols.items()}
    return SimpleNamespace(**{name: tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=library)
                              for name, address in addresses.items()})


functions = _load(_path())
