# python/seqtile/torch.py -- the operations as operators of PyTorch.
# SPDX-License-Identifier: Apache-2.0
"""The operations as operators of PyTorch: torch.ops.seqtile.<operation>, also inside torch.compile(fullgraph=True).

    import seqtile.torch as st

    st.use(seqtile.Engine(cache="tuning.db", threads=2))       # without it: an engine on the user's own stores
    y = st.linear(x, w, bias, activation="silu")               # x [..., k], w [n, k] -> y [..., n]
    (y,) = torch.ops.seqtile.softmax([x], '{"n": 64}')         # any operation: inputs, fields, perhaps the length

An operator has no gradient: inputs that require one, or have a tangent, are refused.
"""
import json
import threading
from typing import Optional

import torch

import seqtile

_lock = threading.Lock()
_engine: Optional[seqtile.Engine] = None
_ops: dict = {}  # prepared operations, by what an operator is called with


def use(engine: seqtile.Engine) -> None:
    """Operators call this engine from now on. Requires: no operator is being called."""
    global _engine
    if not isinstance(engine, seqtile.Engine):
        raise TypeError(f"an engine is of type {type(engine).__name__}; give a seqtile.Engine")
    _engine = engine
    _ops.clear()


def engine() -> seqtile.Engine:
    """The engine that operators call."""
    global _engine
    with _lock:
        if _engine is None:
            _engine = seqtile.Engine()
        return _engine


def _prepared(operation: str, inputs: list, fields: str) -> seqtile.Op:
    """The operation's dtype is that of its first floating-point input, unless the fields give another."""
    dtype = next((x.dtype for x in inputs if x.is_floating_point()), torch.float32)
    op = _ops.get((operation, fields, dtype))
    if op is None:
        op = engine().prepare(operation, **{"dtype": dtype, **_fields(operation, fields)})
        _ops[operation, fields, dtype] = op
    inputs_of_op = sum(spec.role != "output" for spec in op.tensors)
    if len(inputs) != inputs_of_op:
        names = ", ".join(spec.name for spec in op.tensors[:inputs_of_op])
        raise ValueError(f"{operation}: {len(inputs)} inputs given; give {inputs_of_op}: {names}")
    return op


def _fields(operation: str, text: str) -> dict:
    try:
        fields = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{operation}: the fields are no JSON: {error}") from None
    if not isinstance(fields, dict) or "operation" in fields or "self" in fields:
        raise ValueError(f"{operation}: the fields are {text[:60]}; give an object of the operation's fields")
    return fields


def _implementation(operation: str):
    def run(inputs, fields, length=None):
        made = _prepared(operation, inputs, fields)(*inputs, length=length)
        return list(made) if isinstance(made, tuple) else [made]

    return run


def _fake(operation: str):
    def shapes_of(inputs, fields, length=None):
        return _prepared(operation, inputs, fields).outputs_like(inputs)

    return shapes_of


def _refusal_of_gradients(operation: str):
    """What PyTorch's autograd calls first, also under torch.func and torch.compile."""
    def run(inputs, fields, length=None):
        forward = torch.autograd.forward_ad
        if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
            raise RuntimeError(f"{operation}: an input requires a gradient, and the operator has no backward; call under "
                               "torch.no_grad(), or give the input's detach()")
        if forward._current_level >= 0 and any(forward.unpack_dual(x).tangent is not None for x in inputs):
            raise RuntimeError(f"{operation}: an input has a tangent, and the operator has no derivative; give its primal")
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops.seqtile, operation).default(inputs, fields, length)

    return run


def _define(library: torch.library.Library) -> None:
    for operation in seqtile.operations():
        if operation["over_ranks"]:
            continue
        name = operation["operation"]
        library.define(f"{name}(Tensor[] inputs, str fields, SymInt? length=None) -> Tensor[]")
        for key in ("CPU", "CUDA"):
            library.impl(name, _implementation(name), key)
        library.impl(name, _refusal_of_gradients(name), "Autograd")
        torch.library.register_fake(f"seqtile::{name}", _fake(name), lib=library)


_library = torch.library.Library("seqtile", "DEF")
_define(_library)


def _json(**fields) -> str:
    """Fields as JSON, by what torch.compile traces. Sizes become constants there: another one is another operation."""
    for value in fields.values():
        if isinstance(value, str) and not value.isidentifier():
            raise ValueError(f"{value!r} is no name of a choice")
    texts = [f'"{name}": "{value}"' if isinstance(value, str) else f'"{name}": {value}' for name, value in fields.items()]
    return "{" + ", ".join(texts) + "}"


def _check(what: str, tensor: torch.Tensor, shape) -> None:
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{what} has the shape {tuple(tensor.shape)}; give {tuple(shape)}")


def _rows(x: torch.Tensor) -> torch.Tensor:
    """x [..., n] as rows [rows, n] whose innermost stride is 1."""
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"a tensor of the shape {tuple(x.shape)} has no rows; give [..., n] with n of at least 1")
    rows = x.reshape(-1, x.shape[-1])
    return rows if rows.stride(-1) == 1 or rows.shape[-1] == 1 else rows.contiguous()


def linear(x: torch.Tensor, w: torch.Tensor, bias: Optional[torch.Tensor] = None,
           residual: Optional[torch.Tensor] = None, *, activation: str = "none") -> torch.Tensor:
    """activation(x w^T + bias) + residual.

    Shapes: x [..., k], w [n, k], bias [n], residual [..., n] -> [..., n]. activation: "none" "silu" "gelu" "gelu_tanh"
    "relu_squared".
    """
    if w.dim() != 2 or x.dim() == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"x has the shape {tuple(x.shape)} and w {tuple(w.shape)}; give [..., k] and [n, k]")
    if residual is not None:
        _check("residual", residual, (*x.shape[:-1], w.shape[0]))
    inputs = [_rows(x), w]
    inputs += [bias] if bias is not None else []
    inputs += [_rows(residual)] if residual is not None else []
    fields = _json(n=int(w.shape[0]), k=int(w.shape[1]), activation=activation, bias=int(bias is not None),
                   residual=int(residual is not None))
    (y,) = torch.ops.seqtile.linear(inputs, fields)
    return y.reshape(*x.shape[:-1], w.shape[0])


def rms_norm(x: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-5) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension. Shapes: x [..., n], weight [n] -> [..., n]."""
    (y,) = torch.ops.seqtile.rms_norm([_rows(x), weight], _json(n=int(x.shape[-1]), eps=eps))
    return y.reshape(x.shape)


def add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-5):
    """The norm of x + residual, and the sum. Shapes: x, residual [..., n], weight [n] -> ([..., n], [..., n])."""
    _check("residual", residual, x.shape)
    fields = _json(n=int(x.shape[-1]), eps=eps, residual=1)
    y, total = torch.ops.seqtile.rms_norm([_rows(x), _rows(residual), weight], fields)
    return y.reshape(x.shape), total.reshape(x.shape)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension. Shapes: x [..., n] -> [..., n]."""
    (y,) = torch.ops.seqtile.softmax([_rows(x)], _json(n=int(x.shape[-1])))
    return y.reshape(x.shape)


def act_and_mul(x: torch.Tensor, *, activation: str = "silu") -> torch.Tensor:
    """activation(x[..., :n]) * x[..., n:]. Shapes: x [..., 2 n] -> [..., n]."""
    if x.dim() == 0 or x.shape[-1] % 2:
        raise ValueError(f"x has the shape {tuple(x.shape)}; give [..., 2 n]")
    fields = _json(n=int(x.shape[-1]) // 2, activation=activation)
    (y,) = torch.ops.seqtile.act_and_mul([_rows(x)], fields)
    return y.reshape(*x.shape[:-1], x.shape[-1] // 2)
