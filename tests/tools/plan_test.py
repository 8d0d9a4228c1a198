#!/usr/bin/env python3
# tests/tools/plan_test.py -- `seqtile plan`: models, forms of a plan, bad input: plan_test.py ROOT PROGRAM
# SPDX-License-Identifier: Apache-2.0
import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest

MODEL = {"model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu", "hidden_size": 128, "intermediate_size": 192,
         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 384,
         "max_position_embeddings": 96}
FLAGS = ["--model", "model.json", "--mesh", "2x2", "--length", "64"]
SMALL = {"meta": {"mesh": [2, 2], "alpha": [1, 1], "beta": [1, 1]},
         "nodes": [{"name": "x", "op": "placeholder", "inputs": [], "out": {"shape": [8, 4], "dtype": "torch.float32"}},
                   {"name": "y", "op": "call_function", "target": "relu", "inputs": ["x"], "args": ["x"],
                    "out": {"shape": [8, 4], "dtype": "torch.float32"}},
                   {"name": "out", "op": "output", "inputs": ["y"], "out": None}]}


class Plan(unittest.TestCase):
    root = program = "."

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="seqtile_plan_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("model.json", json.dumps(MODEL))

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def path(self, name):
        return os.path.join(self.folder, name)

    def plan(self, *arguments):
        return subprocess.run([self.program, "plan", *arguments], cwd=self.folder, capture_output=True, text=True, timeout=120)

    def good(self, *arguments):
        done = self.plan(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def answer(self, *arguments):
        return json.loads(self.good(*arguments, "--json").rstrip("\n").split("\n")[-1])

    def assert_line(self, done, pattern):
        """Exit code 2, one line that says what is wrong, and no plan."""
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertRegex(done.stderr, pattern)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertNotIn("objective", done.stdout)


class Model(Plan):
    def test_a_graph_that_is_written_has_the_plan_of_its_model(self):
        for phase in "training", "prefill":
            for name in "graph.json", "graph.json.gz":
                of_model = self.answer("model", *FLAGS, "--phase", phase, "-o", name)
                self.assertTrue(of_model["exact"])
                of_graph = self.answer("graph", name)
                for field in "objective", "memory", "plan":
                    self.assertEqual(of_model[field], of_graph[field])
            with gzip.open(self.path("graph.json.gz"), "rt") as file, open(self.path("graph.json"), encoding="utf-8") as plain:
                self.assertEqual(file.read(), plain.read())

    def test_operators_without_strategies_are_named(self):
        self.assertIn("no way to cut them is known: RMSNorm, rotary, attention, silu_and_mul", self.good("model", *FLAGS))

    def test_eighty_layers_are_planned(self):
        model = os.path.join(self.root, "examples/models/llama-3-70b.json")
        for mesh in "2x4", "2x2x2":
            found = self.answer("model", "--model", model, "--mesh", mesh, "--length", "4096")
            self.assertTrue(found["exact"])
            self.assertIn("model_layers_79_mlp_down_proj", found["plan"])
        few = self.answer("model", "--model", model, "--mesh", "2x4", "--length", "4096", "--layers", "2")
        self.assertNotIn("model_layers_2_mlp_down_proj", few["plan"])

    def test_bad_flags_are_one_line(self):
        for mesh in "2x", "x2", "0x4", "2x2x2x2", "4096x4096", "2*4", "-2":
            self.assert_line(self.plan("model", "--model", "model.json", "--mesh=" + mesh, "--length", "64"), "--mesh " + mesh[0])
        for flags, text in [(["--devices", "8"], "--devices 8: the mesh has 4"), (["--layers", "4"], r"layers 4 must be in 1\.\.3"),
                            (["--batch", "0"], "--batch"), (["--phase", "decode"], "--phase"),
                            (["--batch", str(1 << 40)], "at most 2\\^40")]:
            self.assert_line(self.plan("model", *FLAGS, *flags), text)
        self.assert_line(self.plan("model", "--model", "model.json", "--mesh", "2", "--length", "0"), "--length 0")
        self.assert_line(self.plan("model", "--model", "none.json", "--mesh", "2", "--length", "64"), "none.json")
        self.good("model", *FLAGS, "--devices", "4")


class BadInput(Plan):
    def refused(self, text, change, *flags):
        graph = json.loads(json.dumps(SMALL))
        change(graph)
        self.write("bad.json", json.dumps(graph))
        self.assert_line(self.plan("graph", "bad.json", *flags), text)

    def test_graphs_that_are_wrong(self):
        def node(index, **fields):
            return lambda graph: graph["nodes"][index].update(fields)
        self.refused("comes at or behind its consumer: a cycle", node(0, inputs=["y"]))
        self.refused('unknown field "colour"', node(1, colour="red"))
        self.refused('unknown field "more"', lambda graph: graph.update(more=1))
        self.refused("the shape of the result, is missing", lambda graph: graph["nodes"][1].pop("out"))
        self.refused('"shape" is missing', lambda graph: graph["nodes"][1]["out"].pop("shape"))
        self.refused("an empty graph", lambda graph: graph.update(nodes=[]))
        self.refused('there are no "nodes"', lambda graph: graph.pop("nodes"))
        self.refused('"meta" is missing', lambda graph: graph.pop("meta"))
        self.refused('4 devices in all, "devices" says 6', lambda graph: graph["meta"].update(devices=6))
        self.refused("--devices 6: the mesh has 4", lambda graph: None, "--devices", "6")
        self.good("graph", "bad.json", "--devices", "4")

    def test_files_that_are_cut(self):
        text = json.dumps(SMALL)
        for end in range(0, len(text) - 1, 7):
            self.write("cut.json", text[:end])
            self.assert_line(self.plan("graph", "cut.json"), "cut.json: no JSON")
        with gzip.open(self.path("whole.gz"), "wb") as file:
            file.write(text.encode())
        with open(self.path("whole.gz"), "rb") as file, open(self.path("cut.gz"), "wb") as cut:
            cut.write(file.read()[:-20])
        self.assert_line(self.plan("graph", "cut.gz"), "cut off, or compressed data is damaged")


if __name__ == "__main__":
    Plan.root, Plan.program = (os.path.abspath(path) for path in sys.argv[1:3])
    del sys.argv[1:3]
    unittest.main()
