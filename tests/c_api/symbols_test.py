#!/usr/bin/env python3
# tests/c_api/symbols_test.py -- compares the library's symbols with the C header: symbols_test.py ROOT NM LIBRARY
# SPDX-License-Identifier: Apache-2.0
import re
import subprocess
import sys
import unittest


class Symbols(unittest.TestCase):
    root, nm, library = "", "", ""

    def exported(self):
        """Names of the defined dynamic symbols, by their versions."""
        command = [self.nm, "--dynamic", "--defined-only", "--with-symbol-versions", self.library]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        return [re.split("@+", line.split()[-1] + "@")[:2] for line in lines]

    def test_exactly_the_functions_of_the_header_have_the_version(self):
        with open(self.root + "/include/seqtile.h", encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        declared = set(re.findall(r"\b(seqtile_\w+)\(", text))
        self.assertGreater(len(declared), 25)
        versioned = {name for name, version in self.exported() if version == "SEQTILE_0" and name != "SEQTILE_0"}
        of_tvm_ffi = {name for name in versioned if name.startswith("__tvm_ffi_")}
        self.assertEqual(versioned - of_tvm_ffi, declared)
        # By the convention of tvm-ffi all but what it has itself: references, errors, texts, versions.
        its_own = {name for name in declared if name.endswith("_retain")}
        for name in ("version", "abi_version", "status_name", "last_error", "text_free", "set_log"):
            its_own.add("seqtile_" + name)
        self.assertEqual({name.removeprefix("__tvm_ffi_") for name in of_tvm_ffi}, declared - its_own)

    def test_nothing_inside_the_interface_and_nothing_of_llvm_is_exported(self):
        names = [name for name, _ in self.exported()]
        self.assertEqual([name for name in names if "c_api" in name], [])
        readelf = subprocess.run(["readelf", "--dynamic", self.library], capture_output=True, text=True, check=True)
        if "libLLVM" not in readelf.stdout:  # where LLVM is a library of its own, both must have the same objects
            self.assertEqual([name for name in names if name.startswith("LLVM") or "4llvm" in name], [])


if __name__ == "__main__":
    Symbols.library, Symbols.nm, Symbols.root = sys.argv.pop(), sys.argv.pop(), sys.argv.pop()
    unittest.main()
