#!/usr/bin/env python3
# tools/python/export_graph.py -- exports a PyTorch model as a graph for `seqtile plan` (docs/plan_format.md).
# SPDX-License-Identifier: Apache-2.0
"""export_graph.py MODULE:FUNCTION --input x=128x3x32x32 [--input ids=8x1024:int64] [--value use_cache=False]
[--arg num_classes=10] [--mesh 2x2] [--tracer export|fx] [-o FILE.json[.gz]]

FUNCTION, called with the arguments of --arg, returns the nn.Module. The forward pass is called with the tensors of
--input and the values of --value (numbers, texts and so on), by name; other arguments keep their defaults. The call is
traced by torch.export, or by torch.fx, on PyTorch's "meta" device: no weight is made and nothing is computed. Example:
export_graph.py torchvision.models:resnet152 --input x=128x3x32x32 --arg num_classes=10
Exit codes: 0 done; 2 bad input or a model that cannot be traced; 3 the machine (no PyTorch, no place for the file).
"""

import argparse
import gzip
import io
import json
import os
import re
import sys

from graph_export import model, options as given, refusal
from graph_export.refusal import MACHINE, stop

FORMAT_VERSION = 2  # docs/plan_format.md
TRACERS = ["export", "fx"]
SEE_HELP = "see `export_graph.py --help`"


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
        given.refuse_output(path, error.strerror)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        """Says an error of the command line in this program's words. argparse says "argument --mesh: expected one
        argument"."""
        found = re.fullmatch("argument ([^:]*): expected .* argument", message)
        name = found[1].rpartition("/")[2] if found else ""
        stop(f"{name} has no value; write {name} VALUE; {SEE_HELP}" if found else f"{message}; {SEE_HELP}")


def parsed():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("factory", metavar="MODULE:FUNCTION", nargs="?")
    parser.add_argument(
        "--input", action="append", metavar="NAME=SIZES[:DTYPE]", help="a tensor of the forward pass; must be given"
    )
    parser.add_argument(
        "--value", action="append", default=[], metavar="NAME=VALUE", help="another argument of the forward pass"
    )
    parser.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="an argument of FUNCTION")
    parser.add_argument("--mesh", default="2x2", help="devices of each axis, as in 2x4 (default: 2x2)")
    parser.add_argument(
        "--tracer",
        metavar="NAME",
        help="export: operators, such as attention; fx: modules (default: export, or fx if export fails)",
    )
    parser.add_argument(
        "-o", "--output", default="-", metavar="FILE", help="ends in .gz: compressed; -: standard output"
    )
    options, unknown = parser.parse_known_args()
    if unknown:
        names = ["--input", "--value", "--arg", "--mesh", "--tracer", "--output", "--help"]
        stop(f"{given.unknown_word(unknown[0], names)}; {SEE_HELP}")
    if options.factory is None:
        stop(f"MODULE:FUNCTION is missing, as in torchvision.models:resnet50; {SEE_HELP}")
    if options.input is None:
        stop(f"--input is missing: give each tensor of the forward pass, as in --input x=128x3x32x32; {SEE_HELP}")
    if options.tracer not in (None, *TRACERS):
        hint = given.did_you_mean(options.tracer, TRACERS)
        stop(f"--tracer {options.tracer}: unknown; give {' or '.join(TRACERS)}{hint}")
    return options


def import_torch():
    try:
        with refusal.quiet():
            import torch
            import torch.export
            import torch.fx
    except (ImportError, OSError) as error:  # OSError: PyTorch lacks a library
        stop(f"{error}; install PyTorch 2.6 or later: python3 -m venv v; v/bin/pip install torch", MACHINE)
    return torch


def main():
    options = parsed()
    mesh, inputs = given.mesh_of(options.mesh), given.named(options.input, "--input")
    shapes = given.shapes_of(inputs)
    arguments, values = given.literals(options.arg, "--arg"), given.literals(options.value, "--value")
    if options.output != "-":
        given.check_can_write(options.output)
    torch = import_torch()
    from graph_export import rows, trace  # both modules need PyTorch

    tensors = {name: given.tensor_of(torch, name, inputs[name], shape) for name, shape in shapes.items()}
    module = model.load_model(torch, options.factory, arguments)
    by_place = model.check_arguments(options.factory, module, tensors, values)
    call = model.call_of(torch, module, list(tensors), values, by_place)
    traced = trace.trace(torch, options.factory, call, tensors, options.tracer)
    try:
        nodes = rows.Rows(torch, options.factory, traced, module).all_rows()
    except refusal.Refused as error:
        stop(f"{options.factory}: {error}")
    graph = {
        "meta": {
            "version": FORMAT_VERSION,
            "mesh": mesh,
            "alpha": [1] * len(mesh),
            "beta": [1] * len(mesh),
            "model": options.factory,
            "torch": torch.__version__,
            "tracer": traced.tracer,
        },
        "nodes": nodes,
    }
    write(options.output, json.dumps(graph, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
