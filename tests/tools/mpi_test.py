#!/usr/bin/env python3
# tests/tools/mpi_test.py -- the program on ranks that mpirun starts: mpi_test.py SEQTILE_PROGRAM MPIRUN
# SPDX-License-Identifier: Apache-2.0
#
# The test tunes nothing: a policy that needs no records shows the same.
import json
import os
import subprocess
import sys
import tempfile
import unittest

MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
         "rms_norm_eps": 1e-5, "hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 2,
         "num_attention_heads": 3, "num_key_value_heads": 3, "vocab_size": 384, "max_position_embeddings": 64,
         "rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": True, "attention_bias": False}
GATHER = ["timeline", "fused_allgather_and_linear", "--set", "n=64", "--set", "k=64", "--length", "40", "--calls", "2"]
STORES = ["--cache", "tuning.db", "--artifacts", "artifacts.db"]
ON_MODEL = ["--model", "model.json", "--lengths", "1..3", "--kv-lengths", "1..6", "--threads", "1", *STORES]


class Mpi(unittest.TestCase):
    program, mpirun = "", ""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="seqtile_mpi_")
        cls.work = cls.folder.name
        cls.env = dict(os.environ, SEQTILE_CACHE_DIR=cls.work + "/cache", SEQTILE_CONFIG_DIR=cls.work + "/config",
                       SEQTILE_LOCK_DIR=cls.work + "/locks")
        cls.write("model.json", json.dumps(MODEL))
        cls.write("trace.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,5,1\n")
        made = cls.run_alone("tune", "rms_norm", "--set", "n=96", "--length", "4", "--threads", "1", *STORES, "--budget", "2s")
        if made.returncode != 0:
            raise AssertionError(made.stdout + made.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def write(cls, name, text):
        with open(os.path.join(cls.work, name), "w", encoding="utf-8") as file:
            file.write(text)

    @classmethod
    def run_alone(cls, *arguments, before=()):
        return subprocess.run([*before, cls.program, *arguments], cwd=cls.work, env=cls.env, capture_output=True, text=True,
                              timeout=240, check=False)

    def ranks(self, count, *arguments):
        start = [self.mpirun, "--allow-run-as-root", "--oversubscribe", "-n", str(count)]
        return self.run_alone(*arguments, before=start)

    def assert_every_rank_says(self, run, count, code, line):
        self.assertEqual(run.returncode, code, run.stdout + run.stderr)
        self.assertEqual(run.stderr.count(line), count, run.stderr)
        self.assertEqual(run.stdout, "")

    def test_trace(self):
        run = self.ranks(3, *GATHER, "--fabric", "mpi", *STORES, "-o", "ranks.json", "--json")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        said, found = run.stdout.rstrip("\n").split("\n")  # only rank 0 prints
        self.assertIn("events of 3 ranks", said)
        self.assertEqual((json.loads(found)["ranks"], json.loads(found)["fabric"]), (3, "processes"))
        with open(os.path.join(self.work, "ranks.json"), encoding="utf-8") as file:
            self.assertEqual({item["pid"] for item in json.load(file)["traceEvents"]}, {0, 1, 2})

    def test_replay(self):
        run = self.ranks(3, "replay", *ON_MODEL, "--requests", "trace.csv", "--policy", "nearest", "--execute", "1s", "--fabric",
                         "mpi", "--ranks", "3", "--json")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertEqual(run.stdout.count(" of the trace, layout: "), 1)
        found = json.loads(run.stdout.rstrip("\n").split("\n")[-1])
        self.assertGreater(found["executed"], 20)
        self.assertEqual(found["verified"], found["executed"])
        self.assertGreater(found["call_us"]["p50"], 0)
        self.assertEqual(found["ranks"]["world_size"], 3)

    def test_what_is_missing_is_said_once(self):
        run = self.ranks(2, "prove", *ON_MODEL, "--fabric", "mpi")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertEqual(run.stdout.count("pairs have a record and a loadable binary"), 1)
        self.assertIn("--ranks 2 --fabric processes --lengths 1..3", run.stdout)  # the command that makes the records

    def test_bad_input_is_one_line_on_every_rank(self):
        trace = [*GATHER, *STORES, "--fabric", "mpi"]
        self.assert_every_rank_says(self.ranks(3, *trace, "--ranks", "2"), 3, 2,
                                    "--ranks 2: mpirun has started 3; leave --ranks out, or write mpirun -n 2")
        self.assert_every_rank_says(self.ranks(2, *trace, "--set", "z=3"), 2, 2, "field z is 3")
        self.assert_every_rank_says(self.ranks(2, "prewarm", *ON_MODEL, "--fabric", "mpi", "--ranks", "2"), 2, 2,
                                    "their records are made with --fabric processes")

    def test_one_rank_that_fails_ends_all(self):
        trace = [*GATHER, *STORES, "--fabric", "mpi"]
        longer = ["41" if word == "40" else word for word in trace]
        for other, said in (([*trace, "--set", "z=3"], "field z is 3"), (longer, "capacity")):
            run = self.ranks(1, *trace, ":", "-n", "1", self.program, *other)
            self.assert_every_rank_says(run, 2, 2, said)

    def test_without_mpirun(self):
        self.assert_every_rank_says(self.run_alone(*GATHER, *STORES, "--fabric", "mpi"), 1, 2,
                                    "one rank alone was started; write mpirun -n 2 seqtile")
        alone = self.run_alone(*GATHER, *STORES, "--fabric", "mpi", "--ranks", "1")
        self.assertEqual(alone.returncode, 0, alone.stdout + alone.stderr)


if __name__ == "__main__":
    Mpi.mpirun = sys.argv.pop()
    Mpi.program = os.path.abspath(sys.argv.pop())
    unittest.main(verbosity=2)
