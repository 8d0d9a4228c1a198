# bench/peers/torch_peer.py -- runs PyTorch operations on command: one JSON line in, one out.
# SPDX-License-Identifier: Apache-2.0
"""The child process of bench/peers/torch.cpp. Each command is a method of Peer."""
import ctypes
import json
import signal
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def attention(sizes):
    """Causal prefill of one sequence. Operands are [length, heads, head_dim], as in our operation."""
    grouped = sizes["heads"] != sizes["kv_heads"]

    def call(q, k, v):
        q, k, v = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return out.squeeze(0).transpose(0, 1)

    return call


def operations(sizes):
    """PyTorch's form of our operations. Each takes the inputs in the order in which they are sent."""
    return {
        "linear": lambda x, w: F.linear(x, w),
        "attention_forward": attention(sizes) if "heads" in sizes else None,
        "rms_norm": lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6),
        "softmax": lambda x: F.softmax(x, -1),
        "act_and_mul": lambda x: F.silu(x[:, : x.shape[1] // 2]) * x[:, x.shape[1] // 2 :],
    }


def read_operand(path, sizes, dtype):
    count = 1
    for size in sizes:
        count *= size
    return torch.from_file(path, shared=False, size=count, dtype=dtype).clone().reshape(sizes)


class Peer:
    def __init__(self):
        self.call, self.copies, self.output = None, [], None

    def prepare(self, command):
        torch.set_num_threads(command["threads"])
        dtype = DTYPES[command["dtype"]]
        first = [read_operand(i["path"], i["sizes"], dtype) for i in command["inputs"]]
        self.copies = [first] + [[t.clone() for t in first] for _ in range(command["copies"] - 1)]
        self.call = operations(command["sizes"])[command["operation"]]
        return {}

    def run(self, command):
        seconds = []
        with torch.inference_mode():
            for i in range(command["calls"]):
                operands = self.copies[(command["first"] + i) % command["copies"]]
                start = time.perf_counter()
                self.output = self.call(*operands)
                seconds.append(time.perf_counter() - start)
        return {"seconds": seconds}

    def fetch(self, command):
        dense = self.output.contiguous().flatten()
        torch.from_file(command["path"], shared=True, size=dense.numel(), dtype=dense.dtype).copy_(dense)
        return {}

    def release(self, command):
        self.__init__()
        return {}


def answer(reply):
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


def end_with_parent():
    """Ends this process with the benchmark. A killed benchmark cannot let its stopped child go on."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main():
    end_with_parent()
    peer = Peer()
    answer({"version": "PyTorch " + torch.__version__})
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer(getattr(peer, command["command"])(command))
        except Exception as error:  # the harness prints it beside the case
            answer({"error": f"{type(error).__name__}: {error}"})


main()
