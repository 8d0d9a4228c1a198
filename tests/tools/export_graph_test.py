#!/usr/bin/env python3
# tests/tools/export_graph_test.py -- tools/python/export_graph.py: export_graph_test.py ROOT PROGRAM. Without PyTorch only
# what it says then is looked at.
# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

MODEL = """
from torch import nn
class Tiny(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm, self.act, self.fc = nn.Conv2d(8, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.Linear(width, 4)
    def forward(self, x):
        return self.fc(self.act(self.norm(self.conv(x))).mean((2, 3)))
def tiny(width):
    return Tiny(width)
"""
HAS_TORCH = importlib.util.find_spec("torch") is not None


class ExportGraph(unittest.TestCase):
    root = program = "."

    def export(self, *arguments):
        return subprocess.run([sys.executable, self.root + "/tools/python/export_graph.py", *arguments], cwd=self.folder,
                              capture_output=True, text=True, timeout=120)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="seqtile_export_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(self.folder + "/model.py", "w", encoding="utf-8") as file:
            file.write(MODEL)

    def test_bad_arguments_are_one_line(self):
        for arguments, text in [(["model:tiny", "--input", "x"], "NAME=VALUE" if HAS_TORCH else "install PyTorch"),
                                (["model", "--input", "x=1"], "MODULE:FUNCTION" if HAS_TORCH else "install PyTorch"),
                                (["model:none", "--input", "x=1"], "none" if HAS_TORCH else "install PyTorch")]:
            done = self.export(*arguments)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(text, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_an_exported_model_is_planned(self):
        done = self.export("model:tiny", "--input", "x=16x8x8x8", "--arg", "width=8", "-o", "tiny.json.gz")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = subprocess.run([self.program, "plan", "graph", "tiny.json.gz"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(plan.returncode, 0, plan.stdout + plan.stderr)
        self.assertRegex(plan.stdout, r"(?m)^fc_weight ")
        self.assertIn("no way to cut them is known: mean", plan.stdout)


if __name__ == "__main__":
    ExportGraph.root, ExportGraph.program = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
