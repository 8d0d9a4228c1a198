#!/usr/bin/env python3
# tests/tools/field_models_test.py -- models of the field in their full sizes, exported and planned: field_models_test.py
# ROOT PROGRAM [NAME...]. It prints the table of docs/planner.md.
# SPDX-License-Identifier: Apache-2.0
#
# It needs a Python with torch, torchvision, timm and transformers: this one, or the one that SEQTILE_TORCH_PYTHON names.
import gzip
import importlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))


def check(is_right, text):
    if not is_right:
        sys.exit(f"field_models_test: {text}")


def parameters_of(factory):
    """The number of elements of the module's own parameters."""
    import torch

    module, _, function = factory.partition(":")
    with torch.device("meta"):
        model = getattr(importlib.import_module(module), function)()
    return sum(parameter.numel() for parameter in model.parameters())


def export(root, name, case, folder):
    """The graph's file and the seconds that the export took."""
    factory, inputs, values = case
    path = os.path.join(folder, "graph.json.gz")
    command = [sys.executable, root + "/tools/python/export_graph.py", factory, "-o", path]
    command += [word for text in inputs for word in ("--input", text)] + [
        word for text in values for word in ("--value", text)
    ]
    start = time.monotonic()
    done = subprocess.run(
        command,
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    check(done.returncode == 0, f"{name}: {done.stderr.strip()}")
    return path, time.monotonic() - start


def plan(program, name, path, mesh):
    with gzip.open(path) as file:
        graph = json.load(file)
    graph["meta"].update(mesh=mesh, alpha=[1] * len(mesh), beta=[1] * len(mesh))
    with gzip.open(path, "wt") as file:
        json.dump(graph, file)
    answers = []
    for costs in "compat", "calibrated":
        done = subprocess.run(
            [program, "plan", "graph", path, "--costs", costs, "--json"], capture_output=True, text=True, check=False
        )
        check(done.returncode == 0, f"{name} on {mesh}: {done.stdout[-500:]}{done.stderr}")
        answers.append(json.loads(done.stdout.splitlines()[-1]))
    return answers


def run(root, program, name, case):
    wanted = parameters_of(case[0])
    with tempfile.TemporaryDirectory(prefix="seqtile_field_") as folder:
        path, seconds = export(root, name, case, folder)
        with gzip.open(path) as file:
            nodes = json.load(file)["nodes"]
        held = sum(math.prod(node["out"]["shape"]) for node in nodes if node.get("role") in ("parameter", "frozen"))
        check(held == wanted, f"{name}: {held} parameters in the graph, {wanted} in the module")
        times, graph = [], None
        for mesh in [2, 2], [8]:
            for answer in plan(program, name, path, mesh):
                graph = answer["graph"]
                check(graph["parameters"] == wanted, f"{name}: the plan counts {graph['parameters']} parameters")
                times.append(f"{answer['ms'] / 1e3:.2f}")
        print(
            f"| {name} | {wanted} | {held} | {len(nodes)} | {graph['unknown']} of {graph['operators']} | {seconds:.1f} | "
            f"{' | '.join(times)} |",
            flush=True,
        )


def main():
    root, program = (os.path.abspath(path) for path in sys.argv[1:3])
    python = os.environ.get("SEQTILE_TORCH_PYTHON")
    missing = [name for name in ("torch", "torchvision", "timm", "transformers") if importlib.util.find_spec(name) is None]
    if missing and python and not os.environ.get("SEQTILE_FIELD_AGAIN"):
        os.execve(python, [python, *sys.argv], {**os.environ, "SEQTILE_FIELD_AGAIN": "1"})
    if missing:
        print(
            f"field_models_test: no {', '.join(missing)}; name a Python that has them in SEQTILE_TORCH_PYTHON; nothing is tested"
        )
        sys.exit(77)  # ctest counts the test as skipped
    sys.path.insert(0, FOLDER)
    from field_models import MODELS

    print(
        "| model | parameters of the module | of the graph | nodes | unknown operators | export (s) | plan, 2x2: compat (s) | calibrated | 8: compat | calibrated |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in sys.argv[3:] or MODELS:
        run(root, program, name, MODELS[name])


if __name__ == "__main__":
    main()
