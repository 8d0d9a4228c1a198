#!/usr/bin/env python3
# tools/python/call_times.py -- times of a call from Python beside PyTorch's, in turns: call_times.py [ROUNDS]
# SPDX-License-Identifier: Apache-2.0
#
# The kernel, rms_norm of one row of 16, takes next to nothing. Needs the package seqtile, PyTorch and NumPy.
import statistics
import sys
import tempfile
import time

import numpy
import torch

import seqtile
import seqtile.torch as st

CALLS = 300


def contestants(engine):
    """Functions by name; each computes what PyTorch's rms_norm does, but for the last."""
    x, weight, y = torch.randn(1, 16), torch.rand(16), torch.empty(1, 16)
    numpy_x, numpy_weight, numpy_y = x.numpy(), weight.numpy(), numpy.empty((1, 16), numpy.float32)
    op, square = engine.prepare("rms_norm", n=16), torch.randn(16, 16)
    want = torch.nn.functional.rms_norm(x, (16,), weight, 1e-5)
    op(x, weight, y)
    op(numpy_x, numpy_weight, numpy_y)
    for got in (y, op(x, weight), st.rms_norm(x, weight), torch.from_numpy(numpy_y)):
        torch.testing.assert_close(got, want)
    return {
        "outputs given": lambda: op(x, weight, y),
        "outputs made": lambda: op(x, weight),
        "NumPy, outputs given": lambda: op(numpy_x, numpy_weight, numpy_y),
        "operator": lambda: st.rms_norm(x, weight),
        "torch rms_norm": lambda: torch.nn.functional.rms_norm(x, (16,), weight, 1e-5),
        "torch linear": lambda: torch.nn.functional.linear(x, square),
    }


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        engine = seqtile.Engine(threads=2, cache=folder + "/tuning.db", artifacts=folder + "/artifacts.db")
        st.use(engine)
        functions = contestants(engine)
        times = {name: [] for name in functions}
        for _ in range(rounds):
            for name, function in functions.items():
                start = time.perf_counter()
                for _ in range(CALLS):
                    function()
                times[name].append((time.perf_counter() - start) / CALLS * 1e6)
    for name, values in times.items():
        low, high = (sorted(values)[len(values) * p // 100] for p in (20, 80))
        print(f"{name:22} {statistics.median(values):6.2f} us   p20..p80 {low:.2f}..{high:.2f}")


if __name__ == "__main__":
    main()
