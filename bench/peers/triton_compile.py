#!/usr/bin/env python3
# bench/peers/triton_compile.py -- compile times of Triton and of seqtile for the same kernels, in turn, without a GPU.
# SPDX-License-Identifier: Apache-2.0
"""python triton_compile.py --seqtile PROGRAM [--rounds N] [-o FILE.json], with a python that has Triton.

Triton compiles ahead of time for cuda:90 in a process of its own with an empty cache; seqtile compiles for sm_90a with
`compile --repeat`, the same tiles, warps and stages. Neither loads anything. Times of the first kernel of a process (imports, page faults) are left out
on both sides: every process compiles one kernel before those that count. One round asks both for every kernel.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

KERNELS = "linear", "attention_forward", "rms_norm"
PRODUCTS = (128, 256, 64, 3, 8), (128, 128, 64, 4, 8), (128, 128, 32, 4, 4), (64, 128, 64, 4, 4)  # m, n, k, stages, warps
ATTENTIONS = (128, 128, 2, 8), (128, 64, 3, 8), (64, 64, 3, 4)  # rows of queries, of keys, stages, warps
ROW_WARPS = 4, 8, 16


def triton_jobs():
    """(kernel, name, function, argument types, constants, options): the shapes of Llama-3-8B."""
    import triton
    import triton.language as tl

    @triton.jit
    def linear(x, w, y, rows, columns, depth, x_stride, w_stride, y_stride, TILE_M: tl.constexpr, TILE_N: tl.constexpr,
               TILE_K: tl.constexpr):
        m = tl.program_id(1) * TILE_M + tl.arange(0, TILE_M)
        n = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
        k = tl.arange(0, TILE_K)
        total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
        for start in range(0, depth, TILE_K):
            inside = start + k < depth
            left = tl.load(x + m[:, None] * x_stride + (start + k)[None, :],
                           mask=(m < rows)[:, None] & inside[None, :], other=0.0)
            right = tl.load(w + n[None, :] * w_stride + (start + k)[:, None],
                            mask=inside[:, None] & (n < columns)[None, :], other=0.0)
            total = tl.dot(left, right, total)
        tl.store(y + m[:, None] * y_stride + n[None, :], total.to(tl.bfloat16),
                 mask=(m < rows)[:, None] & (n < columns)[None, :])

    @triton.jit
    def attention(q, k, v, out, length, scale, q_stride, kv_stride, out_stride, group, DIM: tl.constexpr,
                  TILE_Q: tl.constexpr, TILE_KV: tl.constexpr):
        first, head = tl.program_id(0) * TILE_Q, tl.program_id(1)
        shared_head = head // group
        row, column = first + tl.arange(0, TILE_Q), tl.arange(0, DIM)
        queries = tl.load(q + row[:, None] * q_stride + head * DIM + column[None, :], mask=(row < length)[:, None],
                          other=0.0)
        top = tl.full((TILE_Q,), float("-inf"), tl.float32)
        weight = tl.zeros((TILE_Q,), tl.float32)
        total = tl.zeros((TILE_Q, DIM), tl.float32)
        for start in range(0, tl.minimum(first + TILE_Q, length), TILE_KV):
            key = start + tl.arange(0, TILE_KV)
            place = key[:, None] * kv_stride + shared_head * DIM + column[None, :]
            keys = tl.load(k + place, mask=(key < length)[:, None], other=0.0)
            score = tl.dot(queries, tl.trans(keys)) * scale
            score = tl.where((row[:, None] >= key[None, :]) & (key < length)[None, :], score, float("-inf"))
            new_top = tl.maximum(top, tl.max(score, 1))
            share = tl.exp2(score - new_top[:, None])
            rescale = tl.exp2(top - new_top)
            weight = weight * rescale + tl.sum(share, 1)
            values = tl.load(v + place, mask=(key < length)[:, None], other=0.0)
            total = tl.dot(share.to(tl.bfloat16), values, total * rescale[:, None])
            top = new_top
        result = (total / weight[:, None]).to(tl.bfloat16)
        place = row[:, None] * out_stride + head * DIM + column[None, :]
        tl.store(out + place, result, mask=(row < length)[:, None])

    @triton.jit
    def rms_norm(x, w, y, columns, stride, epsilon, TILE: tl.constexpr):
        column = tl.arange(0, TILE)
        row = tl.program_id(0)
        value = tl.load(x + row * stride + column, mask=column < columns, other=0.0).to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, 0) / columns + epsilon)
        gain = tl.load(w + column, mask=column < columns, other=0.0).to(tl.float32)
        tl.store(y + row * stride + column, (value * scale * gain).to(tl.bfloat16), mask=column < columns)

    def row(tile, warps):
        return ("rms_norm", f"{tile}.w{warps}", rms_norm, {"epsilon": "fp32"}, {"TILE": tile}, {"num_warps": warps})

    yield ("warm-up", "", *row(1024, 4)[2:])
    for m, n, k, stages, warps in PRODUCTS:
        yield ("linear", f"{m}x{n}x{k}.s{stages}.w{warps}", linear, {}, {"TILE_M": m, "TILE_N": n, "TILE_K": k},
               {"num_warps": warps, "num_stages": stages})
    for q_rows, kv_rows, stages, warps in ATTENTIONS:
        yield ("attention_forward", f"{q_rows}x{kv_rows}.s{stages}.w{warps}", attention, {"scale": "fp32"},
               {"DIM": 128, "TILE_Q": q_rows, "TILE_KV": kv_rows}, {"num_warps": warps, "num_stages": stages})
    for warps in ROW_WARPS:
        yield row(4096, warps)


def triton_child(only_first):
    """Prints one line for each kernel: the milliseconds from source to PTX and from source to cubin."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    seen = {}

    def listen(*, src, metadata, metadata_group, times, cache_hit):
        seen.update(hit=cache_hit, stages=dict(times.lowering_stages), first=times.ir_initialization)

    triton.knobs.compilation.listener = listen
    for kernel, name, function, types, constants, options in triton_jobs():
        pointers = [n for n in function.arg_names if n in ("x", "w", "y", "q", "k", "v", "out")]
        signature = {n: "*bf16" if n in pointers else "constexpr" if n in constants else types.get(n, "i32")
                     for n in function.arg_names}
        whole = [n for n in function.arg_names if n.endswith("stride") or n in ("depth", "columns")]
        aligned = {(function.arg_names.index(n),): [["tt.divisibility", 16]] for n in pointers + whole}
        before = os.times()
        triton.compile(ASTSource(function, signature, constants, aligned), target=GPUTarget("cuda", 90, 32),
                       options=options)
        stages = seen["stages"]  # microseconds
        to_ptx = seen["first"] + sum(us for stage, us in stages.items() if stage != "cubin")
        after = os.times()
        spent = [1e3 * (b - a) for a, b in zip(before, after)]  # user, system, and both of the children (ptxas)
        print(json.dumps({"kernel": kernel, "name": name, "hit": seen["hit"],
                          "ptx": {"ms": to_ptx / 1e3, "processor_ms": sum(spent[:2])},
                          "cubin": {"ms": (to_ptx + stages.get("cubin", 0)) / 1e3, "processor_ms": sum(spent[:4])}}),
              flush=True)
        if only_first:
            return


def run_triton(cache, *more):
    env = dict(os.environ, TRITON_CACHE_DIR=cache)
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", *more], env=env, capture_output=True,
                          text=True)
    if done.returncode:
        sys.exit(f"triton_compile: Triton failed: {done.stderr.strip().splitlines()[-1]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def seqtile_jobs():
    """(kernel, name, static fields, configuration)"""
    for m, n, k, stages, warps in PRODUCTS:
        yield ("linear", f"{m}x{n}x{k}.s{stages}.w{warps}", ["n=4096", "k=4096"],
               [f"block_m={m}", f"block_n={n}", f"block_k={k}", f"num_stages={stages}", f"num_warps={warps}",
                "cluster=1"])
    for m, n, stages, warps in ATTENTIONS:
        yield ("attention_forward", f"{m}x{n}.s{stages}.w{warps}",
               ["heads=32", "kv_heads=8", "head_dim=128", "phase=prefill"],
               [f"block_m={m}", f"block_n={n}", f"num_stages={stages}", f"num_warps={warps}"])
    for warps in ROW_WARPS:
        yield "rms_norm", f"4096.w{warps}", ["n=4096"], ["rows=1", f"num_warps={warps}"]


def run_seqtile(program):
    """Compiles each configuration once uncounted, then five times."""
    found = []
    for kernel, name, fields, config in seqtile_jobs():
        command = [program, "compile", kernel, "--length", "4096", "--dtype", "bf16", "--device", "sm_90a",
                   "--repeat", "5", "--json"]
        for field in fields:
            command += ["--set", field]
        for parameter in config:
            command += ["--config", parameter]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"triton_compile: {' '.join(command)}: {done.stderr.strip()}")
        answer = json.loads(done.stdout.splitlines()[-1])
        found.append({"kernel": kernel, "name": name, **answer["repeat"]})
    return found


def median_of(rows, kernel, name, stage, what):
    values = [row[stage][what] for row in rows if (row["kernel"], row["name"]) == (kernel, name) and stage in row]
    return statistics.median(values) if values else None


def compare(theirs, ours):
    """One row for each configuration, stage and kind of time."""
    for kernel, name, _, _ in seqtile_jobs():
        for stage in ("ptx", "cubin"):
            for what in ("ms", "processor_ms"):
                peer, own = (median_of(rows, kernel, name, stage, what) for rows in (theirs, ours))
                yield {"kernel": kernel, "name": name, "stage": stage, "what": what, "triton": peer, "seqtile": own,
                       "ratio": peer / own if own else None}


def warm_start(repeats):
    """Milliseconds from the start of a process until it has a cubin from Triton's own cache."""
    with tempfile.TemporaryDirectory() as cache:
        run_triton(cache, "--first")
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            rows = run_triton(cache, "--first")
            times.append(1e3 * (time.perf_counter() - start))
            assert rows[0]["hit"]
    return statistics.median(times)


def measure(options):
    ours, theirs = [], []
    for number in range(options.rounds):
        ours += run_seqtile(options.seqtile)
        with tempfile.TemporaryDirectory() as cache:
            theirs += run_triton(cache)
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    import triton
    rows = list(compare(theirs, ours))
    report = {"triton": triton.__version__, "rounds": options.rounds, "seqtile_ms": ours, "triton_ms": theirs,
              "triton_warm_process_ms": warm_start(options.rounds), "rows": rows}
    print(f"{'kernel':18} {'configuration':18} {'stage':6} {'time':13} {'Triton ms':>10} {'seqtile ms':>11} {'ratio':>6}")
    for row in rows:
        shown = f"{row['seqtile']:11.1f} {row['ratio']:6.1f}" if row["seqtile"] else f"{'no ptxas':>11}"
        print(f"{row['kernel']:18} {row['name']:18} {row['stage']:6} {row['what']:13} {row['triton']:10.1f} {shown}")
    for kernel in KERNELS:
        for stage in ("ptx", "cubin"):
            for what in ("ms", "processor_ms"):
                ratios = [row["ratio"] for row in rows
                          if (row["kernel"], row["stage"], row["what"]) == (kernel, stage, what) and row["ratio"]]
                if ratios:
                    print(f"{kernel:18} {'geometric mean':18} {stage:6} {what:13} {'':22} "
                          f"{statistics.geometric_mean(ratios):6.1f}")
    print(f"Triton {report['triton']}, warm process to a cubin in hand: {report['triton_warm_process_ms']:.0f} ms")
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqtile", help="the program `seqtile`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", help="writes all times as JSON")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return triton_child(options.first)
    if not options.seqtile:
        parser.error("--seqtile PROGRAM is needed")
    return measure(options)


if __name__ == "__main__":
    main()
