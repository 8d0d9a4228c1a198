#!/usr/bin/env python3
# tests/layers_test.py -- fails on an include that goes up: layers_test.py ROOT
# SPDX-License-Identifier: Apache-2.0
#
# jit <- cache <- autotune <- {kernels, planner} <- {models, c_api} <- everything else. Each layer has rooms, and a room includes
# only the rooms that ROOMS names for it. LLVM stays in jit/codegen and the spine, SQLite behind
# cache/database/sqlite.h. Public headers lie in include/seqtile; PUBLIC names the room of each.
import os
import re
import sys
import unittest

BELOW = {"jit": [], "cache": ["jit"], "autotune": ["jit", "cache"], "kernels": ["jit", "cache", "autotune"],
         "planner": ["jit", "cache", "autotune"], "models": ["jit", "cache", "autotune", "kernels", "planner"],
         "c_api": ["jit", "cache", "autotune", "kernels"]}
TOP = ["tools", "bench", "examples", "tests"]  # above every layer; the four do not include one another
# The room "" is a folder's own files. SPINES has the files that include every room, because they are the way through.
ROOMS = {
    "jit": {"base": [], "abi": ["base"], "ir": ["base"], "analysis": ["base", "ir"], "device": ["base", "abi"],
            "codegen": ["base", "abi", "ir", "analysis", "device"], "runtime": ["base", "abi", "device"],
            "ptx": ["base"], "sim": ["base", "abi", "ptx", "device"],
            "fabric": ["base", "abi", "device", "runtime"], "timeline": ["base", "abi", "fabric"]},
    "cache": {"": ["database"], "database": []},
    "autotune": {"": ["text"], "text": [], "engine": ["", "text"], "strategies": [""], "call": ["", "engine"],
                 "worker": ["", "call", "engine"], "tuning": ["", "call", "engine", "strategies", "worker"]},
    "kernels": {"op": [], "act": ["op"], "linear": ["op", "act"], "attention": ["op"], "norm": ["op", "act"],
                "rows": ["op", "act"]},
    "planner": {"graph": [], "prices": ["graph"], "strategies": ["graph", "prices"],
                "compat": ["graph", "prices", "strategies"], "solver": ["graph", "prices", "strategies", "compat"]},
    "models": {"file": [], "layers": ["file"]},
}
PUBLIC = {"error.h": "jit/base", "tensor.h": "jit/base", "target.h": "jit/device", "device.h": "jit/device",
          "ir.h": "jit/ir", "ops.def": "jit/ir", "builder.h": "jit/ir", "compiler.h": "jit", "abi.h": "jit/abi",
          "fabric.h": "jit/fabric", "mpi_fabric.h": "jit/fabric", "stores.h": "cache", "op.h": "autotune",
          "engine.h": "autotune", "tuner.h": "autotune", "operation.h": "kernels/op", "kernel.h": "kernels/op",
          "ops/rows.h": "kernels/act", "ops/linear.h": "kernels/linear", "ops/attention.h": "kernels/attention",
          "ops/ranks.h": "kernels/seqpar", "ops/collectives.h": "kernels/seqpar", "seqpar.h": "kernels/seqpar", "operations.h": "kernels",
          "model.h": "models/file"}
SPINES = {"jit/compiler.cpp", "jit/simulation.h", "jit/simulation.cpp", "jit/device/device.cpp",
          "jit/device/device_profile.cpp", "jit/fabric/transport/cuda_fabric.cpp", "autotune/engine.cpp",
          "autotune/tuner.cpp", "kernels/registry.cpp"}
MOST_PUBLIC = 25
FOREIGN = [("llvm/", ("jit/codegen/", "jit/compiler.cpp", "tests/support/ptx/llvm_kernel.cpp")),
           ("sqlite3.h", ("cache/database/sqlite", "tests/")), ("CLI/", ("tools/cli/", "bench/"))]
MOST_FILES = 25  # most files of a folder, without data of golden tests
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def room(parts):
    return parts[1] if len(parts) > 2 else ""


def home(name):
    """The path that a public header would have in its room: seqtile/op.h lies in autotune."""
    public = name.removeprefix("include/").removeprefix("seqtile/")
    return f"{PUBLIC[public]}/{public.split('/')[-1]}" if public in PUBLIC else name


def problems_of(path, text):
    """The reasons why the includes of one file break the layering."""
    parts = home(path).split("/")
    top = parts[0]
    for name in INCLUDE.findall(text):
        target = home(name).split("/")
        if path.startswith("include/") and '"' + name + '"' in text and not name.startswith("seqtile/"):
            yield f"{path}: {name} is not public"
        if path.startswith("include/seqtile/") and f"<{name}>" in text and ("." in name or "/" in name):
            yield f"{path}: {name} is no standard header"
        if top in BELOW and target[0] in [*BELOW, *TOP] and target[0] not in [top, *BELOW[top]]:
            yield f"{path}: {top} includes {name}"
        is_free = path in SPINES or path.startswith("include/")  # public headers keep to layers alone
        if top in ROOMS and target[0] == top and not is_free and room(target) != room(parts):
            seen = ROOMS[top].get(room(parts))
            if seen is not None and room(target) not in seen:
                yield f"{path}: {top}/{room(parts)} includes {name}"
        for prefix, homes in FOREIGN:
            if name.startswith(prefix) and not path.startswith(homes):
                yield f"{path}: {name} belongs to {', '.join(homes)}"


def sources(root):
    for top in ["include", *BELOW, *TOP]:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith((".h", ".cpp", ".def")):
                    yield os.path.relpath(os.path.join(folder, name), root)


class Layers(unittest.TestCase):
    root = "."

    def test_no_include_goes_up(self):
        found = []
        for path in sources(self.root):
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                found += problems_of(path, file.read())
        self.assertEqual(found, [])

    def test_no_folder_is_crowded(self):
        for top in [*BELOW, *TOP]:
            for folder, _, names in os.walk(os.path.join(self.root, top)):
                if "/golden" not in folder and "__pycache__" not in folder:
                    self.assertLessEqual(len(names), MOST_FILES, folder)

    def test_the_second_line_is_the_license(self):
        for path in sources(self.root):
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                head = [file.readline() for _ in range(4)]
            self.assertIn("// SPDX-License-Identifier: Apache-2.0\n", head, path)

    def test_public_headers_are_few_and_have_rooms(self):
        public = {path.removeprefix("include/seqtile/") for path in sources(self.root) if path.startswith("include/")}
        public.remove("include/seqtile.h")  # the C interface
        self.assertEqual(public, set(PUBLIC))
        self.assertLessEqual(len(public), MOST_PUBLIC)

    def test_operations_of_the_registry_are_public(self):
        with open(os.path.join(self.root, "kernels/registry.cpp"), encoding="utf-8") as file:
            included = {name for name in INCLUDE.findall(file.read()) if name.startswith("kernels/")}
        self.assertEqual(included, set())

    def test_upward_includes_are_seen(self):
        for path, include in [("include/seqtile/device.h", "seqtile/stores.h"), ("cache/a.cpp", "seqtile/engine.h"),
                              ("include/seqtile/op.h", "autotune/engine/launch.h"),
                              ("autotune/tuner.cpp", "seqtile/ops/linear.h"), ("autotune/tuner.cpp", "sqlite3.h"),
                              ("kernels/linear/linear.cpp", "tools/cli/options.h"),
                              ("kernels/rows/rope.cpp", "seqtile/model.h"), ("jit/base/hash.cpp", "seqtile/ir.h"),
                              ("jit/ir/types.cpp", "jit/codegen/cpu/object.h"),
                              ("jit/runtime/cpu/loader.cpp", "llvm/IR/Module.h")]:
            with self.subTest(path=path, include=include):
                self.assertTrue(list(problems_of(path, f'#include "{include}"\n')))

    def test_downward_includes_are_allowed(self):
        for path, include in [("tools/cli/main.cpp", "seqtile/operations.h"), ("jit/compiler.cpp", "llvm/IR/Module.h"),
                              ("jit/codegen/cpu/lowering.cpp", "seqtile/ir.h"), ("cache/database/sqlite.h", "sqlite3.h")]:
            with self.subTest(path=path, include=include):
                self.assertEqual(list(problems_of(path, f'#include "{include}"\n')), [])


if __name__ == "__main__":
    Layers.root = os.path.abspath(sys.argv.pop(1))
    unittest.main()
