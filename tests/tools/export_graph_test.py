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
class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
def nothing():
    return 7
def fails():
    raise KeyError
constant = 7
"""
BROKEN = """raise RuntimeError("not\\x1b[31m today\\nnor tomorrow")"""
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
        with open(self.folder + "/broken.py", "w", encoding="utf-8") as file:
            file.write(BROKEN)

    def assert_refused(self, arguments, text, code=2):
        done = self.export(*arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(text, done.stderr)
        self.assertRegex(done.stderr, "^export_graph: [^\n\x1b]+\n$")

    def test_bad_arguments_are_told_before_anything_is_loaded(self):
        for shape in "0x32", "", "8x", "x8", "-1", "8x-1", "8.5", "2*2", "1x1x1x1x1x1x1x1x1", "2000000x2000000", "9" * 5000:
            self.assert_refused(["model:tiny", "--input", "x=" + shape], f"--input x={shape}: {shape or 'nothing'} is no shape")
        for mesh in "0x2", "", "2x", "2x2x2x2", "1048577", "two":
            self.assert_refused(["model:tiny", "--input", "x=1", "--mesh", mesh], f"--mesh {mesh}: 1 to 3 sizes from 1")
        for arguments, text in [(["--input", "x"], "--input x: NAME=VALUE is wanted"),
                                (["--input", "x=1", "--input", "x=2"], "--input x=2: x is given twice"),
                                (["--input", "x=1", "--arg", "width"], "--arg width: NAME=VALUE is wanted")]:
            self.assert_refused(["model:tiny", *arguments], text)

    def test_a_file_that_cannot_be_written_is_told_before_anything_is_loaded(self):
        for path, why in ("none/g.json", "there is no folder none"), (".", "is a folder"), ("model.py/g", "there is no folder model.py"):
            self.assert_refused(["broken:none", "--input", "x=1", "-o", path], f"--output {path}: cannot be written: {why}; check the folder", 3)
        self.assertFalse(os.path.exists(self.folder + "/none"))

    @unittest.skipUnless(HAS_TORCH, "no PyTorch")
    def test_what_is_no_model_is_one_line(self):
        for arguments, text in [
                (["model"], "model: MODULE:FUNCTION is wanted"), ([":tiny"], "MODULE:FUNCTION"), (["model:"], "MODULE:FUNCTION"),
                (["absent:tiny"], "module absent cannot be imported: ModuleNotFoundError"),
                (["broken:tiny"], "module broken cannot be imported: RuntimeError: not"),
                (["model:none"], "module model has no function none"), (["model:constant"], "no function constant"),
                (["model:tiny"], "no model comes of it: TypeError"), (["model:fails"], "no model comes of it: KeyError"),
                (["model:tiny", "--arg", "width=0.5"], "no model comes of it: ValueError"),
                (["model:nothing"], "gives int, an nn.Module is wanted"),
                (["model:Branches"], "torch.fx cannot trace it: TraceError"),
                (["model:tiny", "--arg", "width=8"], "shapes cannot be found at node conv: "),
                (["model:tiny", "--arg", "width=8", "--input", "y=3"], "the model takes x; --input gives y, x")]:
            self.assert_refused([*arguments, "--input", "x=16x3x8x8"], text)
        for dtype in "float31", "nn", "Tensor":
            self.assert_refused(["model:tiny", "--input", "x=1:" + dtype], f"--input x=1:{dtype}: {dtype} is no dtype of torch")

    @unittest.skipIf(HAS_TORCH, "PyTorch is there")
    def test_no_pytorch_is_one_line(self):
        self.assert_refused(["model:tiny", "--input", "x=1"], "install PyTorch", 3)

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
