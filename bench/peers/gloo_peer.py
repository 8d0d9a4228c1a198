# bench/peers/gloo_peer.py -- runs collectives of torch.distributed (gloo) on command: one JSON line in, one out.
# SPDX-License-Identifier: Apache-2.0
"""Two processes: rank 0 reads the commands and sends them to rank 1 by gloo's own broadcast. A call's time is that of
the slower rank, measured from a barrier."""
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

RANKS = 2
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def gather(y, x):
    dist.all_gather(list(y.chunk(RANKS)), x)


def reduce_scatter(y, x):
    """Some versions of gloo have no reduce-scatter; an all-reduce takes its place."""
    try:
        dist.reduce_scatter_tensor(y, x)
    except RuntimeError:
        dist.all_reduce(x)
        y.copy_(x.chunk(RANKS)[dist.get_rank()])


def tensors(sizes, dtype):
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    make = lambda *shape: torch.randn(shape).to(dtype)
    return {
        "own": make(m // RANKS, k),
        "all": torch.empty(m, k, dtype=dtype),
        "x": make(m, k),
        "own_x": torch.empty(m // RANKS, k, dtype=dtype),
        "w_columns": make(n // RANKS, k) / k**0.5,
        "x_columns": make(m, k // RANKS),
        "w_rows": make(n, k // RANKS) / k**0.5,
        "own_y": torch.empty(m // RANKS, n, dtype=dtype),
    }


def call(operation, t):
    if operation == "all_gather":
        gather(t["all"], t["own"])
    elif operation == "all_reduce":
        dist.all_reduce(t["all"])
    elif operation == "reduce_scatter":
        reduce_scatter(t["own_x"], t["all"])
    elif operation == "broadcast":
        dist.broadcast(t["all"], 0)
    elif operation == "fused_allgather_and_linear":
        gather(t["all"], t["own"])
        F.linear(t["all"], t["w_columns"])
    elif operation == "fused_linear_and_reducescatter":
        reduce_scatter(t["own_y"], F.linear(t["x_columns"], t["w_rows"]))
    elif operation == "linear_and_allreduce":
        dist.all_reduce(F.linear(t["x_columns"], t["w_rows"]))
    else:
        raise ValueError(f"no operation {operation}")


def timed(command, t):
    t["all"].copy_(t["x"])  # repeated sums in place would grow
    dist.barrier()
    start = time.perf_counter()
    call(command["operation"], t)
    seconds = torch.tensor(time.perf_counter() - start)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


def end_with_parent():
    """Ends this process with the benchmark. A killed benchmark cannot let its stopped processes go on."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def serve(rank, path, commands):
    end_with_parent()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=RANKS)
    operands = {}
    with torch.inference_mode():
        for command in commands():
            box = [command]
            dist.broadcast_object_list(box, 0)
            command = box[0]
            if command is None:
                return
            if command["command"] == "prepare":
                torch.manual_seed(rank)
                operands = tensors(command, DTYPES[command["dtype"]])
                reply = {}
            else:
                reply = {"seconds": timed(command, operands)}
            if rank == 0:
                print(json.dumps(reply), flush=True)


def from_input():
    for line in sys.stdin:
        yield json.loads(line)
    yield None


def forever():
    while True:
        yield None


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "meeting")
        peer = multiprocessing.get_context("spawn").Process(target=serve, args=(1, path, forever), daemon=True)
        peer.start()
        print(json.dumps({"version": torch.__version__}), flush=True)
        serve(0, path, from_input)
        peer.join()


if __name__ == "__main__":
    main()
