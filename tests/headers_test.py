#!/usr/bin/env python3
# tests/headers_test.py -- checks that each header compiles alone: headers_test.py ROOT COMPILER [INCLUDE_FOLDER...]
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import os
import subprocess
import sys
import unittest

TOPS = ["include", "jit", "cache", "autotune", "kernels", "planner", "models", "c_api", "tools", "bench"]


def is_first_in_its_source(root, header):
    """True if a source of the same name begins with the header: compiling that source is the same check."""
    source = os.path.join(root, header[:-2] + ".cpp")
    if not os.path.exists(source):
        return False
    with open(source, encoding="utf-8") as file:
        first = next((line for line in file if line.startswith("#include")), "")
    return first.strip() == f'#include "{header}"'


def headers(root):
    for top in TOPS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                header = os.path.relpath(os.path.join(folder, name), root)
                if name.endswith(".h") and not is_first_in_its_source(root, header):
                    yield header


def compile_alone(root, compiler, folders, header):
    """The compiler's first lines if the header does not compile alone, else nothing."""
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
               "-Wno-missing-field-initializers", "-DFMT_HEADER_ONLY=1", "-I", root, "-I", os.path.join(root, "include")]
    for folder in folders:
        command += ["-isystem", folder]
    source = f'#include "{header.removeprefix("include/")}"\n'
    result = subprocess.run(command + ["-x", "c++", "-"], input=source, capture_output=True, text=True)
    return "" if result.returncode == 0 else "\n".join([header] + result.stderr.split("\n")[:5])


class Headers(unittest.TestCase):
    root, compiler, folders = ".", "c++", []

    def test_every_header_compiles_alone(self):
        found = list(headers(self.root))
        self.assertGreater(len(found), 20)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            problems = list(pool.map(lambda h: compile_alone(self.root, self.compiler, self.folders, h), found))
        self.assertEqual([p for p in problems if p], [])


if __name__ == "__main__":
    Headers.root, Headers.compiler, Headers.folders = os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:]
    unittest.main(argv=sys.argv[:1])
