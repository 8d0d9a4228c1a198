# python/seqtile/_tensors.py -- the tensors of a call: what an operation takes, and new outputs like the inputs.
# SPDX-License-Identifier: Apache-2.0
import ctypes
import dataclasses
import sys
from typing import Any, Sequence

import tvm_ffi

# Names of the library's dtypes in NumPy and PyTorch.
NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64", "i1": "bool", "i8": "int8",
         "i16": "int16", "i32": "int32", "i64": "int64"}


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """A tensor that an operation takes.

    role: "input", "weight" or "output". shape: numbers and symbols, (4096, "length", "batch + 1"). in_place: of an
    output, the inputs that may be the same tensor.
    """

    name: str
    role: str
    dtype: str
    shape: tuple
    in_place: tuple = ()

    @classmethod
    def of(cls, json: dict) -> "TensorSpec":
        return cls(json["name"], json["role"], json["dtype"], tuple(json["shape"]), tuple(json.get("in_place", ())))


def dtype_name(dtype: Any) -> str:
    """The library's name of a dtype: of a text, or of a dtype or a scalar type of PyTorch or NumPy."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or getattr(dtype, "name", str(dtype))
    name = name.rpartition(".")[2]
    return next((own for own, other in NAMES.items() if other == name), name)


def _split(dim: str) -> tuple:
    """ "batch + 1" -> ("batch", 1)"""
    symbol, _, more = dim.partition(" ")
    return symbol, int(more.replace(" ", "") or 0)


class Outputs:
    """Makes the outputs of an operation by the sizes of its inputs."""

    def __init__(self, specs: tuple):
        self.specs = tuple(spec for spec in specs if spec.role == "output")
        self._inputs = inputs = specs[:len(specs) - len(self.specs)]
        # Rows that belong to no list of an index tensor are not written.
        self._may_have_gaps = any(spec.dtype == "i32" for spec in inputs)
        places: dict = {}  # of each symbol: the input and the dimension that show it, and what to take away
        for i, spec in enumerate(inputs):
            for d, dim in enumerate(spec.shape):
                if isinstance(dim, str):
                    symbol, more = _split(dim)
                    places.setdefault(symbol, (i, d, more))
        self._shapes = [[self._plan(dim, places) for dim in spec.shape] for spec in self.specs]

    @staticmethod
    def _plan(dim: Any, places: dict) -> Any:
        """A number, or (input, dimension, what to add), or the symbol that no input shows."""
        symbol, more = _split(dim) if isinstance(dim, str) else ("", 0)
        if symbol not in places:
            return dim
        i, d, less = places[symbol]
        return i, d, more - less

    def shapes(self, inputs: Sequence) -> list:
        """Sizes of each output. Errors: ValueError where no input shows a size, or an input has too few dimensions."""
        for spec, tensor in zip(self._inputs, inputs):
            if len(tensor.shape) != len(spec.shape):
                raise ValueError(f"{spec.name} has {len(tensor.shape)} dimensions; give {len(spec.shape)}: {spec.shape}")
        found = []
        for spec, shape in zip(self.specs, self._shapes):
            if any(isinstance(dim, str) for dim in shape):
                raise ValueError(f"no input shows a size of the output {spec.name} {spec.shape}; give the output")
            found.append([inputs[dim[0]].shape[dim[1]] + dim[2] if isinstance(dim, tuple) else dim
                          for dim in shape])
        return found

    def like(self, inputs: Sequence) -> list:
        """Outputs of the framework and on the device of the first input. Their elements are not set, or zeros where the
        call may leave rows out."""
        torch = _torch()
        first, shapes = inputs[0], self.shapes(inputs)
        if torch is not None and isinstance(first, torch.Tensor):
            make = first.new_zeros if self._may_have_gaps else first.new_empty
            return [make(shape, dtype=getattr(torch, NAMES[spec.dtype])) for spec, shape in zip(self.specs, shapes)]
        import numpy
        for spec in self.specs:
            if spec.dtype == "bf16":
                raise ValueError(f"NumPy has no bf16 for the output {spec.name}; give the output, or PyTorch's tensors")
        make = numpy.zeros if self._may_have_gaps else numpy.empty
        return [make(shape, NAMES[spec.dtype]) for spec, shape in zip(self.specs, shapes)]


def _torch():
    """PyTorch, where the program has imported it."""
    return sys.modules.get("torch")


def passed(specs: tuple, tensors: tuple) -> list:
    """The tensors as they go into a call."""
    torch = _torch()
    own = torch.Tensor if torch is not None else ()
    return [tensor if isinstance(tensor, own) and not tensor.requires_grad and not tensor.is_neg() else
            _converted(spec, tensor) for spec, tensor in zip(specs, tensors)]


def written(outputs: Sequence) -> None:
    """Tells PyTorch's autograd that a call has written these tensors."""
    torch = _torch()
    if torch is not None:
        for output in outputs:
            if isinstance(output, torch.Tensor) and not output.is_inference():
                torch.autograd.graph.increment_version(output)


def _converted(spec: TensorSpec, tensor: Any) -> Any:
    torch = _torch()
    if torch is not None and isinstance(tensor, torch.Tensor):
        if tensor.is_neg():
            raise ValueError(f"{spec.name} is a view that is negated when it is read; give {spec.name}.resolve_neg()")
        if torch.is_grad_enabled():
            raise RuntimeError(f"{spec.name} requires a gradient, and a call has no backward; call under "
                               f"torch.no_grad(), or give {spec.name}.detach()")
        return tensor
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(tensor, numpy.ndarray):
        tensor = _exportable(numpy, spec, tensor)
    if hasattr(tensor, "__dlpack__"):
        return tvm_ffi.from_dlpack(tensor)
    raise TypeError(f"{spec.name} is of type {type(tensor).__name__}; give a tensor of PyTorch, an array of NumPy, or an "
                    "object that has DLPack")


def _exportable(numpy: Any, spec: TensorSpec, array: Any) -> Any:
    """An array that NumPy gives away, as it does not read-only ones."""
    if array.flags.writeable or spec.role == "output":
        return array
    # The library does not write inputs, so that a writable view of the same memory is safe. The caller keeps the array.
    low, high = (numpy.lib.array_utils if hasattr(numpy.lib, "array_utils") else numpy).byte_bounds(array)
    start = array.__array_interface__["data"][0]
    memory = (ctypes.c_char * (high - low)).from_address(low)
    return numpy.ndarray(array.shape, array.dtype, memory, start - low, array.strides)
