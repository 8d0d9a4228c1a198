# python/seqtile/__init__.py -- operations of any sequence length, served from a tuned cache.
# SPDX-License-Identifier: Apache-2.0
"""Operations of any sequence length, served from a tuned cache.

    engine = seqtile.Engine(cache="tuning.db")
    linear = engine.prepare("linear", n=1536, k=576, dtype="bf16")
    y = linear(x, w)                  # y is made; any number of rows, no compilation
    linear(x, w, y)                   # y is written

Tensors are PyTorch's, NumPy's or any that have DLPack; nothing is copied. Errors: ValueError for what the caller has
given wrong, TypeError for what is no tensor, LookupError for a call without a record under the policy "strict", NotImplementedError, MemoryError, OSError
and TimeoutError as their names say, else RuntimeError; the text says the value, the limit and the next step.
"""
from seqtile._engine import Engine, Explanation, Op, TensorSpec, operations

__version__ = "0.1.0"
__all__ = ["Engine", "Explanation", "Op", "TensorSpec", "operations"]
