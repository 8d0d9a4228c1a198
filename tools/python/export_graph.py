#!/usr/bin/env python3
# tools/python/export_graph.py -- a PyTorch model as a graph for `seqtile plan` (docs/plan_format.md).
# SPDX-License-Identifier: Apache-2.0
"""export_graph.py MODULE:FUNCTION --input x=128x3x32x32 [--input ids=8x1024:int64] [--arg num_classes=10]
[--mesh 2x2] [-o FILE.json[.gz]]

FUNCTION, called with the arguments, returns the nn.Module. It is traced by torch.fx and its shapes are found on PyTorch's
"meta" device: no weight is made and nothing is computed. Linear layers become a weight, a bias, a product and a sum, so
that each of them can be cut. For example: export_graph.py torchvision.models:resnet152 --input x=128x3x32x32 --arg num_classes=10
Exit codes: 0 done; 2 bad input, a model that cannot be traced among it; 3 the machine (no PyTorch, no place for the file).
"""
import argparse
import ast
import contextlib
import gzip
import importlib
import io
import json
import math
import operator
import os
import re
import sys

BAD_INPUT, MACHINE = 2, 3
# What a graph may have (docs/plan_format.md).
MOST_RANK, MOST_ELEMENTS, MOST_AXES, MOST_DEVICES = 8, 1 << 40, 3, 1 << 20

# Cheap enough to take the layout that their first input leaves.
MERGED_MODULES = {"ReLU", "Flatten"}
MERGED_TARGETS = {"flatten", "view", "reshape", "permute", "transpose", "split", "chunk", "getitem", "softmax", "type", "to",
                  "contiguous", "relu", "unsqueeze", "squeeze"}


def stop(text, code=BAD_INPUT):
    """One line without control characters, and the end."""
    line = "".join(character if character.isprintable() else " " for character in text)
    print("export_graph: " + line, file=sys.stderr)
    sys.exit(code)


def reason(error):
    """The first line of what went wrong in code that is not ours."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def named(texts, what):
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            stop(f"{what} {text}: NAME=VALUE is wanted")
        if name in values:
            stop(f"{what} {text}: {name} is given twice; give each name once")
        values[name] = value
    return values


def sizes_of(text, most_sizes, most_product):
    """[8, 1024] of "8x1024", None where that is no list of sizes or too large."""
    if not re.fullmatch("[0-9]{1,13}(x[0-9]{1,13})*", text, re.ASCII):
        return None
    sizes = [int(size) for size in text.split("x")]
    return sizes if len(sizes) <= most_sizes and 1 <= math.prod(sizes) <= most_product else None


def shapes_of(inputs):
    shapes = {}
    for name, text in inputs.items():
        shape = text.partition(":")[0]
        shapes[name] = sizes_of(shape, MOST_RANK, MOST_ELEMENTS)
        if shapes[name] is None:
            stop(f"--input {name}={text}: {shape or 'nothing'} is no shape; 1 to {MOST_RANK} sizes from 1 are wanted with x between "
                 "them, at most 2^40 elements in all, then : and a dtype of torch, as in 8x1024:int64")
    return shapes


def mesh_of(text):
    mesh = sizes_of(text, MOST_AXES, MOST_DEVICES)
    if mesh is None:
        stop(f"--mesh {text}: 1 to {MOST_AXES} sizes from 1 are wanted with x between them, as in 2x4, and at most "
             f"{MOST_DEVICES} devices in all")
    return mesh


def tensor_of(torch, name, text, shape):
    dtype = getattr(torch, text.partition(":")[2] or "float32", None)
    if not isinstance(dtype, torch.dtype):
        stop(f"--input {name}={text}: {text.partition(':')[2]} is no dtype of torch; float32, bfloat16, int64 are some")
    return torch.empty(shape, dtype=dtype, device="meta")


def check_can_write(path):
    """Before a model is loaded, which may take long."""
    folder = os.path.dirname(path) or "."
    why = ("is a folder" if os.path.isdir(path) else "" if os.path.exists(path) and os.access(path, os.W_OK) else
           f"there is no folder {folder}" if not os.path.isdir(folder) else
           "no permission" if os.path.exists(path) or not os.access(folder, os.W_OK | os.X_OK) else "")
    if why:
        refuse_output(path, why)


def refuse_output(path, why):
    stop(f"--output {path}: cannot be written: {why}; check the folder, its permissions and the free space, or name "
         "another file", MACHINE)


def load_factory(factory):
    module, _, function = factory.partition(":")
    if not module or not function:
        stop(f"{factory}: MODULE:FUNCTION is wanted, as in torchvision.models:resnet50")
    sys.path.insert(0, os.getcwd())
    try:
        make = getattr(importlib.import_module(module), function, None)
    except (Exception, SystemExit) as error:  # whatever the module does  # pylint: disable=broad-except
        stop(f"{factory}: module {module} cannot be imported: {reason(error)}; give one of this folder or an installed one")
    if not callable(make):
        stop(f"{factory}: module {module} has no function {function}; give one that returns the nn.Module")
    return make


def load_model(torch, factory, arguments):
    make = load_factory(factory)
    values = {}
    for name, value in arguments.items():
        try:
            values[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            values[name] = value
    try:
        with torch.device("meta"):
            model = make(**values)
    except (Exception, SystemExit) as error:  # pylint: disable=broad-except
        stop(f"{factory}: no model comes of it: {reason(error)}; give its arguments with --arg NAME=VALUE")
    if not isinstance(model, torch.nn.Module):
        stop(f"{factory}: gives {type(model).__name__}, an nn.Module is wanted")
    return model


def trace(torch, factory, model):
    try:
        return torch.fx.symbolic_trace(model)
    except Exception as error:  # of the model's code  # pylint: disable=broad-except
        stop(f"{factory}: torch.fx cannot trace it: {reason(error)}; export a model whose forward pass does not depend on "
             "values")
    return None


def find_shapes(factory, traced, tensors):
    from torch.fx.passes.shape_prop import ShapeProp
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # it prints a stack of calls
            ShapeProp(traced).propagate(*tensors)
    except Exception as error:  # of the model's code  # pylint: disable=broad-except
        node = re.search(r"node=%(\w+)", str(error))
        stop(f"{factory}: its shapes cannot be found{' at node ' + node[1] if node else ''}: {reason(error.__cause__ or error)}; "
             "check the sizes of --input")


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
    return f"{module}.{getattr(node.target, '__name__', type(node.target).__name__)}"


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


def write(path, text):
    data = text.encode()
    if path.endswith(".gz"):
        packed = io.BytesIO()
        with gzip.GzipFile("", "wb", 9, packed, mtime=0) as file:
            file.write(data)
        data = packed.getvalue()
    try:
        with os.fdopen(os.dup(1), "wb") if path == "-" else open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        refuse_output(path, error.strerror)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("factory", metavar="MODULE:FUNCTION")
    parser.add_argument("--input", action="append", required=True, metavar="NAME=SIZES[:DTYPE]")
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--mesh", default="2x2", help="devices of each axis, as in 2x4 (default: 2x2)")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="ends in .gz: compressed; -: standard output")
    options = parser.parse_args()
    mesh, inputs, arguments = mesh_of(options.mesh), named(options.input, "--input"), named(options.arg, "--arg")
    shapes = shapes_of(inputs)
    if options.output != "-":
        check_can_write(options.output)
    try:
        import torch
        import torch.fx
    except (ImportError, OSError) as error:  # OSError: a library of it
        stop(f"{error}; install PyTorch: python3 -m venv v; v/bin/pip install torch", MACHINE)
    tensors = {name: tensor_of(torch, name, inputs[name], shape) for name, shape in shapes.items()}
    traced = trace(torch, options.factory, load_model(torch, options.factory, arguments))
    split_linears(torch, traced)
    wanted = [node.target for node in traced.graph.nodes if node.op == "placeholder"]
    if set(wanted) != set(inputs):
        stop(f"the model takes {', '.join(wanted) or 'nothing'}; --input gives {', '.join(inputs)}")
    find_shapes(options.factory, traced, [tensors[name] for name in wanted])
    graph = {"meta": {"mesh": mesh, "alpha": [1] * len(mesh), "beta": [1] * len(mesh), "model": options.factory,
                      "torch": torch.__version__},
             "nodes": list(nodes_of(traced))}
    text = json.dumps(graph, separators=(",", ":")) + "\n"
    write(options.output, text)


if __name__ == "__main__":
    main()
