#!/usr/bin/env python3
# tests/layers_test.py -- fails on an include that goes up, or that is not installed: layers_test.py ROOT
# SPDX-License-Identifier: Apache-2.0
#
# jit <- cache <- autotune <- kernels <- models <- everything else; inside jit base <- ir <- {passes, codegen},
# base <- {runtime, sim} <- fabric. LLVM stays in jit/codegen and the spine, SQLite behind cache/sqlite.h.
import os
import re
import sys
import unittest

LAYERS = ["jit", "cache", "autotune", "kernels", "models", "tools"]
TOP = ["tools", "bench", "examples", "tests"]  # above every layer; they do not include one another
INNER = {"base": {"base"}, "ir": {"base", "ir"}, "passes": {"base", "ir", "passes"},
         "codegen": {"base", "ir", "codegen"}, "runtime": {"base", "runtime"}, "sim": {"base", "sim"},
         "fabric": {"base", "ir", "runtime", "sim", "fabric"}}
FOREIGN = [("llvm/", ("jit/codegen/", "jit/compiler.cpp", "tests/support/llvm_kernel.cpp")), ("sqlite3.h", ("cache/sqlite", "tests/")),
           ("CLI/", ("tools/cli/", "bench/"))]
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def problems_of(path, text):
    """The reasons why the includes of one file break the layering."""
    parts = path.split("/")
    top = parts[0]
    for name in INCLUDE.findall(text):
        target = name.split("/")
        if top in LAYERS[:-1] and target[0] in LAYERS + TOP:
            if target[0] not in LAYERS or LAYERS.index(target[0]) > LAYERS.index(top):
                yield f"{path}: {top} includes {name}"
        if top == "jit" and target[0] == "jit" and len(parts) > 2 and len(target) > 2 and parts[1] in INNER:
            if target[1] in INNER and target[1] not in INNER[parts[1]]:
                yield f"{path}: jit/{parts[1]} includes {name}"
        for prefix, homes in FOREIGN:
            if name.startswith(prefix) and not path.startswith(homes):
                yield f"{path}: {name} belongs to {', '.join(homes)}"


def sources(root):
    for top in dict.fromkeys(LAYERS + TOP):
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

    def test_the_second_line_is_the_license(self):
        for path in sources(self.root):
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                head = [file.readline() for _ in range(4)]
            self.assertIn("// SPDX-License-Identifier: Apache-2.0\n", head, path)

    def test_installed_headers_include_installed_headers(self):
        with open(os.path.join(self.root, "cmake/install.cmake"), encoding="utf-8") as file:
            text = file.read()
        listed = text[text.index("set(seqtile_public_headers"):]
        installed = set(listed[:listed.index(")")].split()[1:])
        self.assertGreater(len(installed), 40)
        missing = set()
        for path in installed:
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                missing |= {(path, name) for name in INCLUDE.findall(file.read())
                            if os.path.exists(os.path.join(self.root, name)) and name not in installed}
        self.assertEqual(missing, set())

    def test_upward_includes_are_seen(self):
        for path, include in [("jit/device.h", "cache/tuning_store.h"), ("cache/a.cpp", "autotune/engine.h"),
                              ("autotune/tuner.cpp", "kernels/linear.h"), ("autotune/tuner.cpp", "sqlite3.h"),
                              ("kernels/linear.cpp", "tools/cli/options.h"), ("kernels/rope.cpp", "models/model.h"),
                              ("jit/base/hash.cpp", "jit/ir/function.h"),
                              ("jit/ir/types.cpp", "jit/codegen/cpu/object.h"),
                              ("jit/runtime/cpu/loader.cpp", "llvm/IR/Module.h")]:
            with self.subTest(path=path, include=include):
                self.assertTrue(list(problems_of(path, f'#include "{include}"\n')))

    def test_downward_includes_are_allowed(self):
        for path, include in [("tools/cli/main.cpp", "kernels/registry.h"), ("jit/compiler.cpp", "llvm/IR/Module.h"),
                              ("jit/codegen/cpu/lowering.cpp", "jit/ir/function.h"), ("cache/sqlite.h", "sqlite3.h")]:
            with self.subTest(path=path, include=include):
                self.assertEqual(list(problems_of(path, f'#include "{include}"\n')), [])


if __name__ == "__main__":
    Layers.root = os.path.abspath(sys.argv.pop(1))
    unittest.main()
