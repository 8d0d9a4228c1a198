# python/seqtile/_engine.py -- engines, and operations that they prepare.
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import os
import weakref
from typing import Any, Optional, Sequence

from seqtile._library import functions
from seqtile._tensors import Outputs, TensorSpec, dtype_name, passed, written

_call = functions.op_call


def _plain(value: Any) -> Any:
    """A number of NumPy or PyTorch as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a field is of type {type(value).__name__}; give a number or a text")


def operations() -> list:
    """The operations: [{"operation", "summary", "over_ranks", "fields": [{"field", "values"}]}]. A field that must be given
    has "required", one that has a default of its own "default". Texts, for people."""
    return json.loads(functions.operations())


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What serves a length: a bucket of lengths, the origin of its record, the configuration, the record's median."""

    bucket: tuple
    origin: str
    config: dict
    median_us: float
    reason: str


class Op:
    """An operation with its fields, ready to be called with any length. Engine.prepare() makes it. Any thread may call it."""

    def __init__(self, number: int):
        described = json.loads(functions.op_describe(number))
        self.operation: str = described["operation"]
        self.dtype: str = described["dtype"]
        self.fields: dict = described["fields"]
        self.tensors: tuple = tuple(TensorSpec.of(tensor) for tensor in described["tensors"])
        self._outputs = Outputs(self.tensors)
        self._inputs = len(self.tensors) - len(self._outputs.specs)
        self._number = number
        weakref.finalize(self, functions.op_release, number).atexit = False

    def __reduce__(self):
        raise TypeError("an operation of seqtile belongs to its process; prepare it where it is called")

    def __copy__(self) -> "Op":
        return self

    def __deepcopy__(self, memo: dict) -> "Op":
        return self

    def __repr__(self) -> str:
        return f"<seqtile.Op {self.operation} {self.dtype} {self.fields}>"

    def __call__(self, *tensors: Any, length: Optional[int] = None) -> Any:
        """One launch.

        tensors: all that `self.tensors` lists, in that order, or the inputs and weights alone: then outputs are made, and
        returned (one tensor, or a tuple). length: the bucketed dimension, where no tensor has it as a size.
        """
        count = len(tensors)
        if length is not None and length < 0:
            raise ValueError(f"{self.operation}: length is {length}; give 0 or more")
        if count == len(self.tensors):
            _call(self._number, length, *passed(self.tensors, tensors))
            written(tensors[self._inputs:])
            return None
        if count != self._inputs:
            names = ", ".join(spec.name for spec in self.tensors)
            raise ValueError(f"{self.operation}: {count} tensors given; give all {len(self.tensors)}, {names}, or the first "
                             f"{self._inputs}, and the outputs are made")
        given, outputs = passed(self.tensors, tensors), self._outputs.like(tensors)
        _call(self._number, length, *given, *passed(self._outputs.specs, outputs))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def outputs_like(self, inputs: Sequence) -> list:
        """Outputs for these inputs, as a call makes them: their elements are not set."""
        return self._outputs.like(inputs)

    def explain(self, length: int) -> Explanation:
        """What serves a length."""
        found = json.loads(functions.op_explain(self._number, length))
        return Explanation(tuple(found["bucket"]), found["origin"], found["config"], found["median_us"], found["reason"])


class Engine:
    """Serves operations on one device from the stores of one cache.

    threads: of one call on a CPU; 0: all cores, or as many as OpenMP takes. pool: whose threads: "own", "openmp", those
    of the OpenMP library that the process has loaded, or "auto", OpenMP's where there is one, as beside PyTorch. cache,
    artifacts: files of tuning records and of binaries; "": the user's. policy: of a length without a record: "strict"
    "default" "nearest" "background" "tune". max_length: longer calls are refused; 0: no limit.
    """

    def __init__(self, *, device: str = "cpu", threads: int = 0, pool: str = "auto",
                 cache: "str | os.PathLike[str]" = "", artifacts: "str | os.PathLike[str]" = "",
                 system_caches: "Sequence[str | os.PathLike[str]]" = (), pinned: "str | os.PathLike[str]" = "",
                 policy: str = "nearest", max_length: int = 0):
        if isinstance(system_caches, (str, os.PathLike)):
            raise TypeError("system_caches is one path; give a list of paths")
        options = {"device": str(device), "threads": threads, "pool": pool, "cache": os.fspath(cache),
                   "artifacts": os.fspath(artifacts), "system_caches": [os.fspath(path) for path in system_caches],
                   "pinned": os.fspath(pinned), "policy": policy, "max_length": max_length}
        self._number = functions.engine_open(json.dumps(options))
        self._options = {name: value for name, value in options.items() if value}
        self._ops: "dict[tuple, Op]" = {}
        weakref.finalize(self, functions.engine_release, self._number).atexit = False

    def prepare(self, operation: str, *, dtype: Any = "f32", **fields: Any) -> Op:
        """The operation with these fields; operations() lists them. dtype: a text, or PyTorch's or NumPy's. Equal ones
        are prepared once."""
        text = json.dumps({"dtype": dtype_name(dtype), **fields}, sort_keys=True, default=_plain)
        op = self._ops.get((operation, text))
        if op is None:
            op = Op(functions.engine_prepare(self._number, operation, text))
            op = self._ops.setdefault((operation, text), op)
        return op

    def __reduce__(self):
        raise TypeError("an engine of seqtile belongs to its process; open one where it is called")

    def __copy__(self) -> "Engine":
        return self

    def __deepcopy__(self, memo: dict) -> "Engine":
        return self

    def __repr__(self) -> str:
        return f"<seqtile.Engine {self._options}>"

    def refresh(self) -> None:
        """Reads the stores again and swaps the plans of all prepared operations."""
        functions.engine_refresh(self._number)

    def counters(self) -> dict:
        """{"hits", "launches", "misses_no_record", ...}."""
        return json.loads(functions.engine_counters(self._number))

    def write_misses(self, path: "str | os.PathLike[str]") -> None:
        """Writes the lengths that calls have missed, for `seqtile prewarm --misses`."""
        functions.engine_write_misses(self._number, os.fspath(path))
