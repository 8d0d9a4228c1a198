#!/usr/bin/env python3
# tools/torch_new_length.py -- times torch.compile for a sequence length it has not seen; prints one JSON line.
# SPDX-License-Identifier: Apache-2.0
import json
import statistics
import time

import torch
import torch.nn.functional as F

HIDDEN, INNER, NEW_LENGTHS = 576, 1536, (37, 128, 257)  # the dimensions of examples/models/smollm2-135m.json


def seconds(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def main():
    norm, gate, up = torch.randn(HIDDEN), torch.randn(INNER, HIDDEN), torch.randn(INNER, HIDDEN)

    def block(x):
        h = F.rms_norm(x, (HIDDEN,), norm, 1e-6)
        return F.silu(F.linear(h, gate)) * F.linear(h, up)

    compiled = torch.compile(block, dynamic=False)
    with torch.no_grad():
        # The first call also starts the compiler, so that it does not count as a new length.
        first = seconds(compiled, torch.randn(16, HIDDEN))
        extra = []
        for length in NEW_LENGTHS:
            x = torch.randn(length, HIDDEN)
            extra.append(seconds(compiled, x) - seconds(compiled, x))
    print(json.dumps({"new_length_s": round(statistics.median(extra), 3), "first_length_s": round(first, 3),
                      "lengths": len(NEW_LENGTHS), "version": torch.__version__}))


if __name__ == "__main__":
    main()
