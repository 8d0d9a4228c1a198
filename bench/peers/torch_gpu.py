#!/usr/bin/env python3
# bench/peers/torch_gpu.py -- PyTorch's matmul and attention for the cases of seqtile_gpu_bench.
# SPDX-License-Identifier: Apache-2.0
"""python torch_gpu.py BENCHMARKS.json: adds PyTorch's times and our ratio to that file and prints a table."""
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION


def random(*sizes):
    return torch.randn(*sizes, dtype=torch.bfloat16, device="cuda") * 0.5


def linear(case):
    x, w = random(case["length"], case["fields"]["k"]), random(case["fields"]["n"], case["fields"]["k"])
    yield "torch", lambda: F.linear(x, w)


def attention(case):
    """One call for each backend that can run it. A backend without grouped heads gets repeated keys and values."""
    fields, length = case["fields"], case["length"]
    q = random(1, fields["heads"], length, fields["head_dim"])
    grouped = [random(1, fields["kv_heads"], length, fields["head_dim"]) for _ in range(2)]
    repeated = [tensor.repeat_interleave(fields["heads"] // fields["kv_heads"], dim=1) for tensor in grouped]
    for backend in BACKENDS:
        name = "torch_" + backend.name.split("_")[0].lower()
        for suffix, (k, v) in (("", grouped), ("_repeated", repeated)):
            def call(backend=backend, k=k, v=v):
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k is grouped[0])
            try:
                call()
            except RuntimeError as error:
                print(f"{case['name']}: {name}{suffix} does not take it: {(str(error).splitlines() or [type(error).__name__])[0]}")
                continue
            yield name + suffix, call
            break


def median_us(call, rounds, flush):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for number in range(rounds + 2):
        flush.fill_(number)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    return statistics.median(times[2:])


def main(path):
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    report["torch"] = torch.__version__
    ratios = []
    for case in report["benchmarks"]:
        calls = {"linear": linear, "attention_forward": attention}.get(case["operation"])
        for name, call in calls(case) if calls else ():
            case["us"][name] = median_us(call, report["rounds"], flush)
        found = {name: us for name, us in case["us"].items() if name.startswith("torch")}
        if found:
            best = min(found, key=found.get)
            case["ratio_to_torch"] = found[best] / case["us"]["seqtile"]
            if case["operation"] == "attention_forward":
                ratios.append(case["ratio_to_torch"])
            print(f"{case['name']:52} {found[best]:10.1f} us {best:16} seqtile is {case['ratio_to_torch']:.2f} of it")
    if ratios:
        goal = {"goal": "attention of PyTorch's best backend, worst length", "value": min(ratios), "at_least": 1.0,
                "met": min(ratios) >= 1.0}
        report.setdefault("goals", []).append(goal)
        print(f"goal: {goal['goal']}: {goal['value']:.2f}, to reach: 1.00 or more: {'met' if goal['met'] else 'missed'}")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    if not ratios and any(case["operation"] == "attention_forward" for case in report["benchmarks"]):
        sys.exit("no backend of PyTorch took attention")


if __name__ == "__main__":
    main(sys.argv[1])
