#!/usr/bin/env python3
# tools/python/export_graph.py -- a PyTorch model as a graph for `seqtile plan` (docs/plan_format.md).
# SPDX-License-Identifier: Apache-2.0
"""export_graph.py MODULE:FUNCTION --input x=128x3x32x32 [--input ids=8x1024:int64] [--arg num_classes=10]
[--mesh 2x2] [-o FILE.json[.gz]]

FUNCTION, called with the arguments, returns the nn.Module. It is traced by torch.fx and its shapes are found on PyTorch's
"meta" device: no weight is made and nothing is computed. Linear layers become a weight, a bias, a product and a sum, so
that each of them can be cut. For example: export_graph.py torchvision.models:resnet152 --input x=128x3x32x32 --arg num_classes=10
"""
import argparse
import ast
import gzip
import importlib
import json
import operator
import os
import sys

# Cheap enough to take the layout that their first input leaves.
MERGED_MODULES = {"ReLU", "Flatten"}
MERGED_TARGETS = {"flatten", "view", "reshape", "permute", "transpose", "split", "chunk", "getitem", "softmax", "type", "to",
                  "contiguous", "relu", "unsqueeze", "squeeze"}


def named(text, what):
    name, equals, value = text.partition("=")
    if not equals or not name:
        sys.exit(f"export_graph: {what} {text}: NAME=VALUE is wanted")
    return name, value


def tensor_of(torch, text):
    shape, _, dtype = text.partition(":")
    try:
        sizes = [int(size) for size in shape.split("x")]
        return torch.empty(sizes, dtype=getattr(torch, dtype or "float32"), device="meta")
    except (ValueError, AttributeError, TypeError):
        sys.exit(f"export_graph: --input {text}: sizes with x between them, then : and a dtype of torch, as in 8x1024:int64")


def load_model(torch, factory, arguments):
    module, colon, function = factory.partition(":")
    if not colon:
        sys.exit(f"export_graph: {factory}: MODULE:FUNCTION is wanted, as in torchvision.models:resnet50")
    sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        sys.exit(f"export_graph: {factory}: {error}")
    values = {}
    for name, value in arguments:
        try:
            values[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            values[name] = value
    try:
        with torch.device("meta"):
            return make(**values)
    except TypeError as error:
        sys.exit(f"export_graph: {factory}: {error}; give its arguments with --arg NAME=VALUE")


def split_linears(torch, traced):
    """Each linear module as weight, bias, product and sum."""
    modules = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        if node.op != "call_module" or not isinstance(modules[node.target], torch.nn.Linear):
            continue
        with traced.graph.inserting_before(node):
            bias = traced.graph.get_attr(node.target + ".bias") if modules[node.target].bias is not None else None
            weight = traced.graph.get_attr(node.target + ".weight")
            result = traced.graph.call_function(torch._C._nn.linear, (node.args[0], weight))
            if bias is not None:
                result = traced.graph.call_function(operator.add, (result, bias))
        node.replace_all_uses_with(result)
        traced.graph.erase_node(node)
    traced.recompile()


def type_of(meta):
    if hasattr(meta, "shape") and hasattr(meta, "dtype"):
        return {"shape": list(meta.shape), "dtype": str(meta.dtype)}
    if isinstance(meta, (tuple, list)) and meta and all(hasattr(m, "shape") for m in meta):
        return [type_of(m) for m in meta]
    return None


def target_of(node):
    if isinstance(node.target, str):
        return node.target
    module = getattr(node.target, "__module__", "") or "torch"
    return f"{module}.{node.target.__name__}"


def nodes_of(traced):
    modules = dict(traced.named_modules())
    for node in traced.graph.nodes:
        out = None if node.op == "output" else type_of(node.meta.get("tensor_meta"))
        if out is None and node.op != "output":
            continue  # sizes and other numbers
        row = {"name": node.name, "op": node.op, "target": target_of(node),
               "inputs": [n.name for n in node.all_input_nodes if type_of(n.meta.get("tensor_meta")) is not None],
               "out": out, "merge": False, "args": [str(argument) for argument in node.args]}
        if node.op == "call_module":
            module = modules[node.target]
            row["module"] = type(module).__name__
            row["params"] = {name: list(value.shape) for name, value in module.named_parameters(recurse=False)}
            row["repr"] = repr(module)
        name = row.get("module") or row["target"].rsplit(".", 1)[-1]
        row["merge"] = bool(row["inputs"]) and name in (MERGED_MODULES if "module" in row else MERGED_TARGETS)
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("factory", metavar="MODULE:FUNCTION")
    parser.add_argument("--input", action="append", required=True, metavar="NAME=SIZES[:DTYPE]")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--mesh", default="2x2", help="devices of each axis, as in 2x4 (default: 2x2)")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="ends in .gz: compressed; -: standard output")
    options = parser.parse_args()
    try:
        import torch
        from torch.fx import symbolic_trace
        from torch.fx.passes.shape_prop import ShapeProp
    except ImportError as error:
        sys.exit(f"export_graph: {error}; install PyTorch: python3 -m venv v; v/bin/pip install torch")
    try:
        mesh = [int(size) for size in options.mesh.split("x")]
    except ValueError:
        sys.exit(f"export_graph: --mesh {options.mesh}: sizes with x between them, as in 2x4")
    inputs = dict(named(text, "--input") for text in options.input)
    model = load_model(torch, options.factory, [named(text, "--arg") for text in options.arg])
    try:
        traced = symbolic_trace(model)
    except (torch.fx.proxy.TraceError, TypeError) as error:
        sys.exit(f"export_graph: {options.factory}: torch.fx cannot trace it: {str(error).splitlines()[0]}")
    split_linears(torch, traced)
    wanted = [node.target for node in traced.graph.nodes if node.op == "placeholder"]
    if set(wanted) != set(inputs):
        sys.exit(f"export_graph: the model takes {', '.join(wanted)}; --input gives {', '.join(inputs)}")
    ShapeProp(traced).propagate(*[tensor_of(torch, inputs[name]) for name in wanted])
    graph = {"meta": {"mesh": mesh, "alpha": [1] * len(mesh), "beta": [1] * len(mesh), "model": options.factory,
                      "torch": torch.__version__},
             "nodes": list(nodes_of(traced))}
    text = json.dumps(graph, separators=(",", ":")) + "\n"
    if options.output == "-":
        sys.stdout.write(text)
    elif options.output.endswith(".gz"):
        with open(options.output, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            packed.write(text.encode())
    else:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
