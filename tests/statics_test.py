#!/usr/bin/env python3
# tests/statics_test.py -- fails on a static that exit() destroys: statics_test.py NM BUILD
# SPDX-License-Identifier: Apache-2.0
#
# Threads may be inside the library while exit() destroys statics, and would then use destroyed objects. The compiler
# registers a destructor by __cxa_atexit, so no object file of the library may ask for it. See jit/base/forever.h.
import json
import os
import re
import subprocess
import sys
import unittest

FOLDERS = ["jit", "cache", "autotune", "kernels", "planner", "models", "c_api"]


def objects_of(build):
    """The object files of this build: files of an earlier configuration may lie beside them."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        for command in json.load(file):
            path = re.search(r" -o (\S+)", command["command"])[1]
            if path.split("/")[0] in FOLDERS and path.endswith(".o"):
                yield os.path.join(command["directory"], path)


class Statics(unittest.TestCase):
    nm, build = "", ""

    def test_no_static_has_a_destructor(self):
        objects = list(objects_of(self.build))
        self.assertEqual({os.path.relpath(path, self.build).split("/")[0] for path in objects}, set(FOLDERS))
        for path in objects:
            symbols = subprocess.run([self.nm, "--undefined-only", path], capture_output=True, text=True, check=True)
            self.assertNotIn("__cxa_atexit", symbols.stdout.split(), path + ": make its statics by forever()")


if __name__ == "__main__":
    Statics.build, Statics.nm = sys.argv.pop(), sys.argv.pop()
    unittest.main()
