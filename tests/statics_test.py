#!/usr/bin/env python3
# tests/statics_test.py -- fails on a static that exit() destroys: statics_test.py NM BUILD
# SPDX-License-Identifier: Apache-2.0
#
# Threads may be inside the library while exit() destroys statics, so that they would use what is gone. The compiler
# registers a destructor by __cxa_atexit: no object file of the library may ask for it. See jit/base/forever.h.
import os
import subprocess
import sys
import unittest

FOLDERS = ["jit", "cache", "autotune", "kernels", "models"]


def objects_of(build):
    for folder in FOLDERS:
        for place, _, names in os.walk(os.path.join(build, folder)):
            yield from (os.path.join(place, name) for name in sorted(names) if name.endswith(".o"))


class Statics(unittest.TestCase):
    nm, build = "", ""

    def test_no_static_has_a_destructor(self):
        objects = list(objects_of(self.build))
        self.assertGreater(len(objects), 100, "the library has not been built in " + self.build)
        for path in objects:
            symbols = subprocess.run([self.nm, "--undefined-only", path], capture_output=True, text=True, check=True)
            self.assertNotIn("__cxa_atexit", symbols.stdout.split(), path + ": make its statics by forever()")


if __name__ == "__main__":
    Statics.build, Statics.nm = sys.argv.pop(), sys.argv.pop()
    unittest.main()
