#!/usr/bin/env python3
# tests/bench/program_test.py -- the benchmark program's names, JSON and exit codes: program_test.py SEQTILE_BENCH
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

NAME = re.compile(r"^[a-z_]+/(f32|bf16|f16)/[a-zA-Z0-9_]+/[a-z_0-9]+/t[0-9]+$")


class Program(unittest.TestCase):
    path = ""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="seqtile_bench_")
        self.addCleanup(self.folder.cleanup)

    def run_program(self, *arguments):
        env = dict(os.environ, SEQTILE_CACHE_DIR=self.folder.name + "/cache", SEQTILE_CONFIG_DIR=self.folder.name + "/config",
                   SEQTILE_LOCK_DIR=self.folder.name + "/locks")
        return subprocess.run([self.path, *arguments], capture_output=True, text=True, timeout=240, env=env)

    def test_list_names_are_paths(self):
        done = self.run_program("--list")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = done.stdout.split()
        self.assertEqual([n for n in names if not NAME.match(n)], [])
        self.assertEqual(len(names), len(set(names)))
        for wanted in ("linear/f32/m512_n4096_k4096/seqtile/t2", "linear/bf16/m1_n4096_k14336/seqtile_packed/t1",
                       "attention_forward/bf16/l4096_h32_kv8_d128/seqtile/t2", "compile/f32/linear/seqtile/t1"):
            self.assertIn(wanted, names)

    def test_filter_threads_and_json_select(self):
        done = self.run_program("--list", "--json", "--threads", "3", "--filter", "^linear/f32/m7_.*/seqtile/")
        names = json.loads(done.stdout.splitlines()[-1])["names"]
        self.assertEqual(len(names), 4)
        self.assertTrue(all(n.endswith("/seqtile/t3") for n in names))

    def test_bad_usage_is_2(self):
        for arguments in (["--filter", "no_such_case"], ["--filter", "("], ["--threads", "0"], ["--nonsense"],
                          ["--budget", "soon"], ["--budget", "0"], ["--budget", "10x"]):
            done = self.run_program(*arguments)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
            self.assertTrue(done.stderr.strip(), arguments)

    def test_bad_usage_is_one_line_of_our_own_words(self):
        for arguments, said in ((["nosuch"], "suite nosuch: there is no such suite; there are linear, grouped, .*, regret; see"),
                                (["--list", "attenton"], r"suite attenton: .*; did you mean attention\?; see"),
                                (["linear", "rows"], "'rows' is one word too many; give one suite, or a --filter; see"),
                                (["--fliter", "x"], r"there is no option --fliter; did you mean --filter\?; see"),
                                (["--nonsense=1"], "there is no option --nonsense; see"),
                                (["--filter"], "--filter has no value; write --filter VALUE; see"),
                                (["--rounds", "1", "--rounds", "2"], "--rounds is given 2 times; give it once; see"),
                                (["--threads", "0"], "--threads 0: not a whole number from 1 to 2147483647; see"),
                                (["--rounds", "many"], "--rounds many: not a whole number from 1 to"),
                                (["--budget", "soon"], "--budget soon: not a time above 0")):
            done = self.run_program(*arguments)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
            self.assertRegex(done.stderr, f"^seqtile bench: {said}[^\n]*`seqtile bench -- --help`\n$")

    def test_a_case_runs_and_is_written(self):
        out = self.folder.name + "/out.json"
        done = self.run_program("--filter", "^(lookup|call_to_hand_off|index_check)/", "--threads", "1", "--output", out, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        line = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((line["cases"], line["failed"]), (3, 0))
        with open(out) as file:
            written = json.load(file)
        lookup = written["benchmarks"][0]
        self.assertEqual(lookup["name"], "lookup/f32/n576_k576/seqtile/t1")
        self.assertGreater(lookup["p99_ns"], 0)
        indices = next(case for case in written["benchmarks"] if case["name"].startswith("index_check/"))
        self.assertGreater(indices["check_p50_ns"], 0)
        self.assertLess(indices["check_p50_ns"], indices["p50_ns"])
        self.assertIn("cpu", written["context"])

    def test_an_unwritable_file_is_3(self):
        done = self.run_program("--filter", "^lookup/", "--threads", "1", "--output", "/nonexistent/out.json")
        self.assertEqual(done.returncode, 3)
        self.assertIn("--output", done.stderr)


if __name__ == "__main__":
    Program.path = sys.argv.pop(1)
    unittest.main()
