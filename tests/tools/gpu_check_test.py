#!/usr/bin/env python3
# tests/tools/gpu_check_test.py -- tools/gpu_check.sh in a package whose programs are scripts: gpu_check_test.py ROOT
# SPDX-License-Identifier: Apache-2.0
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

GPU = """case "$1" in
devices) echo 'cuda: Fake'; echo '{"devices":[{"name":"Fake","kind":"cuda"}]}';;
tune) echo "tune $*"; exit TUNE;;
prewarm) [ -f "$5" ] || exit 9; echo '12 records'; echo '{"records":12}'; exit PREWARM;;
esac"""
NO_GPU = """echo 'cuda: device "cuda": no NVIDIA driver found (libcuda.so.1); take device cpu'
echo '{"devices":[{"name":"AMD","kind":"cpu"}],"no_gpu":"x"}'"""
TESTS = """[ "$1" = --list-test-names-only ] && { echo 'gpu: one, and more'; echo 'gpu: other'; exit 2; }
echo "ran $1"; [ "$1" != "FAILING" ]"""
BENCH = """[ "$1" = --list-workloads ] && { echo 'linear --set n=8 --length 4'; echo 'softmax --set n=8 --length 4'; exit; }
echo 'goal: linear of cuBLAS, geometric mean: 0.97, to reach: 0.95 or more: met'
echo 'gpu/linear/x   12.0 us  1.0 TFLOP/s  3 GB/s'
while [ $# -gt 0 ]; do [ "$1" = --output ] && echo '{"benchmarks":[]}' > "$2"; shift; done"""


class GpuCheck(unittest.TestCase):
    root = "."

    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="seqtile_gpu_check_")
        self.addCleanup(shutil.rmtree, self.work)
        os.makedirs(self.work + "/bin")
        os.makedirs(self.work + "/share/seqtile/models")
        shutil.copy(self.root + "/tools/gpu_check.sh", self.work + "/bin")
        shutil.copy(self.root + "/examples/models/llama-3-8b.json", self.work + "/share/seqtile/models")

    def program(self, name, body):
        path = f"{self.work}/bin/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + body + "\n")
        os.chmod(path, 0o755)

    def package(self, prewarm="0", failing="nothing", tune="0"):
        self.program("seqtile", GPU.replace("PREWARM", prewarm).replace("TUNE", tune))
        self.program("kernels_tests", TESTS.replace("FAILING", failing))
        self.program("seqtile_gpu_bench", BENCH)

    def check(self, *arguments, **environment):
        """Exit code, output, and the script's JSON."""
        # The PATH has no python3: PyTorch has no part in this test.
        tools = self.work + "/tools"
        os.makedirs(tools, exist_ok=True)
        for tool in ("bash", "sh", "dirname", "grep", "head", "tail", "timeout", "mkdir", "cat", "sed", "xargs", "nproc"):
            if not os.path.exists(f"{tools}/{tool}"):
                os.symlink(shutil.which(tool), f"{tools}/{tool}")
        done = subprocess.run(["bash", self.work + "/bin/gpu_check.sh", *(arguments or ["out"])], cwd=self.work,
                              capture_output=True, text=True, timeout=60, env=dict(os.environ, PATH=tools, **environment))
        path = self.work + "/out/gpu_check.json"
        if not os.path.exists(path):
            return done, None
        with open(path, encoding="utf-8") as file:
            return done, json.load(file)

    def test_all_sections_pass(self):
        self.package()
        done, found = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(found["passed"])
        self.assertEqual(set(found["sections"]), {"tests", "tuning", "shapes", "bench"})
        self.assertEqual(found["tuning"], {"records": 12})
        self.assertIn("gpu/linear/x", done.stdout)
        with open(self.work + "/out/tests.log", encoding="utf-8") as file:
            self.assertEqual(sorted(file.read().splitlines()), ["ran gpu: one\\, and more", "ran gpu: other"])
        self.assertIn("goal: linear of cuBLAS", done.stdout)
        with open(self.work + "/out/shapes.log", encoding="utf-8") as file:
            self.assertEqual(file.read().split("\n")[:2], [f"tune tune {case} --set n=8 --length 4 --device cuda:0 --budget 4s"
                                                           for case in ("linear", "softmax")])

    def test_a_budget_that_ends_early_is_no_failure(self):
        self.package(prewarm="1", tune="1")
        self.assertEqual(self.check()[0].returncode, 0)
        self.package(tune="3")
        self.assertEqual(self.check()[1]["sections"]["shapes"]["exit"], 3)

    def test_a_section_that_fails_is_named(self):
        self.package(prewarm="2", failing="gpu: one\\\\, and more")
        done, found = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^tests .*failed \(exit 123\)$")
        self.assertRegex(done.stdout, r"(?m)^tuning .*failed \(exit 2\)$")
        self.assertFalse(found["passed"])
        self.assertEqual(found["sections"]["bench"]["exit"], 0)
        with open(self.work + "/out/tests.log", encoding="utf-8") as file:
            self.assertIn("FAILED: gpu: one, and more\n", file.read())

    def test_every_section_sees_the_gpu_that_was_asked_for(self):
        self.package()
        self.program("kernels_tests", 'echo "$CUDA_VISIBLE_DEVICES"')  # the device is the only test's name too
        for arguments, environment, seen in [((), {}, "0"), (("out", "cuda:3"), {}, "3"),
                                             (("out", "cuda:1"), {"CUDA_VISIBLE_DEVICES": "5,GPU-7"}, "GPU-7")]:
            found = self.check(*arguments, **environment)[1]
            self.assertEqual(found["device"], arguments[1] if arguments else "cuda:0")
            with open(self.work + "/out/tests.log", encoding="utf-8") as file:
                self.assertEqual(file.read(), seen + "\n")

    def test_tests_that_did_not_run_have_not_passed(self):
        self.package()
        self.program("kernels_tests", "echo 'not run: cuda:0: no context'")
        done, found = self.check()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^tests .*not run: cuda:0: no context$")
        self.assertEqual((found["passed"], found["sections"]["tests"]["exit"]), (False, 1))

    def test_bad_arguments_are_one_line(self):
        self.package()
        for arguments, code in [(("out", "h200"), 2), (("out", "gpu0"), 2), (("a", "cuda:0", "b"), 2), (("--help",), 0)]:
            done, found = self.check(*arguments)
            self.assertEqual((done.returncode, found), (code, None))
            self.assertEqual(done.stderr, "usage: gpu_check.sh [FOLDER [cuda:N]]\n")
        done, found = self.check("bin/seqtile/x")
        self.assertEqual((done.returncode, found), (2, None))
        self.assertIn("give another one", done.stderr)

    def test_no_gpu_is_one_line(self):
        self.program("seqtile", NO_GPU)
        done, found = self.check()
        self.assertEqual((done.returncode, found), (3, None))
        self.assertEqual(done.stdout.count("\n"), 1)
        self.assertIn("no NVIDIA driver found", done.stdout)

    def test_a_package_without_the_program(self):
        done, found = self.check()
        self.assertEqual((done.returncode, found), (2, None))
        self.assertIn("unpack the whole package", done.stderr)


if __name__ == "__main__":
    GpuCheck.root = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
