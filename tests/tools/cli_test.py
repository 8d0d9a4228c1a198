#!/usr/bin/env python3
# tests/tools/cli_test.py -- the program's JSON, exit codes and messages: cli_test.py SEQTILE_PROGRAM FAKE_DRIVER
# SPDX-License-Identifier: Apache-2.0
#
# A tiny model is prewarmed once with a budget of seconds; every command then works on copies of that file.
import atexit
import contextlib
import fcntl
import gzip
import json
import os
import re
import resource
import shlex
import shutil
import signal
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import make_trace

NUMBER = (int, float)
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu",
         "rms_norm_eps": 1e-5, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 384, "max_position_embeddings": 96,
         "rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": True, "attention_bias": False}
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,37,5\n2023-11-16 18:15:47,90,30\n" \
        "2023-11-16 18:15:48,1,3\n2023-11-16 18:15:49,37,2\n"
NORM = ["rms_norm", "--set", "n=96", "--length", "9"]
LINEAR = ["linear", "--set", "n=128", "--set", "k=96", "--threads", "1"]


# Kernels in another compiler's style: a sum, and kernels that go wrong.
FOREIGN = """//
.version 9.4
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 format, .param .b64 values);
.global .align 1 .b8 format[] = {116, 104, 114, 101, 97, 100, 32, 37, 100, 10, 0};
.visible .entry add(.param .u64 .ptr .global .align 4 x, .param .u64 y, .param .u64 z, .param .u32 n)
.reqntid 64
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<9>;
  ld.param.b64 %rd1, [x];
  ld.param.b64 %rd2, [y];
  ld.param.b64 %rd3, [z];
  ld.param.b32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r2, 64, %r3;
  setp.ge.s32 %p1, %r4, %r1;
  @%p1 ret;
  mul.wide.s32 %rd4, %r4, 4;
  add.s64 %rd5, %rd1, %rd4;
  add.s64 %rd6, %rd2, %rd4;
  add.s64 %rd7, %rd3, %rd4;
  ld.global.b32 %r5, [%rd5];
  ld.global.b32 %r6, [%rd6];
  add.f32 %r7, %r5, %r6;
  st.global.b32 [%rd7], %r7;
  ret;
}
.visible .entry race(.param .u64 x)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [x];
  mov.u32 %r1, %ctaid.x;
  st.global.b32 [%rd1], %r1;
  ret;
}
.visible .entry spin()
{
  .reg .b32 %r<4>;
  mov.u32 %r1, 0;
AGAIN:
  add.s32 %r1, %r1, 1;
  bra AGAIN;
}
.visible .entry lost()
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  mov.u32 %r1, %tid.x;
  setp.lt.u32 %p1, %r1, 32;
  @%p1 bar.sync 1, 64;
  bar.sync 0, 64;
  ret;
}
.visible .entry says()
{
  .local .align 8 .b8 values[8];
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  mov.u32 %r1, %tid.x;
  mov.u64 %rd1, values;
  st.local.u32 [%rd1], %r1;
  cvta.local.u64 %rd2, %rd1;
  mov.u64 %rd3, format;
  setp.eq.u32 %p1, %r1, 0;
  {
  .param .b64 param0;
  .param .b64 param1;
  .param .b32 result;
  st.param.b64 [param0], %rd3;
  st.param.b64 [param1], %rd2;
  @%p1 call (result), vprintf, (param0, param1);
  }
  ret;
}
.visible .entry unknown() { tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; }
"""


class Run:
    """One finished run of the program."""

    def __init__(self, arguments, cwd, env=None, limit=240, before=None, preexec_fn=None):
        self.result = subprocess.run([*(before or []), Cli.program, *arguments], cwd=cwd, env=env or Cli.env,
                                     capture_output=True, text=True, timeout=limit, preexec_fn=preexec_fn)
        self.code, self.out, self.err = self.result.returncode, self.result.stdout, self.result.stderr

    def json(self):
        return json.loads(self.out.rstrip("\n").split("\n")[-1])


def run_to_end(arguments, cwd):
    """Runs until coverage is whole. A busy machine may need more than one budget (exit code 1); each run goes on."""
    for _ in range(20):
        run = Run(arguments, cwd)
        if run.code != 1:
            break
    return run


class Cli(unittest.TestCase):
    program, fake_driver, env, work = "", "", {}, ""

    @staticmethod
    def wait_until_it_works(process, pid):
        """It, or one that it has started, has begun when it has worked for a second, however busy the machine is."""
        tick = os.sysconf("SC_CLK_TCK")
        while process.poll() is None:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                if int(file.read().rpartition(")")[2].split()[11]) > tick:
                    break
            time.sleep(0.05)

    @staticmethod
    def working_children(process):
        """The processes that one has started, when the first has begun."""
        found = []
        while not found and process.poll() is None:
            with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="utf-8") as file:
                found = file.read().split()
            time.sleep(0.02)
        Cli.wait_until_it_works(process, found[0])
        return found

    @classmethod
    def prepare(cls):
        """Prewarms once for all test classes."""
        cls.work = tempfile.mkdtemp(prefix="seqtile_cli_")
        atexit.register(shutil.rmtree, cls.work)
        cls.env = dict(os.environ, SEQTILE_CACHE_DIR=cls.work + "/cache", SEQTILE_CONFIG_DIR=cls.work + "/config",
                       SEQTILE_LOCK_DIR=cls.work + "/locks")
        cls.write("model.json", json.dumps(MODEL))
        cls.write("trace.csv", TRACE)
        cls.model_flags = ["--model", "model.json", "--lengths", "1..32", "--threads", "1"]
        cls.more_lengths = ["prewarm", "--model", "model.json", "--lengths", "1..96", "--threads", "1", "--artifacts",
                            "more_artifacts.db", "--budget", "20s"]
        cls.stores = ["--cache", "tuning.db", "--artifacts", "artifacts.db"]
        cls.prewarm = run_to_end(["prewarm", *cls.model_flags, *cls.stores, "--budget", "8s", "--json"], cls.work)
        if cls.prewarm.code != 0:
            raise AssertionError(f"prewarm: exit {cls.prewarm.code}\n{cls.prewarm.out}\n{cls.prewarm.err}")
        linear = Run(["tune", *LINEAR, "--length", "40", *cls.stores, "--budget", "5s", "--json"], cls.work)
        if linear.code != 0:
            raise AssertionError(f"tune: exit {linear.code}\n{linear.out}\n{linear.err}")

    @classmethod
    def write(cls, name, text):
        with open(os.path.join(cls.work, name), "w", encoding="utf-8") as file:
            file.write(text)
        return name

    @classmethod
    def write_bytes(cls, name, data):
        with open(os.path.join(cls.work, name), "wb") as file:
            file.write(data)

    def write_cubin(self, name):
        """Writes the header of a cubin for sm_90. The program reads only the header."""
        header = bytearray(64)
        header[:4], header[8], header[18:20], header[49] = b"\x7fELF", 8, (190).to_bytes(2, "little"), 90
        with open(self.path(name), "wb") as file:
            file.write(header)

    def path(self, name):
        return os.path.join(self.work, name)

    def content(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def seqtile(self, *arguments, **options):
        return Run(list(arguments), self.work, **options)

    def assert_fields(self, found, schema):
        for name, kind in schema.items():
            self.assertIn(name, found)
            self.assertNotIsInstance(found[name], bool if kind is not bool else type(None), name)
            self.assertIsInstance(found[name], kind, name)

    def assert_line(self, run, code, pattern):
        """Checks for one clear line on standard error and for the exit code."""
        self.assertEqual(run.code, code, run.out + run.err)
        lines = [line for line in run.err.rstrip("\n").split("\n") if line]
        self.assertTrue(lines, "no message")
        self.assertRegex(lines[-1], pattern)
        self.assertNotRegex(run.err, r"terminate called|Assertion|AddressSanitizer")


class PlanTest(Cli):
    """A product of 40 rows, 96 x 256, on two devices."""

    def write_graph(self, phase="training"):
        nodes = [{"name": "x", "op": "placeholder", "inputs": [], "out": {"shape": [40, 96], "dtype": "torch.float32"}},
                 {"name": "y", "op": "call_module", "module": "Linear", "params": {"weight": [256, 96]}, "args": ["x"],
                  "inputs": ["x"], "out": {"shape": [40, 256], "dtype": "torch.float32"}},
                 {"name": "out", "op": "output", "inputs": ["y"], "out": None}]
        meta = {"mesh": [2], "alpha": [1], "beta": [1], "phase": phase}
        return self.write("product.json", json.dumps({"meta": meta, "nodes": nodes}))

    def test_kernel_times_are_those_of_the_records(self):
        slow = self.write("machine.json", json.dumps({"alpha": [1e-6], "beta": [1e-9], "peak_flops": 1e7}))
        graph = ["plan", "graph", self.write_graph("prefill"), "--costs", "calibrated", "--calibration", slow, "--json"]
        roofline = self.seqtile(*graph).json()
        recorded = self.seqtile(*graph, "--cache", "tuning.db", "--threads", "1").json()
        self.assertEqual(roofline["parts"]["measured"], 0)
        self.assertEqual([recorded["parts"][name] for name in ("measured", "kernels")], [1, 1])
        self.assertEqual(recorded["plan"]["y"], "S0 n")  # the store has a record of 128 columns
        self.assertLess(recorded["objective"], roofline["objective"])

    def test_a_plan_is_found_while_its_records_are_the_same(self):
        shutil.copy(self.path("tuning.db"), self.path("plans.db"))
        slow = self.write("machine.json", json.dumps({"alpha": [1e-6], "beta": [1e-9], "peak_flops": 1e7}))
        graph = ["plan", "graph", self.write_graph("prefill"), "--costs", "calibrated", "--calibration", slow, "--json",
                 "--cache", "plans.db"]

        def plan(*flags):
            run = self.seqtile(*graph, *flags)
            self.assertEqual(run.code, 0, run.err)
            return run.json(), "plan: from the cache" in run.err

        def change(statement):
            database = sqlite3.connect(self.path("plans.db"))
            database.execute(statement)
            database.commit()
            database.close()
        made, was_found = plan("--threads", "1")
        self.assertFalse(was_found)
        self.assertEqual(plan("--threads", "1"), (made, True))
        self.assertFalse(plan("--threads", "2")[1])  # two threads have other records
        other = "SELECT workload_id FROM workload WHERE operation <> 'linear'"
        change(f"DELETE FROM record WHERE workload_id IN ({other})")
        self.assertEqual(plan("--threads", "1"), (made, True))
        change("UPDATE record SET median_us = 2 * median_us")  # damages the records
        again, was_found = plan("--threads", "1")
        self.assertFalse(was_found)
        self.assertEqual([made["parts"]["measured"], again["parts"]["measured"]], [1, 0])
        self.assertEqual(plan("--threads", "1"), (again, True))

    def test_explain_in_seconds(self):
        run = self.seqtile("plan", "explain", self.write_graph(), "y", "--costs", "calibrated", "--json")
        self.assertEqual(run.code, 0, run.err)
        self.assertIn("S0 n of gathered rows", [row["strategy"] for row in run.json()["strategies"]])

    def test_options_that_do_not_go_together_are_refused(self):
        graph = ["plan", "graph", self.write_graph()]
        self.write("two_axes.json", '{"alpha": [1e-6, 1e-6]}')
        self.assert_line(self.seqtile(*graph, "--calibration", "two_axes.json"), 2,
                         "--calibration two_axes.json: it is for --costs calibrated")
        graph += ["--costs", "calibrated"]
        self.assert_line(self.seqtile(*graph, "--strategies", "file"), 2, "no prices in seconds")
        self.assert_line(self.seqtile(*graph, "--calibration", "two_axes.json"), 2, "mesh has 1")
        self.assert_line(self.seqtile(*graph, "--cache", "none.db"), 2, "no such file")


class Json(Cli):
    def test_prewarm(self):
        found = self.prewarm.json()
        self.assert_fields(found, {"operations": int, "buckets": int, "ranges": int, "tunings": int, "trials": int,
                                   "seconds": NUMBER, "complete": bool, "grades": dict, "coverage_seconds": NUMBER})
        self.assertGreater(found["operations"], 8)
        self.assertGreaterEqual(found["buckets"], found["ranges"])
        # The count of each grade depends on the machine.
        self.assertEqual(sum(found["grades"].values()), found["buckets"])

    def test_prewarm_again_measures_nothing_new_when_complete(self):
        flags = ["tune", *LINEAR, "--lengths", "40", *self.stores, "--json"]
        self.seqtile(*flags)
        again = self.seqtile(*flags)
        self.assertEqual(again.code, 0, again.err)
        self.assertEqual(again.json()["trials"], 0)
        self.assertTrue(again.json()["complete"])

    def test_prewarm_tunes_what_an_engine_has_missed(self):
        workload = {"dtype": "f32", "threads": 1, "n": 24}
        misses = [{"operation": "softmax", "workload": workload, "lengths": [lo, hi], "calls": 5}
                  for lo, hi in ((9, 16), (3, 4), (5, 8))]
        self.write("misses.json", json.dumps({"seqtile_misses": 1, "device": "cpu", "misses": misses}))
        stores = ["--cache", "missed.db", "--artifacts", "artifacts.db"]
        run = self.seqtile("prewarm", "--misses", "misses.json", *stores, "--budget", "5s", "--json")
        self.assertEqual(run.code, 0, run.err)
        self.assertIn("15 calls missed", run.out)
        self.assertEqual((run.json()["operations"], run.json()["buckets"]), (1, 3))
        proof = ["prove", "softmax", "--set", "n=24", "--threads", "1", *stores, "--lengths"]
        self.assertEqual(self.seqtile(*proof, "3..16").code, 0)
        self.assertEqual(self.seqtile(*proof, "1..16").code, 1)
        self.write("none.json", json.dumps({"seqtile_misses": 1, "device": "cpu", "misses": []}))
        self.assertEqual(self.seqtile("prewarm", "--misses", "none.json", *stores).code, 0)

    def test_misses_that_are_wrong_are_named(self):
        whole = {"seqtile_misses": 1, "device": "cpu", "misses": [
            {"operation": "softmax", "workload": {"dtype": "f32", "threads": 1, "n": 24}, "lengths": [3, 4], "calls": 5}]}

        def changed(change):
            copy = json.loads(json.dumps(whole))
            change(copy)
            return json.dumps(copy)

        miss = lambda name, value: lambda file: file["misses"][0].__setitem__(name, value)
        for text, pattern in (("", "misses.json"), ("[]", 'has no "seqtile_misses"'), ("{}", 'has no "seqtile_misses"'),
                              (changed(lambda f: f.update(seqtile_misses=2)), "seqtile_misses: is 2"),
                              (changed(lambda f: f.pop("device")), 'has no "device"'),
                              (changed(lambda f: f.update(device="sim:sm_99")), "sm_99"),
                              (changed(lambda f: f.update(misses={})), "misses: is an object|misses: is"),
                              (changed(miss("operation", "softmaxx")), "did you mean softmax"),
                              (changed(miss("workload", {"dtype": "f32", "threads": 1})), "softmax: .*n"),
                              (changed(miss("workload", {"dtype": "f33", "threads": 1, "n": 4})), "dtype: is no dtype"),
                              (changed(miss("workload", {"dtype": "f32", "n": 4})), 'has no "threads"'),
                              (changed(miss("lengths", [4, 3])), r"misses\[0\]: lengths\[1\]: is 3; a whole number of 4"),
                              (changed(miss("lengths", [3])), "lengths: has not the two ends"),
                              (changed(miss("calls", -1)), "calls: is -1")):
            self.write("misses.json", text)
            self.assert_line(self.seqtile("prewarm", "--misses", "misses.json", "--cache", "wrong.db"), 2, pattern)
            self.assertFalse(os.path.exists(self.path("wrong.db")))
        self.write("misses.json", json.dumps(whole))
        for flags, pattern in ((["--misses", "absent.json"], "absent.json: no such file"), ([], "--model FILE and --lengths"),
                               (["--misses", "misses.json", "--threads", "2"], "--threads"),
                               (["--misses", "misses.json", "--device", "sim:sm_80"], "misses of an engine on cpu")):
            self.assert_line(self.seqtile("prewarm", *flags), 2, pattern)

    def test_dry_run_measures_nothing(self):
        run = self.seqtile("prewarm", *self.model_flags, "--cache", "absent.db", "--dry-run", "--json")
        self.assertEqual(run.code, 0, run.err)
        self.assert_fields(run.json(), {"operations": int, "buckets": int, "candidates": int, "plan": list,
                                        "estimated_seconds": NUMBER})
        self.assertGreater(run.json()["candidates"], run.json()["operations"])
        self.assertFalse(os.path.exists(self.path("absent.db")))
        model = run.json()["model"]
        self.assertEqual((model["type"], model["layers"], model["kv_heads"], model["head_dim"]), ("llama", 2, 1, 64))
        self.assertEqual(model["layer_kinds"], [{"name": "", "layers": 2, "which": "0..1", "window": 0, "rope": {
            "type": "default", "base": 10000.0, "rotary_dim": 64}}])
        self.assertEqual(model["defaults"], {"head_dim": "64", "mlp_bias": "false"})
        self.assertRegex(run.out, r"layer_kinds +all layers: all keys; rope default, base 10000, rotary_dim 64\n")

    def test_prove(self):
        run = self.seqtile("prove", *self.model_flags, *self.stores, "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        found = run.json()
        self.assert_fields(found, {"lengths": int, "operations": int, "covered": int, "missing": list})
        self.assertEqual((found["lengths"], found["missing"], found["grade"]), (32, [], "built"))
        self.assertGreaterEqual(found["covered"], 32 * found["operations"])
        grades = found["grades"]
        self.assertGreaterEqual(grades["built"], grades["measured"])
        self.assertGreaterEqual(grades["measured"], grades["searched"])
        run = self.seqtile("prove", *self.model_flags, *self.stores, "--grade", "searched", "--json")
        self.assertEqual(run.json()["covered"], grades["searched"])
        self.assertEqual(run.code, int(grades["searched"] < found["covered"]), run.out)
        self.assertTrue(all("not searched; run `seqtile prewarm" in gap["reason"] for gap in run.json()["missing"]))
        self.assert_line(self.seqtile("prove", *self.model_flags, *self.stores, "--grade", "best"), 2, "--grade best: not one of built")

    def test_prove_names_what_is_missing(self):
        run = self.seqtile("prove", "--model", "model.json", "--lengths", "1..200", "--threads", "1", *self.stores,
                           "--json")
        self.assertEqual(run.code, 1)
        gap = run.json()["missing"][0]
        self.assert_fields(gap, {"operation": str, "lo": int, "hi": int, "reason": str})
        self.assertEqual((gap["lo"], gap["hi"]), (33, 200))
        self.assertIn("prewarm", gap["reason"])

    def test_prove_of_one_operation(self):
        for lengths, code in (("40..40", 0), ("1..512", 1)):
            run = self.seqtile("prove", *LINEAR, "--lengths", lengths, *self.stores, "--json")
            self.assertEqual(run.code, code, run.out + run.err)
            found = run.json()
            self.assertEqual((found["operations"], found["covered"] == found["pairs"]), (1, code == 0))
        gap = found["missing"][0]
        self.assertEqual(gap["operation"], "linear")
        self.assertIn("no record; run `seqtile tune linear --set", gap["reason"])
        for flags, pattern in (([], "give --model FILE, or an operation and its fields"),
                               ([*LINEAR, "--model", "model.json"], "--model"), ([*LINEAR, "--kv-lengths", "1..8"], "--kv-lengths")):
            self.assert_line(self.seqtile("prove", *flags, "--lengths", "1..8", *self.stores), 2, pattern)

    def test_prove_without_binaries_then_cache_build(self):
        own = ["--cache", "tuning.db", "--artifacts", "fresh.db"]
        run = self.seqtile("prove", *self.model_flags, *own)
        self.assert_line(run, 2, "--artifacts fresh.db: no such file; `seqtile cache build .*fresh.db` makes one")
        self.assertFalse(os.path.exists(self.path("fresh.db")))
        self.write("fresh.db", "")
        run = self.seqtile("prove", *self.model_flags, *own, "--json")
        self.assertEqual(run.code, 1)
        self.assertIn("cache build", run.json()["missing"][0]["reason"])
        run = self.seqtile("cache", "check", *own)
        self.assertEqual(run.code, 1, run.out + run.err)
        self.assertRegex(run.err, "fresh.db: is empty; `seqtile cache build` fills it")
        self.assertRegex(run.out, "fresh.db: .*not ok; run `seqtile cache build .*fresh.db`\n")
        self.assertEqual(self.content("fresh.db"), b"")
        build = self.seqtile("cache", "build", *own, "--json")
        self.assertEqual(build.code, 0, build.err)
        self.assert_fields(build.json(), {"records": int, "binaries": int, "compiled": int, "failed": int})
        self.assertEqual(build.json()["failed"], 0)
        self.assertEqual(self.seqtile("prove", *self.model_flags, *own).code, 0)

    def test_replay(self):
        run = self.seqtile("replay", "--model", "model.json", "--requests", "trace.csv", *self.stores, "--threads", "1",
                           "--policy", "strict", "--execute", "1s", "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        found = run.json()
        self.assert_fields(found, {"requests": int, "chunks": int, "decode_steps": int, "distinct_lengths": int,
                                   "buckets": int, "tunings": int, "compiles": int, "misses": int, "lookup_ns": dict,
                                   "call_us": dict, "executed": int, "verified": int, "max_rel_err": NUMBER})
        self.assertEqual((found["requests"], found["distinct_lengths"], found["chunks"]), (4, 3, 8))
        self.assertEqual((found["tunings"], found["compiles"], found["misses"]), (0, 0, 0))
        self.assertGreater(found["executed"], 0)
        self.assertGreater(found["verified"], 0)
        self.assertLess(found["max_rel_err"], 0.01)
        for part in ("lookup_ns", "call_us"):
            self.assertLessEqual(found[part]["p50"], found[part]["p99"])
        self.assertGreater(found["cut_decode_steps"], 0)

    def test_what_prove_has_shown_replay_does_not_miss(self):
        flags = ["--model", "model.json", "--threads", "1", "--cache", "proved.db", "--artifacts", "artifacts.db", "--json"]
        whole = [*flags, "--requests", "trace.csv", "--policy", "strict", "--execute", "200ms"]
        for lengths in ["--lengths", "16..32"], ["--lengths", "2..32", "--kv-lengths", "40..60"]:
            shutil.copy(self.path("tuning.db"), self.path("proved.db"))
            with contextlib.closing(sqlite3.connect(self.path("proved.db"))) as database, database:
                database.execute("DELETE FROM record WHERE hi = 1 AND workload_id IN (SELECT workload_id FROM workload "
                                 "WHERE workload NOT LIKE '%384%' AND workload NOT LIKE '%decode%')")
            prove = self.seqtile("prove", *lengths, *flags)
            self.assertEqual(prove.code, 0, prove.out + prove.err)
            run = self.seqtile("replay", *lengths, *whole)
            self.assertEqual(run.code, 0, run.out + run.err)
            found = run.json()
            self.assertEqual((found["misses"], found["decode_steps"], found["compiles"]), (0, 0, 0))
            self.assertEqual(found["cut_decode_steps"], 40)
            self.assertGreater(found["chunks"], 0)
            self.assertGreater(found["cut_chunks"], 0)
            self.assertIn("and all decode steps, which have one, are left out; give 1..32", run.out)
        self.assert_line(self.seqtile("replay", "--lengths", "95..96", *whole), 2, "no request has a call of the lengths")
        run = self.seqtile("replay", "--lengths", "1..32", "--kv-lengths", "40..60", *flags, "--requests", "trace.csv",
                           "--policy", "nearest")
        self.assertEqual((run.json()["decode_steps"], run.json()["cut_decode_steps"]), (3, 37), run.err)

    def test_moved_to_another_user(self):
        os.makedirs(self.path("other"))
        shutil.copy(self.path("tuning.db"), self.path("other/tuning.db"))
        # Root may write to the file all the same. The content is compared below.
        os.chmod(self.path("other/tuning.db"), stat.S_IRUSR)
        shipped = self.content("other/tuning.db")
        other = dict(self.env, SEQTILE_CACHE_DIR=self.path("other/cache"), SEQTILE_CONFIG_DIR=self.path("other/config"))
        run = self.seqtile("replay", "--model", "model.json", "--requests", "trace.csv", "--cache", "other/tuning.db",
                           "--artifacts", "other/artifacts.db", "--threads", "1", "--policy", "strict", "--execute",
                           "1s", "--json", env=other)
        self.assertEqual(run.code, 0, run.out + run.err)
        found = run.json()
        self.assertEqual((found["tunings"], found["compiles"], found["misses"]), (0, 0, 0))
        self.assertGreater(found["compiles_at_load"], 0)
        self.assertGreater(found["executed"], 0)
        self.assertEqual(found["verified"], found["executed"])
        self.assertEqual(self.content("other/tuning.db"), shipped)

    def test_binaries_of_another_key_in_a_file_that_cannot_be_written(self):
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        if nobody and subprocess.run([*nobody, "test", "-x", self.program], check=False).returncode != 0:
            self.skipTest("the program lies where no other user can run it")
        with tempfile.TemporaryDirectory(prefix="seqtile_other_key_") as top:
            os.mkdir(top + "/media")
            for name in "model.json", "tuning.db", "artifacts.db", "trace.csv":
                shutil.copy(self.path(name), top + "/media")
                os.chmod(f"{top}/media/{name}", 0o444)
            os.mkdir(top + "/config")
            for folder, mode in ("", 0o755), ("/config", 0o777), ("/media", 0o555):
                os.chmod(top + folder, mode)
            env = dict(self.env, SEQTILE_CONFIG_DIR=top + "/config")
            stores = ["--cache", "media/tuning.db", "--artifacts", "media/artifacts.db"]
            cause = (r"media/artifacts.db has \d+ binaries under another key and cannot be written: run "
                     "`seqtile cache build --cache media/tuning.db --artifacts NEW` for a new file, or set "
                     "SEQTILE_CONFIG_DIR to a folder with that key")
            for code, command in ((1, ["prove", "--model", "media/model.json", *self.model_flags[2:]]),
                                  (0, ["explain", *LINEAR, "--length", "40"]), (1, ["cache", "check"])):
                run = Run([*command, *stores], top, env=env, before=nobody)
                self.assertEqual(run.code, code, run.out + run.err)
                self.assertRegex(run.out, cause)
            run = Run(["cache", "build", *stores], top, env=env, before=nobody)
            self.assert_line(run, 3, r"cannot be written \(.*\); stored rows are used, nothing is added; " + cause)
            run = Run(["replay", "--model", "media/model.json", *self.model_flags[4:], "--requests", "media/trace.csv",
                       *stores], top, env=env, before=nobody)
            self.assertRegex(run.err, r"artifact store media/artifacts.db: binaries that it lacks are compiled at every "
                             r"start; \d+ binaries under another key cannot be used; make a NEW file with `seqtile cache "
                             "build --artifacts NEW`, or set SEQTILE_CONFIG_DIR to a folder with that key\n")
            os.chmod(top + "/media", 0o755)

    def test_report(self):
        self.write("prewarm.out", self.prewarm.out.rstrip("\n").split("\n")[-1])
        replay = self.seqtile("replay", "--model", "model.json", "--requests", "trace.csv", *self.stores, "--threads", "1",
                              "--json")
        self.write("replay.out", replay.out.rstrip("\n").split("\n")[-1])
        run = self.seqtile("report", "--prewarm", "prewarm.out", "--replay", "replay.out", "--json")
        self.assertEqual(run.code, 0, run.err)
        self.assert_fields(run.json(), {"requests": int, "distinct_lengths": int, "tunings": int, "compiles": int,
                                        "tune_every_length_s": NUMBER})

    def test_explain(self):
        run = self.seqtile("explain", *LINEAR, "--length", "40", *self.stores, "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        found = run.json()
        self.assert_fields(found, {"operation": str, "length": int, "bucket": list, "origin": str, "config": dict,
                                   "median_us": NUMBER, "reason": str})
        self.assertEqual(found["bucket"], [37, 40])
        self.assertIn(found["origin"], ("tuned", "default"))
        self.assertEqual((found["refusal"], found["lack"]), ("", ""))
        self.assertEqual(found["median_us"] > 0, "not measured yet" not in found["reason"])
        self.assertEqual(bool(found["runner_ups"]), "times the winner: ratio of the medians of all rounds" in run.out)

    def test_explain_names_the_record_that_the_engine_serves(self):
        norm, stores = ["rms_norm", "--set", "n=96", "--threads", "1"], ["--cache", "near.db", "--artifacts", "near_artifacts.db"]
        for length in "18", "22":  # both two away from 20
            run = self.seqtile("tune", *norm, "--length", length, *stores, "--budget", "5s")
            self.assertEqual(run.code, 0, run.err)
        for length, bucket in ("1", "17..18"), ("16", "17..18"), ("20", "21..22"), ("24", "21..22"):
            run = self.seqtile("explain", *norm, "--length", length, *stores, "--json")
            self.assertEqual(run.code, 1, run.err)
            self.assertIn(f"nearest is [{bucket}];", run.json()["reason"])

    def test_explain_model(self):
        run = self.seqtile("explain", "--model", "model.json", "--json")
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(run.json()["model"]["hidden_size"], 128)
        self.assertNotIn("operations", run.json())
        run = self.seqtile("explain", "--model", "model.json", "--length", "8", "--threads", "1", *self.stores, "--json")
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual([row["label"] for row in run.json()["operations"]],
                         ["embedding", "input_norm", "qkv_proj", "rope", "attention_prefill", "attention_extend",
                          "attention_decode", "o_proj", "residual_norm", "gate_up_proj", "down_proj", "lm_head"])
        for row in run.json()["operations"]:
            self.assert_fields(row, {"operation": str, "length": int, "bucket": list, "origin": str, "reason": str})
        self.assert_line(self.seqtile("explain", "linear", "--model", "model.json"), 2, "excludes")
        self.assert_line(self.seqtile("explain"), 2, "give an operation and --length, or --model FILE")

    def test_explain_names_the_field_that_differs(self):
        run = self.seqtile("explain", "linear", "--set", "n=128", "--set", "k=112", "--threads", "1", "--length", "40",
                           *self.stores, "--json")
        self.assertEqual(run.code, 1)
        self.assertRegex(run.json()["reason"], r"\bk\b.*112")

    def test_cache_check(self):
        run = self.seqtile("cache", "check", "--cache", "tuning.db", "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        self.assert_fields(run.json(), {"rows": int, "bad_rows": int, "ok": bool})
        self.assertEqual((run.json()["bad_rows"], run.json()["ok"]), (0, True))
        self.assertGreater(run.json()["rows"], 10)
        self.assert_line(self.seqtile("cache", "check", "--cache", "tuning.db", "--device", "bogus"), 2, "--device: .*bogus")
        empty = self.seqtile("cache", "check", "--cache", self.write("empty.db", ""))
        self.assert_line(empty, 1, "empty.db: is empty; name another file, or prewarm into this one")
        self.assertRegex(empty.out, "empty.db: 0 rows, 0 bad: not ok; the file is left as it is\n")
        self.write("empty_artifacts.db", "")
        empty = self.seqtile("cache", "check", "--cache", "empty.db", "--artifacts", "empty_artifacts.db")
        self.assert_line(empty, 1, "empty_artifacts.db: is empty; `seqtile cache build` fills it")
        self.assertRegex(empty.out, "empty_artifacts.db: .*: not ok; run `seqtile cache build .*empty_artifacts.db`\n")

    def test_cache_check_of_binaries(self):
        check = ["cache", "check", "--cache", "tuning.db", "--artifacts"]
        run = self.seqtile(*check, "artifacts.db", "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        found = run.json()["artifacts"]
        self.assert_fields(found, {"rows": int, "bad_rows": int, "named": int, "missing": int, "ok": bool})
        self.assertGreater(found["named"], 5)
        self.assertEqual((found["bad_rows"], found["missing"], found["ok"]), (0, 0, True))
        self.assert_line(self.seqtile(*check, "absent.db"), 2, "absent.db: no such file; `seqtile cache build .*makes")
        self.assertEqual(self.seqtile(*check, "artifacts.db", "--device", "h200", "--json").json()["artifacts"]["named"], 0)

        shutil.copy(self.path("artifacts.db"), self.path("spoilt.db"))
        with sqlite3.connect(self.path("spoilt.db")) as spoilt:
            spoilt.execute("UPDATE artifact SET code = zeroblob(64) WHERE rowid IN (SELECT min(rowid) FROM artifact)")
            spoilt.execute("DELETE FROM artifact WHERE rowid IN (SELECT max(rowid) FROM artifact)")
        spoilt.close()
        before = self.content("spoilt.db")
        run = self.seqtile(*check, "spoilt.db", "--json")
        self.assertEqual(run.code, 1, run.out + run.err)
        self.assertEqual(run.json()["artifacts"]["bad_rows"], 1)
        self.assertEqual((run.json()["ok"], run.json()["bad_rows"]), (False, 0))
        self.assertRegex(run.out, r"binary \w+ .*: not written under this user's key, or damaged")
        self.assertRegex(run.out, r"spoilt.db: .* name .* missing: not ok; run `seqtile cache build .*spoilt.db`\n")
        self.assertEqual(self.content("spoilt.db"), before)
        self.assertEqual(self.seqtile("cache", "build", "--cache", "tuning.db", "--artifacts", "spoilt.db").code, 0)
        self.assertEqual(self.seqtile(*check, "spoilt.db").code, 0)
        with open(self.path("spoilt.db"), "r+b") as file:
            file.truncate(1500)
        run = self.seqtile(*check, "spoilt.db")
        self.assertEqual(run.code, 1, run.out + run.err)
        self.assertRegex(run.out, "spoilt.db: .*: not ok; the file is left as it is\n")
        self.assertRegex(run.err, "spoilt.db: .*; move it away or name another file")
        os.unlink(self.path("spoilt.db"))

    def test_cache_ls_show_stats(self):
        listed = self.seqtile("cache", "ls", "--cache", "tuning.db", "--json").json()
        self.assertGreater(len(listed["keys"]), 8)
        shown = self.seqtile("cache", "show", "linear", "--cache", "tuning.db", "--json").json()
        self.assertTrue(all(row["operation"] == "linear" for row in shown["records"]))
        self.assertEqual(self.seqtile("cache", "show", "softmax", "--cache", "tuning.db").code, 1)
        for number in "128", "1.28e2", "128.0":
            self.assertEqual(self.seqtile("cache", "show", "linear", "--set", f"n={number}", "--cache", "tuning.db").code, 0)
        for command in "show", "rm", "pin":
            run = self.seqtile("cache", command, "linear", "--set", "n=abc", "--cache", "tuning.db")
            self.assert_line(run, 2, "--set n=abc: this field of linear is a number")
        for command in ["cache", "show", "nosuch", "--cache", "tuning.db"], ["explain", "nosuch", "--length", "4", *self.stores]:
            self.assert_line(self.seqtile(*command), 2, "nosuch.*linear")
        stats = self.seqtile("cache", "stats", "--cache", "tuning.db", "--json").json()
        self.assertEqual(sum(stats["origins"].values()), stats["records"])

    def edited(self, name):
        """A copy of the prewarmed store, and the rows of all tables but records. No edit may lose these rows."""
        shutil.copy(self.path("tuning.db"), self.path(name))
        return ["--cache", name], self.rows(name, "env", "workload", "trial", "plan")

    def rows(self, name, *tables):
        with contextlib.closing(sqlite3.connect(self.path(name))) as store:
            return {table: store.execute(f"SELECT * FROM {table}").fetchall() for table in tables}

    def record_places(self, name):
        with contextlib.closing(sqlite3.connect(self.path(name))) as store:
            return store.execute("SELECT lo, hi, origin, config FROM record JOIN workload USING(workload_id) WHERE "
                                 "operation = 'linear' AND workload ->> 'n' = 128 AND workload ->> 'k' = 96").fetchall()

    def test_cache_rm(self):
        cache, others = self.edited("rm.db")
        chosen = ["linear", "--set", "n=128", "--set", "k=96", "--lengths", "40", *cache]
        before = self.rows("rm.db", "record")["record"]
        dry = self.seqtile("cache", "rm", *chosen, "--dry-run", "--json")
        self.assertRegex(dry.out, r"\n  \[37\.\.40\] would be removed (tuned|merged|default) .*\n.*nothing was written\n")
        self.assertEqual((dry.code, len(dry.json()["removed"]), dry.json()["dry_run"]), (0, 1, True))
        self.assertEqual(self.rows("rm.db", "record")["record"], before)
        run = self.seqtile("cache", "rm", *chosen, "--json")
        self.assertEqual((run.code, run.json()["removed"]), (0, dry.json()["removed"]), run.err)
        self.assertRegex(run.out, r"rm\.db: 1 record removed, \d+ trials? kept\n")
        after = self.rows("rm.db", "record")["record"]
        self.assertEqual((len(after), set(after) - set(before)), (len(before) - 1, set()))
        self.assertEqual(self.rows("rm.db", *others), others)
        again = self.seqtile("cache", "rm", *chosen, "--json")
        self.assertEqual((again.code, again.json()["removed"]), (1, []))
        self.assertEqual(self.seqtile("cache", "check", *cache).code, 0)

    def test_cache_rm_with_trials(self):
        cache, others = self.edited("rm_trials.db")
        run = self.seqtile("cache", "rm", "linear", "--set", "n=128", "--lengths", "33..48", "--trials", *cache)
        self.assertRegex(run.out, "1 record removed, [1-9][0-9]* trials? with them")
        left = self.rows("rm_trials.db", "trial")["trial"]
        gone = set(others["trial"]) - set(left)
        self.assertTrue(gone and set(left) < set(others["trial"]))
        self.assertEqual({row[3:5] for row in gone}, {(37, 40)})  # lo, hi
        tuned = self.seqtile("tune", *LINEAR, "--length", "40", *cache, "--artifacts", "artifacts.db", "--json")
        self.assertGreater(tuned.json()["trials"], 0, tuned.err)

    def test_cache_pin_and_unpin(self):
        cache, others = self.edited("pin.db")
        chosen = ["linear", "--set", "n=128", "--set", "k=96", *cache]
        (place,) = self.record_places("pin.db")
        self.assertEqual(self.seqtile("cache", "unpin", *chosen, "--json").json(), {"unpinned": [], "unchanged": 1, "dry_run": False})
        dry = self.seqtile("cache", "pin", *chosen, "--dry-run")
        self.assertIn("would be pinned", dry.out)
        self.assertEqual(self.record_places("pin.db"), [place])
        run = self.seqtile("cache", "pin", *chosen, "--json")
        self.assertEqual((run.code, len(run.json()["pinned"]), run.json()["pinned"][0]["new_origin"]), (0, 1, "pinned"), run.err)
        self.assertEqual(self.record_places("pin.db"), [(*place[:2], "pinned", place[3])])
        explained = self.seqtile("explain", *LINEAR, "--length", "40", *cache, "--artifacts", "artifacts.db", "--json").json()
        self.assertEqual(explained["origin"], "pinned")
        tuned = self.seqtile("tune", *LINEAR, "--length", "40", *cache, "--artifacts", "artifacts.db", "--json").json()
        self.assertEqual((tuned["trials"], tuned["complete"]), (0, True))
        self.assertEqual(self.seqtile("cache", "pin", *chosen, "--json").json()["unchanged"], 1)
        run = self.seqtile("cache", "unpin", *chosen, "--json")
        self.assertEqual(run.json()["unpinned"][0]["new_origin"], "tuned", run.out)
        self.assertEqual(self.record_places("pin.db"), [(*place[:2], "tuned", place[3])])
        self.assertEqual(self.rows("pin.db", *others), others)
        self.assertEqual(self.seqtile("cache", "check", *cache).code, 0)

    def test_cache_pin_of_another_configuration(self):
        cache, others = self.edited("pin_config.db")
        chosen = ["linear", "--set", "n=128", "--set", "k=96", *cache]
        (place,) = self.record_places("pin_config.db")
        with contextlib.closing(sqlite3.connect(self.path("pin_config.db"))) as store:
            other, median = store.execute("SELECT config, median_us FROM v_trials WHERE outcome = 'ok' AND lo = 37 AND "
                                          "operation = 'linear' AND workload ->> 'n' = 128 AND workload ->> 'k' = 96 AND "
                                          "config <> ? LIMIT 1", [place[3]]).fetchone()
        flags = [word for name, value in json.loads(other).items() for word in ("--config", f"{name}={value}")]
        run = self.seqtile("cache", "pin", *chosen, *flags, "--json")
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(run.json()["pinned"][0]["new_config"], json.loads(other))
        self.assertEqual(self.record_places("pin_config.db"), [(*place[:2], "pinned", other)])
        shown = self.seqtile("cache", "show", *chosen, "--json").json()["records"]
        self.assertAlmostEqual(shown[0]["median_us"], median, delta=0.01)
        explained = self.seqtile("explain", *LINEAR, "--length", "40", *cache, "--artifacts", "artifacts.db", "--json").json()
        self.assertEqual((explained["origin"], explained["config"]), ("pinned", json.loads(other)))
        self.assert_line(self.seqtile("cache", "pin", *chosen, "--config", "block_q=7"), 2, "no such parameter")
        refused = self.seqtile("cache", "pin", "linear", "--set", "n=128", *cache, "--config", "block_m=1000003")  # of two keys
        self.assert_line(refused, 2, r'^seqtile: linear {.*"k":\d+,"n":128,.*} on .* \[\d+\.\.\d+\]: --config block_m=1000003: no')
        self.assertEqual(self.rows("pin_config.db", *others), others)
        unpinned = self.seqtile("cache", "unpin", *chosen, "--json").json()["unpinned"]  # the tuner chose nothing here
        self.assertEqual([row["new_origin"] for row in unpinned], ["default"])

    def test_cache_diff(self):
        cache, _ = self.edited("diff.db")
        same = self.seqtile("cache", "diff", "tuning.db", "diff.db", "--json")
        self.assertEqual((same.code, same.json()["changed"], same.json()["only_a"]), (0, [], []))
        self.seqtile("cache", "pin", "linear", "--set", "n=128", "--lengths", "40", *cache)
        self.seqtile("cache", "rm", "rms_norm", "--lengths", "1..2", *cache)
        run = self.seqtile("cache", "diff", "tuning.db", "diff.db", "--json")
        found = run.json()
        self.assertEqual((run.code, len(found["changed"]), found["only_b"]), (1, 1, []), run.out)
        self.assertEqual(found["changed"][0]["new_origin"], "pinned")
        self.assertEqual({row["operation"] for row in found["only_a"]}, {"rms_norm"})
        self.assertRegex(run.out, r"\[37\.\.40\] \w+ .* -> pinned ")
        self.assertEqual(found["same"] + 1 + len(found["only_a"]), same.json()["same"])
        back = self.seqtile("cache", "diff", "diff.db", "tuning.db", "--json").json()
        self.assertEqual(back["only_b"], found["only_a"])
        self.assert_line(self.seqtile("cache", "diff", "tuning.db", "absent.db"), 2, "absent.db: no such file")
        self.assert_line(self.seqtile("cache", "diff", "tuning.db"), 2, "b is required")

    def test_cache_edits_refuse_what_names_nothing(self):
        self.edited("edits.db")
        for command in "rm", "pin", "unpin":
            for words, code, pattern in ((["nosuch", "--cache", "edits.db"], 2, "nosuch.*linear"),
                                         (["linear", "--set", "m=5", "--cache", "edits.db"], 2, "--set m: no record of linear.*k, "),
                                         (["linear", "--lengths", "9..2", "--cache", "edits.db"], 2, "--lengths 9..2"),
                                         (["linear", "--dtype", "int", "--cache", "edits.db"], 2, "--dtype int"),
                                         (["linear", "--ranks", "2", "--cache", "edits.db"], 2, "linear runs on one rank"),
                                         (["linear", "--cache", "absent.db"], 2, "absent.db: no such file"),
                                         (["--cache", "edits.db"], 2, "operation is required")):
                self.assert_line(self.seqtile("cache", command, *words), code, pattern)
            none = self.seqtile("cache", command, "linear", "--set", "n=5", "--cache", "edits.db")
            self.assertEqual((none.code, none.out), (1, "no such record in edits.db; see `seqtile cache show linear`\n"))
            self.assertEqual(self.seqtile("cache", command, "linear", "--device", "h200", "--cache", "edits.db").code, 1)
        self.assertEqual(self.rows("edits.db", "record"), self.rows("tuning.db", "record"))

    def test_cache_edits_of_files_that_cannot_be_written(self):
        self.edited("held.db")
        holder = sqlite3.connect(self.path("held.db"), isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        for command in "rm", "pin":
            self.assert_line(self.seqtile("cache", command, "linear", "--cache", "held.db"), 3, "held.db.*locked")
        holder.close()
        self.edited("fixed.db")
        os.chmod(self.path("fixed.db"), stat.S_IRUSR)
        if os.geteuid() != 0:
            self.assert_line(self.seqtile("cache", "rm", "linear", "--cache", "fixed.db"), 3, "fixed.db")
        for name in "held.db", "fixed.db":
            self.assertEqual(self.rows(name, "record"), self.rows("tuning.db", "record"))

    def test_cache_show_takes_the_same_choice(self):
        shown = self.seqtile("cache", "show", "linear", "--set", "n=128", "--set", "k=96", "--lengths", "40", "--json", "--cache",
                             "tuning.db").json()["records"]
        self.assertEqual([row["bucket"] for row in shown], [[37, 40]])
        self.assertEqual(shown[0]["workload"]["n"], 128)

    def test_devices(self):
        run = self.seqtile("devices", "--json")
        self.assertEqual(run.code, 0, run.err)
        cpu = run.json()["devices"][0]
        self.assert_fields(cpu, {"name": str, "kind": str, "facts": dict})
        self.assertEqual(cpu["kind"], "cpu")
        kinds = [device["kind"] for device in run.json()["devices"]]
        self.assertNotEqual("cuda" in kinds, "no_gpu" in run.json())
        if "cuda" not in kinds:
            self.assertRegex(run.out, r"(?m)^cuda: .+")
        self.assertIn("sm_90a", [device["facts"]["target"] for device in run.json()["devices"]])

    def test_devices_shows_the_version_of_the_driver(self):
        os.makedirs(self.path("driver"), exist_ok=True)
        os.symlink(self.fake_driver, self.path("driver/libcuda.so.1"))
        env = dict(self.env, LD_LIBRARY_PATH=self.path("driver"))
        run = self.seqtile("devices", "--json", env=dict(env, FAKE_CUDA="gpus=2 version=12040"))
        self.assertEqual(run.code, 0, run.err)
        versions = [device["facts"].get("cuda_driver") for device in run.json()["devices"] if device["kind"] == "cuda"]
        self.assertEqual(versions, ["12.4", "12.4"])
        self.assertRegex(run.out, r"(?m)^ +cuda_driver +12\.4$")
        run = self.seqtile("devices", "--json", env=dict(env, FAKE_CUDA="cuInit=100"))
        self.assertIn("the NVIDIA driver (CUDA 12.8) does not start", run.json()["no_gpu"])

    def test_compile_for_a_gpu(self):
        norm = ["compile", "rms_norm", "--set", "n=576", "--length", "64", "--dtype", "bf16", "--device", "sm_80"]
        none = dict(self.env, SEQTILE_PTXAS="none")
        run = self.seqtile(*norm, "--json", "--repeat", "2", env=none)
        self.assertEqual((run.code, run.json()["stage"]), (0, "ptx"))
        self.assertEqual(list(run.json()["repeat"]), ["ptx"])
        self.assertGreater(run.json()["repeat"]["ptx"]["ms"], 0)
        run = self.seqtile(*norm, "--emit", "ptx", "-o", "norm.ptx", env=none)
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.out, "kB of PTX, .* threads")
        self.assertIn(b".entry rms_norm", self.content("norm.ptx"))
        run = self.seqtile(*norm, "--emit", "cubin", "-o", "norm.cubin", env=none)
        self.assert_line(run, 2, "SEQTILE_PTXAS=none rules out ptxas")
        self.assert_line(self.seqtile(*norm, "--emit", "cubin"), 2, "--output")
        self.assert_line(self.seqtile(*norm, "--emit", "asm"), 2, "tile, ll, ptx and cubin")
        self.write("not_a_program", "")
        for path in "/absent", self.path("not_a_program"), self.work:
            run = self.seqtile(*norm, "--json", env=dict(self.env, SEQTILE_PTXAS=path))
            self.assert_line(run, 2, f"SEQTILE_PTXAS={path}: that is no program that can be run")
            self.assertEqual(run.json()["error"]["code"], "unsupported")
        run = self.seqtile(*norm, "--emit", "cubin", "-o", "norm.cubin", "--json")
        if run.code == 2:
            return  # this machine has no ptxas
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.out, r"\d+ registers a thread, spills 0 B stored and 0 B loaded")
        self.assert_fields(run.json(), {"registers": int, "spill_store_bytes": int, "ptxas_warnings": list})
        self.assertEqual(self.content("norm.cubin")[:4], b"\x7fELF")

    def test_simulate(self):
        run = self.seqtile("simulate", *NORM, "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        found = run.json()
        self.assert_fields(found, {"operation": str, "symbol": str, "device": str, "length": int, "config": dict,
                                   "outcome": str, "max_rel_err": NUMBER, "num_reports": int, "reports": list,
                                   "seconds": NUMBER, "counters": dict})
        self.assertEqual((found["outcome"], found["reports"], found["counters"]), ("ok", [], {}))
        self.assertIn("agrees with the reference", run.out)
        profiled = self.seqtile("simulate", *NORM, "--profile", "--seed", "3", "--json")
        self.assertEqual(profiled.code, 0, profiled.out + profiled.err)
        counters = profiled.json()["counters"]
        self.assertGreater(counters["memory_instructions"], 0)
        self.assertGreaterEqual(counters["global_bytes"], 2 * 9 * 96 * 4)
        self.assertRegex(profiled.out, r"bank_conflicts +0")

    def test_simulate_reports_what_a_changed_text_does_wrong(self):
        text = self.seqtile("compile", *NORM, "--device", "sm_80", "--emit", "ptx").out
        store = text.rindex("st.global")
        bracket = text.index("]", store)
        for name, changed, outcome, pattern in (
                ("same", text, "ok", "agrees"),
                ("out of bounds", text[:bracket] + "+1048576" + text[bracket:], "fault",
                 r"out of bounds.*PTX line \d+.*CTA"),
                ("a loop without end", text.replace("\n{\n", "\n{\nL9: bra L9;\n", 1), "fault",
                 r"limit: .*PTX line \d+ `L9: bra L9;`, CTA \d+ warp \d+: still running after \d+ instructions"),
                ("other values", re.sub(r"\{(%\w+), (%\w+), (%\w+), (%\w+)\};", r"{\2, \1, \3, \4};", text),
                 "wrong_result", r"row \d+, element \d+ is")):
            with self.subTest(name):
                self.write("changed.ptx", changed)
                run = self.seqtile("simulate", *NORM, "--ptx", "changed.ptx", "--json")
                self.assertEqual(run.json()["outcome"], outcome, run.out)
                self.assertEqual(run.code, 0 if outcome == "ok" else 1)
                self.assertRegex(run.out, pattern)
                self.assertEqual(run.json()["num_reports"] > 0, outcome == "fault")

    def test_simulate_refuses_what_a_device_does_not_execute(self):
        text = self.seqtile("compile", *NORM, "--device", "sm_80", "--emit", "ptx").out
        changes = {"newer.ptx": (".target sm_80", ".target sm_90a", r"PTX line \d+: .target sm_90a does not run on sim:sm_80"),
                   "form.ptx": ("ret;", "wgmma.fence.sync.aligned;\nret;", r"PTX line \d+: wgmma.fence.sync.aligned needs "
                                "sm_90a, the text says .target sm_80; have the text made for sm_90a"),
                   "local.ptx": ("ret;", ".local .b8 big[1000000];\nret;", "need 1000000 bytes, 524288 are available")}
        for name, (old, new, pattern) in changes.items():
            self.assertIn(old, text)
            self.write(name, text.replace(old, new, 1))
            code = 3 if name == "local.ptx" else 2
            self.assert_line(self.seqtile("simulate", *NORM, "--ptx", name), code, f"--ptx {name}: .*{pattern}")
        for device in "cuda", "cuda:0", "h200", "gpu":
            self.assert_line(self.seqtile("simulate", *NORM, "--device", device), 2,
                             f"--device {device}: is not simulated; use sim:sm_80 or sim:sm_90a")

    def test_simulate_a_kernel_from_elsewhere(self):
        self.write("add.ptx", "\ufeff" + FOREIGN.replace("\n", "\r\n"))
        with open(os.path.join(self.work, "sum.bin"), "wb") as file:
            file.write(struct.pack("<100f", *(2.0 * i + 2.5 for i in range(100))))
        command = ["simulate", "--ptx", "add.ptx", "--entry", "add", "--grid", "2", "--json"]
        call = ["--arg", "f32[100]=iota", "--arg", "f32[100]=@y.bin", "--arg", "f32[100]", "--arg", "i32=100"]
        with open(os.path.join(self.work, "y.bin"), "wb") as file:
            file.write(struct.pack("<100f", *(i + 2.5 for i in range(100))))
        run = self.seqtile(*command, *call, "--expect", "2=sum.bin", "--dump", "2=out.bin", "--profile", "--seed", "5")
        self.assertEqual(run.code, 0, run.out + run.err)
        found = run.json()
        self.assert_fields(found, {"file": str, "entry": str, "device": str, "grid": list, "block": list, "outcome": str,
                                   "num_reports": int, "reports": list, "buffers": list, "differences": list,
                                   "num_printed": int, "printed": list, "seconds": NUMBER, "counters": dict})
        self.assertEqual((found["outcome"], found["device"], found["block"]), ("ok", "sim:sm_80", [64, 1, 1]))
        self.assertIn("100 of 100 elements changed; 2.5 4.5 6.5 8.5 ...", found["buffers"][2])
        self.assertGreater(found["counters"]["memory_instructions"], 0)
        with open(os.path.join(self.work, "out.bin"), "rb") as out, open(os.path.join(self.work, "sum.bin"), "rb") as sums:
            self.assertEqual(out.read(), sums.read())
        self.assertIn("no reports", run.out)
        self.write("newer.ptx", FOREIGN.replace(".target sm_80", ".target sm_86"))
        self.write("newest.ptx", FOREIGN.replace(".target sm_80", ".target sm_89"))
        for device in [], ["--device", "sim:sm_80"], ["--device", "sim:sm_90a"]:
            run = self.seqtile(*command[:2], "newer.ptx", *command[3:], *call, *device)
            self.assertEqual((run.code, run.json()["device"]), (0, device[1] if device else "sim:sm_80"), run.out + run.err)
        self.assert_line(self.seqtile(*command[:2], "newest.ptx", *command[3:], *call, "--device", "sim:sm_80"), 2,
                         "--device sim:sm_80: the text is for sm_89; use sim:sm_90a")
        wrong = self.seqtile(*command, *call[:2], "--arg", "f32[100]=1.5", *call[4:], "--expect", "2=sum.bin")
        self.assertEqual((wrong.code, wrong.json()["outcome"]), (1, "wrong_result"), wrong.out)
        self.assertRegex(wrong.out, r"arg 2: 99 elements differ from sum.bin .*; element 0 is|arg 2: \d+ elements? differ")

    def test_simulate_finds_what_a_kernel_from_elsewhere_does_wrong(self):
        self.write("add.ptx", FOREIGN)
        full, index = ["--arg", "f32[100]=random:3"], ["--arg", "i32=100"]
        for entry, arguments, more, pattern in (
                ("add", full * 2 + ["--arg", "f32[90]"] + index, [], r"out of bounds: add, PTX line \d+ .*arg 2 \+ 360"),
                ("add", ["--arg", "f32[100]"] + full * 2 + index, [], r"uninitialised.*arg 0 \+ 0"),
                ("add", full + ["--arg", "null"] + full + index, [], r"out of bounds: .*0x0 \(in no buffer\)"),
                ("race", full, [], r"race: race, PTX line \d+"),
                ("spin", [], ["--max-instructions", "5000"], r"limit: spin, PTX line \d+ .*still running"),
                ("lost", [], ["--block", "64"], r"deadlock|barrier"),
                ("says", [], [], r"printed: thread 0")):
            with self.subTest(entry + " ".join(arguments)):
                run = self.seqtile("simulate", "--ptx", "add.ptx", "--entry", entry, "--grid", "2",
                                   *(more if "--block" in more or entry == "add" else ["--block", "64"] + more), *arguments, "--json")
                self.assertEqual(run.code, 0 if entry == "says" else 1, run.out + run.err)
                self.assertRegex(run.out, pattern)

    def test_simulate_reports_every_access_beyond_a_buffer(self):
        """No access lands in another buffer."""
        self.write("add.ptx", FOREIGN)
        full = ["--arg", "f32[128]=random:3"]
        for short in range(3):
            buffers = [full] * short + [["--arg", "f32[100]=zeros"]] + [full] * (2 - short)
            run = self.seqtile("simulate", "--ptx", "add.ptx", "--entry", "add", "--grid", "2", *sum(buffers, []), "--arg",
                               "i32=128", "--json")
            self.assertEqual((run.code, run.json()["num_reports"]), (1, 28), run.out + run.err)

    def test_simulate_refuses_a_foreign_kernel_by_its_cause(self):
        self.write("add.ptx", FOREIGN)
        start = ["simulate", "--ptx", "add.ptx"]
        entry, grid = ["--entry", "add"], ["--grid", "2"]
        full = ["--arg", "f32[100]=zeros"] * 3
        for arguments, pattern in (
                (grid, r"--entry NAME is needed: the kernels of add.ptx are add, race, spin, lost, says, unknown"),
                (["--entry", "sub"] + grid, r"--entry sub: add.ptx has no such kernel; its kernels are add, race"),
                (["--entry", "unknown"] + grid, r"--ptx add.ptx: PTX line \d+: the machine does not know the form tcgen05"),
                (entry + full + ["--arg", "i32=1"], r"--grid X,Y,Z is needed"),
                (["--entry", "spin"] + grid, r"--block X,Y,Z is needed"),
                (entry + grid + ["--arg", "null"], r"1 --arg given, 'add' has 4 parameters: .u64 x \(pointer\), .u64 y, "
                                                   r".u64 z, .u32 n"),
                (entry + grid + full + ["--arg", "i64=1"], r"--arg i64=1: a value of 8 bytes; argument 3 of 'add' is n of 4 bytes"),
                (entry + grid + full + ["--arg", "f32=1"], r"a value of type f32 where .u32 is declared"),
                (entry + grid + ["--arg", "i32=1"] * 4, r"--arg i32=1: a value of 4 bytes; argument 0 of 'add' is x of 8 bytes"),
                (entry + grid + ["--arg", "f33[4]"] * 4, r"--arg f33\[4\]: there is no type 'f33'; a buffer such as"),
                (entry + grid + ["--arg", "f32[0]"] * 4, r"at least one element"),
                (entry + grid + ["--arg", "i8=200"] * 4, r"--arg i8=200: 200 does not fit i8"),
                (entry + grid + ["--arg", "f32[4]=@none"] * 4, r"none"),
                (entry + grid + ["--arg", "raw=zz"] * 4, r"hexadecimal"),
                (entry + grid + ["--arg", "same=0"] * 4, r"argument 0 is no buffer that stands before it"),
                (entry + grid + ["--arg", "f32[2000000000]"] + full[2:] + ["--arg", "i32=1"],
                 r"--arg f32\[2000000000\]: 2000000000 elements of 4 bytes, 4294967296 bytes of the 4 GiB"),
                (entry + grid + ["--arg", "f32[16]", "--arg", "f32[1073741820]"] + full[4:] + ["--arg", "i32=1"],
                 r"--arg f32\[1073741820\]: 1073741820 elements of 4 bytes, 4294967232 bytes of the 4 GiB"),
                (entry + ["--grid", "0"], r"--grid 0: X, X,Y or X,Y,Z of whole numbers from 1"),
                (entry + ["--grid", "1,70000"], r"--grid 1,70000: 70000 along y, at most 65535"),
                (entry + ["--grid", "20000000"], r"20000000 blocks, at most 16777216 are simulated"),
                (entry + grid + ["--block", "32"] + full + ["--arg", "i32=1"], r"a block of 32,1,1, the kernel requires 64,1,1"),
                (entry + grid + ["--shared", "200000"] + full + ["--arg", "i32=1"], r"a block of sim:sm_80 has 166912"),
                (entry + grid + full + ["--arg", "i32=1", "--dump", "3=x"], r"--dump 3=x: argument 3 is no buffer"),
                (entry + grid + full + ["--arg", "i32=1", "--expect", "0=add.ptx"], r"add.ptx has \d+ bytes, 400 are needed"),
                (entry + grid + full + ["--arg", "i32=1", "--device", "cpu"], r"--device cpu: is not simulated")):
            with self.subTest(" ".join(arguments)):
                self.assert_line(self.seqtile(*start, *arguments), 2, pattern)
        self.assert_line(self.seqtile("simulate", *NORM, "--grid", "2"), 2, "--grid: belongs to a kernel of a text")
        self.assert_line(self.seqtile("simulate"), 2, "an operation is needed, or --ptx FILE with --entry NAME")

    def test_simulate_says_what_a_file_is_that_is_no_ptx(self):
        elf = b"\x7fELF" + bytes(14) + b"\xbe\x00" + bytes(44)
        for content, pattern in ((b"", "empty"), (elf, "a cubin"), (elf.replace(b"\xbe", b"\x3e"), "an ELF file"),
                                 (b"\x50\xed\x55\xba" + bytes(12), "a fatbinary"), (b"BC\xc0\xde123", "LLVM bitcode"),
                                 (b"; ModuleID = 'k'\ntarget triple = \"nvptx64\"\n", "LLVM IR"),
                                 (b"<!DOCTYPE html>\n<html>", "an HTML page"), (b"\x1f\x8b\x08", "gzip"),
                                 (b"version https://git-lfs.github.com/spec/v1\n", "a git-lfs pointer"),
                                 (".version".encode("utf-16"), "UTF-16"), (b"\t.headerflags @\"EF_CUDA_SM80\"\n", "SASS"),
                                 (b"#include <a.h>\n__global__ void k() {}", "nvcc -ptx"),
                                 (b"module { tt.func @k() }", "Triton IR"), (b"a\0b", "binary"), (b"hello", "without .version")):
            with self.subTest(pattern):
                with open(os.path.join(self.work, "k.ptx"), "wb") as file:
                    file.write(content)
                self.assert_line(self.seqtile("simulate", "--ptx", "k.ptx", "--entry", "k", "--grid", "1"), 2,
                                 f"--ptx k.ptx: is not PTX but .*{pattern}")

    def test_simulate_says_how_far_it_is(self):
        terminal, end = os.openpty()
        command = [self.program, "simulate", *LINEAR, "--length", "100000"]
        with subprocess.Popen(command, cwd=self.work, env=self.env, stdout=subprocess.DEVNULL, stderr=end) as child:
            os.close(end)
            shown = b""
            try:
                while b"warp instructions" not in shown:
                    shown += os.read(terminal, 4096)
            except OSError:
                pass  # the program ended
            child.kill()
        os.close(terminal)
        self.assertRegex(shown.decode(), r"simulate \[.*\d+ of [\d,]+ blocks? ended, [\d,]+ warp instructions")

    def test_other_commands_on_a_simulated_gpu(self):
        device = ["--device", "sim:sm_80", "--cache", "tuning.db"]
        explained = self.seqtile("explain", *NORM, *device, "--json")
        self.assertEqual(explained.code, 1, explained.err)
        self.assertEqual(explained.json()["origin"], "default")
        self.assertIn("num_warps", explained.json()["config"])
        proved = self.seqtile("prove", *self.model_flags, *device, "--artifacts", "artifacts.db", "--json")
        self.assertEqual((proved.code, proved.json()["covered"]), (1, 0), proved.err)
        replay = self.seqtile("replay", "--model", "model.json", "--requests", "trace.csv", "--lengths", "1..32", *device,
                              "--artifacts", "gpu_artifacts.db", "--policy", "nearest", "--execute", "1ms", "--json")
        self.assertEqual(replay.code, 0, replay.out + replay.err)
        self.assertGreater(replay.json()["executed"], 5)
        self.assertEqual(replay.json()["verified"], replay.json()["executed"])

    def test_devices_lists_profiles(self):
        run = self.seqtile("devices", "--json")
        profiles = {profile["profile"]: profile for profile in run.json()["profiles"]}
        self.assertEqual(set(profiles), {"h200", "h100_sxm", "a100"})
        self.assertEqual(profiles["h200"]["facts"]["sm"], "90")
        self.assertTrue(profiles["a100"]["sources"])

    def test_prewarm_for_a_gpu_that_is_not_here(self):
        flags = ["--device", "a100", "--model", "model.json", "--lengths", "1..32"]
        stores = ["--cache", "a100.db", "--artifacts", "a100_artifacts.db"]
        plan = self.seqtile("prewarm", *flags, *stores, "--dry-run", "--json")
        self.assertEqual(plan.code, 0, plan.err)
        run = self.seqtile("prewarm", *flags, *stores, "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        found = run.json()
        self.assertTrue(found["covered"] and found["complete"])
        self.assertEqual(found["modelled"], found["buckets"])
        self.assertEqual(found["buckets"], plan.json()["buckets"])
        self.assertLess(found["binaries"], found["buckets"])
        self.assertEqual(self.seqtile("prewarm", *flags, *stores, "--json").json()["trials"], 0)
        proof = self.seqtile("prove", *flags, *stores, "--json")
        self.assertEqual(proof.code, 0, proof.out)
        self.assertIn(set(proof.json()["binaries"]), ({"ptx"}, {"cubin"}))
        self.assertEqual(self.seqtile("prove", "--device", "h200", *flags[2:], *stores).code, 1)
        answer = self.seqtile("explain", "linear", "--set", "n=128", "--set", "k=192", "--dtype", "f32", "--device",
                              "a100", "--length", "9", "--cache", "a100.db", "--json")
        self.assertEqual(answer.json()["origin"], "modelled", answer.out)
        self.assertRegex(answer.out, "predicted for length 16")
        self.assertRegex(answer.out, "nothing was measured")

    def test_explain_says_how_a_gpu_does_the_products(self):
        for device, length, loop in (("h200", "8", "portable: 16 rows are not 64 for each of 1 warp groups"),
                                     ("h200", "512", "wgmma"),
                                     ("a100", "8", "portable: sm_80 has no wgmma")):
            config = ["linear", "--set", "n=4096", "--set", "k=4096", "--dtype", "bf16", "--length", length]
            tune = self.seqtile("tune", *config, "--device", device, "--cache", "loops.db", "--artifacts", "loops_artifacts.db",
                                env=dict(self.env, SEQTILE_PTXAS="none"))
            self.assertEqual(tune.code, 0, tune.err)
            run = self.seqtile("explain", *config, "--device", device, "--cache", "loops.db", "--artifacts",
                               "loops_artifacts.db", "--json")
            self.assertEqual(run.code, 0, run.err)
            self.assertRegex(run.json()["loop"], f"^({loop})$")
            self.assertIn("  loop of products: " + run.json()["loop"], run.out)
        run = self.seqtile("explain", *NORM, "--device", "h200", "--cache", "loops.db", "--json")
        self.assertEqual(run.json()["loop"], "", run.err)

    def gpu_env(self, told):
        """An environment with the fake driver, which takes launches and does nothing."""
        folder = self.path("fake_gpu")
        if not os.path.exists(folder):
            os.makedirs(folder)
            os.symlink(self.fake_driver, folder + "/libcuda.so.1")
        return dict(self.env, LD_LIBRARY_PATH=folder, SEQTILE_PTXAS="none", FAKE_CUDA=told)

    def test_gpus_that_do_not_serve(self):
        for told, pattern in (("gpus=0", "no GPU cuda:0; .* shows 0 of them; look at CUDA_VISIBLE_DEVICES"),
                              ("sm=75", "compute capability 7.5; kernels need at least 8.0; take a newer GPU, the CPU"),
                              ("version=11040", "CUDA 11.4, at least 12.0 is needed .*; update the driver")):
            run = self.seqtile("tune", *NORM, "--device", "cuda", "--cache", "no_gpu.db", env=self.gpu_env(told))
            self.assert_line(run, 3, pattern)
            self.assertEqual(run.err.count("\n"), 1, run.err)

    def test_a_gpu_out_of_memory_in_the_middle_of_tuning(self):
        tune = ["tune", *NORM, "--device", "cuda", "--cache", "oom.db", "--artifacts", "oom_artifacts.db", "--json"]
        run = self.seqtile(*tune, env=self.gpu_env("cuMemAllocFromPoolAsync=2"))
        self.assertEqual((run.code, run.json()["covered"]), (1, False), run.err)
        self.assertRegex(run.err, r"no candidate works: \d+ oom, cuda:0: allocate \d+ bytes \(12345 of 67890 are free\): "
                                  r"CUDA_ERROR_OUT_OF_MEMORY .*; free memory of the GPU.* \(first \{")
        self.assertEqual(run.err.count("OUT_OF_MEMORY"), 1, run.err)  # one reason for any number of candidates
        self.assertEqual(self.outcomes("oom.db"), {"oom"})
        again = self.seqtile(*tune, env=self.gpu_env(""))  # there is room now, and the fake driver computes nothing
        self.assertGreater(again.json()["trials"], 0)
        self.assertEqual(self.outcomes("oom.db") & {"oom"}, set())
        self.assertIn("wrong_result", self.outcomes("oom.db"))

    def outcomes(self, cache):
        with sqlite3.connect(self.path(cache)) as stored:
            found = {row[0] for row in stored.execute("SELECT DISTINCT outcome FROM trial")}
        stored.close()
        return found

    def test_a_ptxas_that_crashes_on_one_kernel(self):
        self.write_cubin("crash.cubin")
        self.write("ptxas_crashes", f"#!/bin/sh\ngrep -q 'entry smallest' \"$3\" && exec cp {self.path('crash.cubin')} \"$5\"\n"
                                    "kill -SEGV $$\n")
        os.chmod(self.path("ptxas_crashes"), 0o755)
        run = self.seqtile("compile", *NORM, "--device", "sm_90a", env=dict(self.env, SEQTILE_PTXAS=self.path("ptxas_crashes")))
        self.assert_line(run, 3, r"for sm_90a: signal 11 .*set SEQTILE_PTXAS to another ptxas, or to none")

    def test_a_ptxas_that_does_not_work_is_as_good_as_none(self):
        norm, flags = ["rms_norm", "--set", "n=64"], ["--device", "h200", "--lengths", "1..64", "--json"]
        for name, body in ("fails", "exit 1"), ("hangs", "sleep 1000"):
            self.write(f"ptxas_{name}", f"#!/bin/sh\necho x >> {self.path(name)}\n{body}\n")
            os.chmod(self.path(f"ptxas_{name}"), 0o755)
            env = dict(self.env, SEQTILE_PTXAS=self.path(f"ptxas_{name}"))
            stores = ["--cache", f"{name}.db", "--artifacts", f"{name}_artifacts.db"]
            run = self.seqtile("tune", *norm, *stores, *flags, env=env)
            self.assertEqual((run.code, run.json()["covered"]), (0, True), run.err)
            self.assertEqual(self.content(name), b"x\n")
            self.assertEqual(len(re.findall(r"ptxas_\w+ does not work \((?:exit status 1|no answer within 10 s): .*\); "
                                            r"kernels stay PTX.*install it again, or set SEQTILE_PTXAS", run.err)), 1, run.err)
            stored = sqlite3.connect(self.path(f"{name}_artifacts.db"))
            self.assertEqual(stored.execute("SELECT DISTINCT stage FROM artifact").fetchall(), [("ptx",)])
            stored.close()
        run = self.seqtile("compile", *norm, "--length", "4", "--device", "sm_80", "--emit", "cubin", "-o", "no.cubin",
                           env=dict(self.env, SEQTILE_PTXAS=self.path("ptxas_fails")))
        self.assert_line(run, 2, "--emit cubin: no ptxas that works")
        self.assertIn("ptxas_fails does not work", run.err)

    def test_what_ptxas_refuses_is_said_and_kept(self):
        self.write_cubin("smallest.cubin")
        self.write("ptxas.sh", "#!/bin/sh\ngrep -q 'entry smallest' \"$3\" && exec cp smallest.cubin \"$5\"\n"
                               "echo 'ptxas fatal : out of cheese' >&2\nexit 255\n")
        os.chmod(self.path("ptxas.sh"), 0o755)
        broken, none = (dict(self.env, SEQTILE_PTXAS=name) for name in (self.path("ptxas.sh"), "none"))
        norm, cache = ["rms_norm", "--set", "n=64", "--device", "h200"], ["--cache", "refused.db"]
        tune = ["tune", *norm, "--lengths", "1..64", *cache, "--artifacts", "refused_artifacts.db", "--json"]
        run = self.seqtile(*tune, env=broken)
        self.assertEqual((run.code, run.json()["covered"]), (1, False))
        self.assertEqual(run.err.count("out of cheese"), 1, run.err)
        self.assertRegex(run.err, r"no candidate .* in (\d+) of \1 buckets; where .*ptxas\.sh refuses.*or to none: .*PTX")
        self.assertEqual(run.json()["failed_buckets"], run.json()["buckets"])
        self.assertRegex(run.out, r"\d+ buckets without a record: no candidate works there")
        self.assertNotIn("Run the command again", run.out)
        explain = ["explain", *norm, "--length", "33", *cache, "--json"]
        explained = self.seqtile(*explain).json()
        refused = explained["refused"]
        self.assertTrue(refused)
        self.assertRegex(explained["reason"], r"tuning has refused every one of \d+ candidates, most often: \d+ refused, .*out of "
                                              r"cheese.*; where the assembler refuses them, set SEQTILE_PTXAS to another, or "
                                              r"to none, and run `seqtile tune rms_norm .*--device h200 .*`; on the GPU "
                                              r"`seqtile tune rms_norm .*--device cuda .*` tries all of them again$")
        self.assertEqual({trial["outcome"] for trial in refused}, {"refused"})
        self.assertIn("out of cheese", refused[0]["detail"])
        run = self.seqtile(*tune, env=none)
        self.assertEqual((run.code, run.json()["covered"]), (0, True), run.err)

    def test_a_second_tuning_of_a_gpu_that_is_not_here_waits(self):
        tune = [self.program, "tune", "linear", "--set", "n=512", "--set", "k=512", "--device", "h200", "--lengths",
                "1..256", "--artifacts", "twice_artifacts.db", "--json", "--cache"]
        runs = [subprocess.Popen([*tune, path], cwd=self.work, env=self.env, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL) for path in ("twice.db", self.path("twice.db"))]
        found = [json.loads(run.communicate(timeout=240)[0].rstrip("\n").split("\n")[-1]) for run in runs]
        self.assertEqual([run.returncode for run in runs], [0, 0])
        self.assertTrue(all(one["complete"] for one in found))
        self.assertEqual(sorted(one["trials"] > 0 for one in found), [False, True], found)

    def test_a_tuning_says_whom_it_waits_for(self):
        folder = self.env["SEQTILE_LOCK_DIR"]
        with contextlib.ExitStack() as locks:
            for name in os.listdir(folder):
                if name.endswith(".lock"):  # the lock of the CPU, and locks of other tests' devices
                    file = locks.enter_context(open(os.path.join(folder, name), encoding="utf-8"))
                    fcntl.flock(file, fcntl.LOCK_EX)
            # The lock holds for all processes that tune, wherever their stores lie.
            other = dict(self.env, SEQTILE_CACHE_DIR=self.path("others_cache"), SEQTILE_CONFIG_DIR=self.path("others"))
            run = self.seqtile("tune", *NORM, "--cache", "waits.db", "--budget", "1500ms", env=other)
            self.assert_line(run, 3, r"process \d+ was tuning for this device for the whole budget")
        self.assertEqual(len(re.findall(r"waiting for process \d+, which tunes for cpu.*; its lock is in .*/locks",
                                        run.err)), 1, run.err)

    def test_no_default_stores(self):
        bare = {name: value for name, value in self.env.items()
                if name not in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "SEQTILE_CACHE_DIR", "SEQTILE_CONFIG_DIR")}
        none = "there is no default, as none of SEQTILE_CACHE_DIR, XDG_CACHE_HOME and HOME is set"
        for command in (["cache", "check"], ["prove", *self.model_flags], ["prewarm", *self.model_flags],
                        ["explain", *NORM]):
            run = self.seqtile(*command, env=bare)
            self.assert_line(run, 2, f"^seqtile: --cache: {none}; give --cache FILE")
            self.assertEqual(run.err.count("\n"), 1, run.err)
        run = self.seqtile("cache", "build", "--cache", "tuning.db", env=bare)
        self.assert_line(run, 2, f"--artifacts: {none}; give --artifacts FILE")
        run = self.seqtile("bench", "rows", env=bare)
        self.assert_line(run, 2, f"^seqtile bench: --cache: {none}; give --cache FILE, behind -- of `seqtile bench`")
        self.assertFalse(os.path.exists(self.path("bench.db")))
        self.assertEqual(self.seqtile("bench", "--list", env=bare).code, 0)
        run = self.seqtile("cache", "check", "--cache", "tuning.db", env=bare)
        self.assertEqual(run.code, 0, run.err)

    def test_a_link_to_nothing_is_no_store(self):
        os.symlink("nowhere.db", self.path("link.db"))
        for command in (["cache", "check"], ["prove", *self.model_flags], ["prewarm", *self.model_flags]):
            run = self.seqtile(*command, "--cache", "link.db")
            self.assert_line(run, 2, "--cache link.db: is a symbolic link to nothing; remove it, or give another path")
        self.assertFalse(os.path.exists(self.path("nowhere.db")))

    def test_a_killed_writer_costs_nothing(self):
        flags = [*self.model_flags, "--cache", "killed.db", "--artifacts", "killed_artifacts.db"]
        script = ("import os, sqlite3, sys\n"
                  "for path, table in zip(sys.argv[1:], ('trial', 'artifact')):\n"
                  "    db = sqlite3.connect(path, isolation_level=None)\n"
                  "    db.execute('PRAGMA cache_size=1')\n"
                  "    db.execute('BEGIN IMMEDIATE')\n"
                  "    db.execute(f'CREATE TABLE note AS SELECT a.* FROM {table} a, {table} b LIMIT 20000')\n"
                  "os._exit(9)\n")
        for command in (["cache", "check", "--cache", "killed.db", "--artifacts", "killed_artifacts.db"],
                        ["prove", *flags], ["replay", *flags, "--requests", "trace.csv"],
                        ["explain", *LINEAR, "--length", "40", *flags[-4:]]):
            for name in "tuning.db", "artifacts.db":
                shutil.copy(self.path(name), self.path(name.replace("tuning", "killed").replace("art", "killed_art")))
            names = "killed.db", "killed_artifacts.db"
            self.assertEqual(subprocess.run([sys.executable, "-c", script, *names], cwd=self.work).returncode, 9)
            for name in names:
                self.assertGreater(os.path.getsize(self.path(name + "-journal")), 0)
            run = self.seqtile(*command)
            self.assertEqual(run.code, 0, run.out + run.err)
            self.assertFalse(os.path.exists(self.path("killed.db-journal")))

    def test_a_restored_dump_is_a_store(self):
        with sqlite3.connect(self.path("tuning.db")) as old, sqlite3.connect(self.path("restored.db")) as new:
            new.executescript("\n".join(old.iterdump()))
            self.assertEqual(new.execute("PRAGMA application_id").fetchone()[0], 0)
        before = self.content("restored.db")
        check = self.seqtile("cache", "check", "--cache", "restored.db", "--json")
        self.assertEqual(check.code, 0, check.out + check.err)
        whole = self.seqtile("cache", "check", "--cache", "tuning.db", "--json").json()
        self.assertEqual(check.json()["rows"], whole["rows"])
        self.assertEqual(self.content("restored.db"), before)
        prove = self.seqtile("prove", *self.model_flags, "--cache", "restored.db", "--artifacts", "artifacts.db")
        self.assertEqual(prove.code, 0, prove.out + prove.err)

    def test_tune_on_a_simulated_gpu(self):
        flags = ["tune", "rms_norm", "--set", "n=64", "--device", "sim:sm_80", "--lengths", "3..4", "--cache", "sim.db",
                 "--artifacts", "sim_artifacts.db", "--json"]
        run = self.seqtile(*flags)
        self.assertEqual(run.code, 0, run.out + run.err)
        self.assertTrue(run.json()["complete"])
        self.assertGreater(run.json()["tunings"], 0)
        self.assertEqual(self.seqtile(*flags).json()["trials"], 0)
        answer = self.seqtile("explain", "rms_norm", "--set", "n=64", "--device", "sim:sm_80", "--length", "3",
                              "--cache", "sim.db", "--json")
        self.assertEqual(answer.json()["origin"], "modelled")

    def test_trace_of_ranks(self):
        gather = ["timeline", "fused_allgather_and_linear", "--set", "n=64", "--set", "k=64", "--length", "40"]
        run = self.seqtile(*gather, "--calls", "2", "--cache", "trace.db", "--artifacts", "trace_artifacts.db",
                           "-o", "ranks.json", "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        self.assertEqual(run.json()["ranks"], 2)
        with open(self.path("ranks.json"), encoding="utf-8") as file:
            items = json.load(file)["traceEvents"]
        self.assertEqual({item["pid"] for item in items}, {0, 1})
        self.assertIn("push", {item["name"] for item in items})
        self.assert_line(self.seqtile(*gather, "--fabric", "smoke"), 2, "--fabric smoke: unknown; use threads.* mpi$")
        many = [*gather[:-1], str(10**11), "-o", "many.json"]
        self.assert_line(self.seqtile(*many), 3, rf"at length {10**11} need \d+ bytes of .*; take shorter lengths")
        for more, why in ((["absent/ranks.json"], "there is no folder absent; make it"),
                          (["absent/ranks.json", "--fabric", "processes"], "there is no folder absent; make it"),
                          (["."], "is a folder; give")):
            run = self.seqtile(*gather, "--cache", "absent.db", "-o", *more)
            self.assert_line(run, 2, f"--output {re.escape(more[0])}: {why}")
            self.assertEqual(run.err.count("\n"), 1, run.err)  # an engine would report a missing absent.db
        told = self.seqtile(*gather, "--calls", "1", "-o", "-")
        self.assertIn("traceEvents", json.loads(told.out))
        self.assertFalse(os.path.exists(self.path("-")))
        self.assert_line(self.seqtile("timeline", *LINEAR[:5], "--length", "4"), 2,
                         "timeline linear: the operation does not communicate; .*fused_allgather_and_linear")
        picture = self.seqtile(*gather, "--calls", "1", "--fabric", "processes", "--cache", "trace.db", "-o", "ranks.svg")
        self.assertEqual(picture.code, 0, picture.out + picture.err)
        with open(self.path("ranks.svg"), encoding="utf-8") as file:
            self.assertIn("<title>rank 1", file.read())

    def test_compile(self):
        for stage, pattern in (("tile", r"dot"), ("ll", r"define .*"), ("asm", r"ret")):
            run = self.seqtile("compile", *LINEAR, "--length", "40", "--emit", stage, "--json")
            self.assertEqual(run.code, 0, run.err)
            self.assertRegex(run.out, pattern)
            self.assert_fields(run.json(), {"symbol": str, "target": str, "code_bytes": int, "compile_ms": NUMBER})

    def test_compile_to_standard_output(self):
        for emit in ["--emit", "asm"], ["--device", "sm_80", "--emit", "ptx"]:
            text = self.seqtile("compile", *LINEAR, "--length", "40", *emit)
            run = self.seqtile("compile", *LINEAR, "--length", "40", *emit, "-o", "-")
            self.assertEqual((run.code, run.out), (0, text.out), run.err)
        self.assertFalse(os.path.exists(self.path("-")))
        run = self.seqtile("compile", *LINEAR, "--length", "40", "--device", "sm_80", "--emit", "cubin", "-o", "-", "--json")
        self.assert_line(run, 2, "--emit cubin: .*without --json")

    def test_compile_for_a_target_of_another_machine(self):
        run = self.seqtile("compile", "rms_norm", "--set", "n=576", "--length", "64", "--emit", "ll",
                           env=dict(self.env, SEQTILE_CPU_TARGET="neon"))
        if run.code == 0:
            self.assertRegex(run.out, "target triple = .aarch64")
        else:  # a static build leaves AArch64 out
            self.assert_line(run, 2, "neon.*no code")

    def test_compile_for_gpus(self):
        norm = ["compile", "rms_norm", "--set", "n=576", "--length", "64", "--dtype", "bf16"]
        none = dict(self.env, SEQTILE_PTXAS="none")
        for target in ("sm_80", "sm_90a"):
            run = self.seqtile(*norm, "--device", target, "--emit", "ptx", "--json", env=none)
            self.assertEqual(run.code, 0, run.err)
            self.assertRegex(run.out, rf"(?s)\.target {target}\b.*\.visible \.entry")
            found = run.json()
            self.assert_fields(found, {"operation": str, "symbol": str, "target": str, "stage": str, "code_bytes": int,
                                       "threads": int, "shared_bytes": int, "compile_ms": NUMBER, "config": dict})
            self.assertEqual((found["target"], found["stage"], found["threads"] % 32), (target, "ptx", 0))
            self.assertIn(f".visible .entry {found['symbol']}(", run.out)
        self.assertRegex(self.seqtile(*norm, "--device", "sm_80", "--emit", "ll").out, "target triple = .nvptx64")
        self.assertRegex(self.seqtile(*norm, "--device", "sm_80", "--emit", "tile").out, r"kernel @.*num_warps")
        self.assertRegex(self.seqtile(*norm, "--device", "sm_80", env=none).out,
                         r"of PTX, \d+ threads and .* of shared memory")

    def test_compile_for_what_does_not_fit(self):
        norm = ["compile", "rms_norm", "--set", "n=576", "--length", "64"]
        for target, emit, pattern in (("sm_70", "ptx", "unknown GPU target.*sm_70.*sm_80 and sm_90a"),
                                      ("avx1024", "asm", 'unknown device "avx1024"; .*avx512.*sm_90a'),
                                      ("sm_80", "asm", "--emit asm.*sm_80 has no such stage.*ptx"),
                                      ("generic", "ptx", "--emit ptx.*generic has no such stage.*asm"),
                                      ("sm_80", "tree", "--emit.*tree")):
            self.assert_line(self.seqtile(*norm, "--device", target, "--emit", emit), 2, pattern)

    def test_plain_words(self):
        run = self.seqtile("tune", "rms_norm", "--set", "n=64", "--threads", "1", "--length", "3",
                           "--cache", "words.db", "--artifacts", "words_artifacts.db")
        self.assertEqual(run.code, 0, run.err)
        self.assertIn("1 operation, 1 bucket in 1 range:", run.out)
        self.assertNotIn("rms_norm rms_norm", run.err)
        listed = self.seqtile("cache", "ls", "--cache", "tuning.db")
        self.assertLess(max(len(line) for line in listed.out.split("\n")), 161)

    def test_operations_lists_them_and_the_fields_of_one(self):
        every = {op["operation"]: op for op in self.seqtile("operations", "--json").json()["operations"]}
        self.assertTrue({"linear", "rms_norm", "all_reduce"} <= every.keys())
        for name, op in every.items():
            self.assertTrue(op["summary"] and op["fields"], name)
        self.assertTrue(every["all_reduce"]["over_ranks"] and not every["linear"]["over_ranks"])
        run = self.seqtile("operations", "act_and_mul", "--json")
        for command in ("compile", "tune", "explain"):
            self.assert_line(self.seqtile(command, "all_gather", "--set", "n=64", "--length", "8"), 2,
                             "all_gather runs on several ranks; give their number, for example --ranks 2")
        self.assertRegex(run.out, r"n +1\.\.524288 +none: give it\n")
        self.assertRegex(run.out, r"activation +.*gelu_tanh.* +silu\n")
        self.assertRegex(self.seqtile("operations", "rope").out, r"rotary_dim +2\.\.1024 +follows other fields\n")
        for name, op in every.items():
            given = [word for field in op["fields"] if "default" in field or field.get("required")
                     for word in ("--set", f"{field['field']}={field.get('default', 64)}")]
            if not op["over_ranks"]:
                self.assertEqual(self.seqtile("compile", name, "--length", "8", *given).code, 0, name)
        self.assert_line(self.seqtile("operations", "act_and_mull"), 2, "did you mean act_and_mul")
        self.assert_line(self.seqtile("compile", "linear", "--set", "n=96,k=3", "--length", "1"), 2,
                         "--set 'n=96,k=3': one --set gives one field; write --set for each")

    def test_help_has_the_commands_in_groups(self):
        text = self.seqtile("--help").out
        groups = re.findall(r"^([A-Z][a-z]+):\n((?:  +\S.*\n)+)", text, re.M)
        found = {name: re.findall(r"^  (\S+)", lines, re.M) for name, lines in groups if name != "Options"}
        self.assertEqual(found, {"Tune": ["prewarm", "tune", "prove"], "Serve": ["replay", "report", "explain"],
                                 "Look": ["cache", "devices", "operations", "compile", "simulate", "timeline"], "Plan": ["plan"],
                                 "Bench": ["bench"]})
        self.assertRegex(text, "70 a bug of this program")

    def told(self):
        """All commands with their flags, from --help."""
        found, left = {}, [[]]
        while left:
            command = left.pop()
            text = self.seqtile(*command, "--help").out
            flags = re.findall(r"^  ((?:-\w,)?--[\w-]+|-\w\b)", text, re.M)
            found[" ".join(command)] = {name for names in flags for name in names.split(",")}
            groups = text[text.index("Options:"):].split("\n\n")[1:]
            heads = ("Tune", "Serve", "Look", "Plan", "Bench", "Subcommands")
            left += [[*command, name] for group in groups if group.split(":")[0] in heads
                     for name in re.findall(r"^  (\w+)", group, re.M)]
        return found

    def complete(self, *words):
        """The words that bash offers next."""
        script = f"source {shlex.quote(self.path('seqtile.bash'))}; COMP_WORDS=({shlex.join(['seqtile', *words])}); " \
                 f"COMP_CWORD={len(words)}; _seqtile; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        done = subprocess.run(["bash", "-c", script], cwd=self.work, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return set(done.stdout.split())

    def test_completion_knows_every_command_and_flag(self):
        told = self.told()
        self.assertIn("cache rm", told)
        self.assertIn("--dry-run", told["cache rm"])
        self.assertGreater(len(told), 25)
        self.write("seqtile.bash", self.seqtile("completion", "bash").out)
        for command, flags in told.items():
            words = command.split()
            self.assertEqual(self.complete(*words, "-"), flags, command)
            below = {name.split()[-1] for name in told if name and name.split()[:-1] == words}
            self.assertLessEqual(below, self.complete(*words, ""), command)
        self.assertEqual(self.complete("tune", "linear", "--strategy", ""), {"exhaustive", "topk", "halving", "evolutionary"})
        self.assertEqual(self.complete("tune", "lin"), {name for name in self.complete("tune", "") if name.startswith("lin")})
        self.assertIn("linear", self.complete("tune", "lin"))
        self.assertEqual(self.complete("prove", "--model", "mod"), {"model.json"})
        zsh = self.seqtile("completion", "zsh").out
        self.assertTrue(zsh.startswith("#compdef seqtile\n"))
        for command, flags in told.items():
            table = re.search(rf'^    "{command}"\)\n      flags=\((.*?)\)\n      items=\(', zsh, re.M | re.S).group(1)
            self.assertEqual(set(re.findall(r"^ +'(-[\w-]+):", table, re.M)), flags, command)
        if shutil.which("zsh"):
            self.assertEqual(subprocess.run(["zsh", "-n"], input=zsh, text=True, timeout=60).returncode, 0)
        self.assert_line(self.seqtile("completion", "fish"), 2, "fish.*bash")

    def test_man_pages_know_every_command_and_flag(self):
        told = self.told()
        os.makedirs(self.path("man"), exist_ok=True)
        self.assertEqual(self.seqtile("man", "-o", "man").code, 0)
        pages = {"-".join(["seqtile", *command.split()]) + ".1": command for command in told}
        self.assertEqual(set(os.listdir(self.path("man"))), set(pages))
        for name, command in pages.items():
            page = self.content(os.path.join("man", name)).decode()
            self.assertEqual(page, self.seqtile("man", *command.split()).out)
            shown = page.replace("\\-", "-")
            self.assertEqual({flag for flag in told[command] if f"\\fB{flag}\\fR" not in shown}, set(), command)
            for below in told:
                if below.split()[:-1] == command.split() and below:
                    self.assertIn(f".BR seqtile-{below.replace(' ', '-')} (1)", shown)
            if shutil.which("groff"):
                done = subprocess.run(["groff", "-man", "-ww", "-Tascii"], input=page, capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (0, ""), name)
        self.assert_line(self.seqtile("man", "nothing"), 2, "there is no command nothing")
        self.assert_line(self.seqtile("man", "-o", "nowhere"), 2, "nowhere: is no folder")

    def test_help_of_every_command_has_examples(self):
        for command in ("devices", "operations", "prewarm", "tune", "prove", "replay", "report", "explain", "cache", "compile",
                        "simulate", "timeline", "plan", "bench"):
            run = self.seqtile(command, "--help")
            self.assertEqual(run.code, 0)
            self.assertIn(f"  seqtile {command}", run.out)


class Ranks(Cli):
    """A model of three heads and three blocks of columns on two ranks: their shares differ."""

    @classmethod
    def setUpClass(cls):
        ragged = dict(MODEL, hidden_size=96, num_attention_heads=3, num_key_value_heads=3)
        cls.ranks = ["--model", cls.write("ragged.json", json.dumps(ragged)), "--ranks", "2", "--fabric", "threads",
                     "--cache", "ranks.db", "--artifacts", "ranks_artifacts.db"]
        cls.lengths = ["--lengths", "1..9", "--kv-lengths", "1..12"]
        cls.prewarm = run_to_end(["prewarm", *cls.ranks, *cls.lengths, "--budget", "5s", "--json"], cls.work)
        if cls.prewarm.code != 0:
            raise AssertionError(f"prewarm: exit {cls.prewarm.code}\n{cls.prewarm.out}\n{cls.prewarm.err}")

    def test_dry_run_names_the_shares(self):
        run = self.seqtile("prewarm", *self.ranks, *self.lengths, "--dry-run", "--json")
        self.assertEqual(run.code, 0, run.err)
        operations = {row["label"]: row["operation"] for row in run.json()["plan"]}
        for label in ("qkv_proj", "qkv_proj (rank 1)", "gate_up_proj", "gate_up_proj (rank 1)", "lm_head"):
            self.assertEqual(operations[label], "fused_allgather_and_linear", label)
        self.assertEqual(operations["down_proj (rank 1)"], "fused_linear_and_reducescatter")
        self.assertNotIn("residual_norm", operations)  # the operation that sums also normalises
        self.assertNotIn("input_norm (rank 1)", operations)

    def test_prove(self):
        run = self.seqtile("prove", *self.ranks, *self.lengths, "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        found = run.json()
        self.assertEqual((found["covered"], found["missing"]), (found["pairs"], []))
        ranks = found["ranks"]
        self.assertEqual((ranks["world_size"], ranks["fabric"]), (2, "threads"))
        self.assertEqual((ranks["misses"], ranks["tunings"], ranks["compiles"]), (0, 0, 0))
        self.assertGreaterEqual(ranks["lookups"], 2 * 10000 * 11)

    def test_prove_names_what_other_ranks_lack(self):
        for change, step in ((["--fabric", "processes"], "--ranks 2 --fabric processes --lengths 1..9"),
                             (["--ranks", "1"], "--ranks 1 --fabric threads --lengths 1..9")):
            flags = list(self.ranks)
            flags[flags.index(change[0]) + 1] = change[1]
            run = self.seqtile("prove", *flags, *self.lengths, "--json")
            self.assertEqual(run.code, 1, run.err)
            missing = {gap["operation"]: gap["reason"] for gap in run.json()["missing"]}
            self.assertIn("lm_head", missing)
            self.assertIn(step, missing["qkv_proj"])
            self.assertNotIn("ranks", run.json())

    def test_replay(self):
        run = self.seqtile("replay", *self.ranks, *self.lengths, "--requests", "trace.csv", "--execute", "1s", "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        found = run.json()
        self.assertEqual((found["tunings"], found["compiles"], found["compiles_at_load"], found["misses"]), (0, 0, 0, 0))
        self.assertGreater(found["executed"], 20)
        self.assertEqual(found["verified"], found["executed"])
        self.assertLess(found["max_rel_err"], 0.01)
        self.assertLessEqual(found["ranks"]["layer_us"]["p50"], found["ranks"]["layer_us"]["p99"])
        self.assertGreater(found["call_us"]["p50"], 0)

    def test_replay_of_json_lines(self):
        make_trace.write_trace(3000, self.path("ranks.jsonl"), "mooncake")
        found = {}
        for fabric in ("threads", "processes"):
            flags = [fabric if flag == "threads" else flag for flag in self.ranks]
            run = self.seqtile("replay", *flags, *self.lengths, "--requests", "ranks.jsonl", "--policy", "nearest", "--json")
            self.assertEqual(run.code, 0, run.err)
            found[fabric] = run.json()
        self.assertEqual(found["threads"]["requests"], 3000)
        for name in ("requests", "chunks", "decode_steps", "lookups", "long_prompts", "long_requests", "duration_s"):
            self.assertEqual(found["threads"][name], found["processes"][name], name)

    def replay_on_processes(self):
        """The command, and its answer. The run leaves its compiled binaries for later runs."""
        flags = ["processes" if flag == "threads" else flag for flag in self.ranks]
        flags[flags.index("ranks_artifacts.db")] = "processes_artifacts.db"
        command = ["replay", *flags, *self.lengths, "--requests", "trace.csv", "--policy", "nearest", "--execute"]
        run = self.seqtile(*command, "200ms", "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        return command, run.json()

    def test_replay_on_processes(self):
        _, found = self.replay_on_processes()
        self.assertGreater(found["executed"], 0)
        self.assertEqual(found["verified"], found["executed"])

    def signal_a_rank(self, number, *more):
        """Exit code and last line of `replay` on processes when a rank gets a signal in the middle."""
        start = [Cli.program, *self.replay_on_processes()[0], "200s", *more]
        first = subprocess.Popen(start, cwd=self.work, env=Cli.env, stderr=subprocess.PIPE, text=True)
        others = self.working_children(first)
        os.kill(int(others[0]), number)
        try:
            _, said = first.communicate(timeout=240)
        finally:
            first.kill()
        return first.returncode, said.rstrip("\n").split("\n")[-1]

    def test_a_rank_that_dies_ends_the_others(self):
        code, said = self.signal_a_rank(signal.SIGKILL)
        self.assertEqual(code, 3, said)
        self.assertRegex(said, "the process of a rank has ended early: .*died")

    def test_a_rank_that_stalls_ends_the_others(self):
        code, said = self.signal_a_rank(signal.SIGSTOP, "--timeout", "2s")
        self.assertEqual(code, 3, said)
        self.assertRegex(said, "gave up waiting for rank .* within 2 s: operation [0-9]+, .* of "
                               "|waited (2|30) s for rank")  # 30 s: a rank waits in preparation

    def test_ranks_of_mpi_where_there_is_none(self):
        os.makedirs(self.path("no_mpi"), exist_ok=True)
        self.write("no_mpi/libseqtile_mpi.so.0", "no library\n")
        env = dict(Cli.env, LD_LIBRARY_PATH=self.path("no_mpi"))
        trace = ["timeline", "all_gather", "--set", "n=64", "--length", "4", "--fabric", "mpi"]
        self.assert_line(self.seqtile(*trace, env=env), 3, "--fabric mpi: this build is without MPI .*; build seqtile where")

    def test_ranks_on_gpus(self):
        trace = ["timeline", "fused_allgather_and_linear", "--set", "n=64", "--set", "k=64", "--length", "40", "--cache",
                 "trace.db", "--artifacts", "trace_artifacts.db", "-o", "gpus.json", "--fabric"]
        no_gpus = dict(Cli.env, CUDA_VISIBLE_DEVICES="")
        self.assert_line(self.seqtile(*trace, "cuda:sm_90a", env=no_gpus), 3, "NVIDIA driver|use fewer ranks")
        os.makedirs(self.path("gpus"), exist_ok=True)
        os.symlink(self.fake_driver, self.path("gpus/libcuda.so.1"))
        env = dict(Cli.env, LD_LIBRARY_PATH=self.path("gpus"), SEQTILE_PTXAS="none", FAKE_CUDA="gpus=2 sm=90")
        self.assert_line(self.seqtile(*trace, "cuda:sm_80", env=env), 2, "fabric is cuda:sm_80, the channel's is cuda:sm_90a")
        self.assert_line(self.seqtile(*trace, "cuda:sm_90a", "--ranks", "3", env=env), 3, "rank 2: there is no cuda:2 for it")
        run = self.seqtile(*trace, "cuda:sm_90a", env=env)  # the driver takes launches, and does nothing
        self.assertEqual(run.code, 0, run.out + run.err)
        self.assertIn("gpus.json: 0 events of 2 ranks", run.out)

    def test_replay_on_simulated_gpus(self):
        flags = ["sim:sm_80" if flag == "threads" else flag for flag in self.ranks]
        flags[flags.index("ranks_artifacts.db")] = "sim_artifacts.db"
        run = self.seqtile("replay", *flags, *self.lengths, "--requests", "trace.csv", "--policy", "nearest", "--execute",
                           "1s", "--json")
        self.assertEqual(run.code, 0, run.out + run.err)
        self.assertGreater(run.json()["executed"], 0)
        self.assertEqual(run.json()["verified"], run.json()["executed"])

    def test_ranks_that_share_a_gpu(self):
        flags = ["virtual:sm_80" if flag == "threads" else flag for flag in self.ranks]
        flags[flags.index("ranks_artifacts.db")] = "shared_artifacts.db"
        self.assert_line(self.seqtile("replay", *flags, *self.lengths, "--requests", "trace.csv", "--policy", "nearest",
                                      "--execute", "1s"), 2, "--ranks 2: ranks that share a GPU have one launch, but .*; give a number that divides")
        run = self.seqtile("timeline", "fused_linear_and_reducescatter", "--set", "n=64", "--set", "k=64", "--length", "40",
                           "--fabric", "virtual:sm_80", "--cache", "shared.db", "--artifacts", "shared_artifacts.db", "-o",
                           "shared.json")
        self.assertRegex(run.out, r"shared.json: \d+ events of 2 ranks")

    def test_a_miss_ends_a_strict_replay(self):
        run = self.seqtile("replay", *self.ranks, "--lengths", "1..40", "--requests", "trace.csv", "--execute", "1s")
        self.assertEqual(run.code, 1, run.err)
        for rank in (0, 1):
            self.assertIn(f"rank {rank}: qkv_proj, length 37: bucket 37..40 has no record", run.out)
        self.assertRegex(run.out, "nothing was executed; cover these lengths with `seqtile prewarm .*--ranks 2 --fabric")

    def test_a_rank_that_waits_too_long(self):
        run = self.seqtile("replay", *self.ranks, *self.lengths, "--requests", "trace.csv", "--execute", "1s", "--timeout",
                           "0.000001")
        self.assert_line(run, 3, "gave up waiting for rank .* within 1e-06 s: operation [0-9]+, .* of ")

    def test_bad_input(self):
        plain = ["--model", "model.json", "--lengths", "1..8", *self.stores]
        for flags, pattern in ((["--ranks", "0"], "--ranks 0: not a number of ranks from 1 to 16"),
                               (["--ranks", "17"], "--ranks 17: .*from 1 to 16; write for example --ranks 2"),
                               (["--ranks", "two"], "--ranks two: not a number"),
                               (["--fabric", "threads"], "--fabric threads: there is one rank alone; add"),
                               (["--ranks", "2", "--fabric", "smoke"], "--fabric smoke: unknown; use threads, processes, sim"),
                               (["--ranks", "2", "--device", "h200"], "--device h200: ranks of --fabric threads run on cpu"),
                               (["--ranks", "2", "--fabric", "virtual:sm_80", "--device", "h200"],
                                "--device h200: ranks of --fabric virtual:sm_80 run on .*, give --device cuda, or use"),
                               (["--ranks", "3"], "3 ranks: the model has 2 attention heads to cut.*at most 2 ranks")):
            for command in (["prewarm"], ["prove"], ["replay", "--requests", "trace.csv"]):
                self.assert_line(self.seqtile(*command, *plain, *flags), 2, pattern)
        self.assert_line(self.seqtile("replay", "--requests", "trace.csv", *plain, "--timeout", "1s"), 2,
                         "--timeout 1s: one rank waits for nobody; add --ranks 2")
        self.assert_line(self.seqtile("prewarm", "--lengths", "1..8", "--ranks", "2"), 2, "--model")
        self.assert_line(self.seqtile("prewarm", *plain, "--ranks", "2", "--fabric", "mpi"), 2,
                         "--fabric mpi: replay, prove and timeline run on the ranks of mpirun")
        self.assert_line(self.seqtile("tune", *LINEAR, "--length", "4", "--ranks", "2"), 2,
                         "--ranks 2: linear runs on one rank; .*fused_allgather_and_linear")
        for command in ("tune", "timeline"):
            self.assert_line(self.seqtile(command, "all_gather", "--set", "n=64", "--set", "world_size=3", "--length", "4",
                                          "--ranks", "2"), 2, "--set world_size=3: --ranks .*give the field already")

    def test_tune(self):
        flags = ["tune", "all_gather", "--set", "n=64", "--length", "4", "--cache", "tune_ranks.db", "--dry-run", "--json"]
        for ranks in (["--ranks", "2"], ["--ranks", "3", "--fabric", "sim:sm_80"]):
            run = self.seqtile(*flags, *ranks)
            self.assertEqual(run.code, 0, run.err)
            self.assertEqual(run.json()["plan"][0]["operation"], "all_gather")

    def test_ranks_of_every_command_that_names_an_operation(self):
        gather = ["fused_allgather_and_linear", "--set", "n=64", "--set", "k=64", "--length", "16", "--json"]
        both = {fabric: self.seqtile("compile", *gather, "--ranks", "2", "--fabric", fabric).json() for fabric in
                ("threads", "cuda:sm_90a")}
        self.assertEqual(both["threads"]["config"], self.seqtile("compile", *gather, "--set", "world_size=2").json()["config"])
        self.assertEqual(both["cuda:sm_90a"]["target"], "sm_90a")
        self.assertEqual(self.seqtile("compile", *gather, "--ranks", "2", "--device", "sm_80").json()["target"], "sm_80")
        for more in ["--ranks", "2"], ["--ranks", "2", "--device", "sim:sm_90a"], ["--ranks", "2", "--fabric", "sim:sm_90a"]:
            run = self.seqtile("simulate", *gather, *more)
            self.assertEqual((run.code, run.json()["outcome"]), (0, "ok"), run.err)
        for command in ("tune", "explain", "compile", "simulate"):
            self.assert_line(self.seqtile(command, *LINEAR[:5], "--length", "4", "--ranks", "2"), 2,
                             "--ranks 2: linear runs on one rank; .*fused_allgather_and_linear")
            self.assert_line(self.seqtile(command, *gather[:-1], "--set", "world_size=3", "--ranks", "2"), 2,
                             "--set world_size=3: --ranks .*give the field already")
        self.assert_line(self.seqtile("explain", "--model", "model.json", "--ranks", "2"), 2, "--ranks.*go with an operation")

    def test_tune_beside_a_store_that_came_without_binaries(self):
        tune = ["tune", "rms_norm", "--set", "n=64", "--cache", "shipped.db", "--json", "--artifacts"]
        self.assertEqual(self.seqtile(*tune, "first.db", "--length", "3").code, 0)
        run = self.seqtile(*tune, "second.db", "--length", "40")
        self.assertEqual((run.code, run.json()["unstored_binaries"], run.json()["complete"]), (0, 1, True), run.err)
        self.assertRegex(run.err, r"shipped.db names and second.db lacks: 1; `seqtile cache build --cache shipped.db --artifacts second.db`")

    def test_all_ranks_time_the_best_together(self):
        for fabric in ("threads", "processes"):
            stores = ["--cache", f"all_{fabric}.db", "--artifacts", f"all_{fabric}_artifacts.db"]
            gather = ["fused_allgather_and_linear", "--set", "n=64", "--set", "k=64", "--threads", "1"]
            tune = ["tune", *gather, "--lengths", "13..16", "--ranks", "2", "--fabric", fabric, *stores, "--json"]
            run = self.seqtile(*tune)
            self.assertEqual(run.code, 0, run.out + run.err)
            self.assertEqual((run.json()["rank_races"], run.json()["complete"]), (1, True))
            self.assertRegex(run.out, "1 bucket timed by all ranks together")
            again = self.seqtile(*tune).json()
            self.assertEqual((again["rank_races"], again["trials"], again["complete"]), (0, 0, True))
            found = self.seqtile("explain", *gather, "--ranks", "2", "--fabric", fabric, "--length", "16", *stores,
                                 "--json").json()
            self.assertRegex(found["reason"], r"; chosen by all 2 ranks: [0-9.]+ .?s \(20 to 80 %: .* to .*\)$")
            self.assertTrue(any("on all 2 ranks: " in row["detail"] for row in found["runner_ups"]), found)
            with sqlite3.connect(self.path(f"all_{fabric}.db")) as store:
                self.assertEqual(store.execute("SELECT ranks, chosen FROM v_best").fetchall(), [(2, 1)])
                chosen, = store.execute("SELECT ranks_us FROM v_trials WHERE chosen").fetchall()
                self.assertAlmostEqual(chosen[0], found["median_us"], delta=0.01)
                raced = store.execute("SELECT count(*) FROM v_trials WHERE ranks = 2 AND ranks_us > 0").fetchone()
                self.assertGreaterEqual(raced[0], 2)


class BadInput(Cli):
    def model(self, name, **changes):
        model = {key: value for key, value in {**MODEL, **changes}.items() if value != "absent"}
        return self.write(name, json.dumps(model))

    def prove_model(self, name):
        return self.seqtile("prove", "--model", name, "--lengths", "1..8", *self.stores)

    def test_what_fits_no_gpu(self):
        heads = ["--set", "heads=8", "--set", "kv_heads=2", "--set", "head_dim=512"]
        for op, fields, pattern in (("attention_forward", heads, "head_dim 512 in f32 .*: the smallest, of 16 queries and 32 "
                                     r"keys, needs 330496 bytes and 8960 values .*; take a 16-bit dtype or the CPU"),
                                    ("attention_backward", heads, r"the smallest, .* needs \d+ bytes and \d+ values"),
                                    ("softmax", ["--set", "n=200000"], 'softmax {"n":200000}: with its results a row is 400000 '
                                     "values to keep in registers, the 1024 threads of a block hold 131072; take the CPU")):
            run = self.seqtile("compile", op, *fields, "--length", "64", "--device", "sm_80", "--emit", "ptx")
            self.assert_line(run, 2, pattern)

    def test_usage(self):
        for arguments, pattern in ((["frobnicate"], "no command frobnicate.*prewarm"),
                                   ([], "a subcommand is required; there are prewarm, tune.*see `seqtile --help`"),
                                   (["prove", "--lengths", "1..8"], "--model"), (["explain", "linear"], "--length"),
                                   (["devices", "--wrong"], "--wrong"), (["cache", "frob"], "no command frob.*stats"),
                                   (["prove", "--cach", "x.db"], "no option --cach; did you mean --cache"),
                                   (["tune", *LINEAR, "--length", "4", "--length", "8"],
                                    r"--length is given 2 times \(4, 8\); give it once"),
                                   (["tune", *LINEAR, "--length"], "--length has no value; write --length N"),
                                   (["replay", "--model", "m.json", "--requests", "t.csv", "--policy", "soft"],
                                    "--policy soft: not one of strict,default,nearest,background,tune; see `seqtile replay --help`"),
                                   (["simulate", "--shared", "x"], "--shared x: a number from 0 to 1073741824 is wanted"),
                                   (["simulate", "--tolerance", "-1"], "--tolerance -1: a finite number from 0 on"),
                                   (["simulate", "--tolerance", "nan"], "--tolerance nan: a finite number"),
                                   (["simulate", "--seed", "-1"], "--seed -1: not a whole number"),
                                   (["prove", "--model", "m.json", "--json=maybe"], "--json takes no value; write --json"),
                                   (["replay"], "--model is required; give --model FILE; see"),
                                   (["tune"], "operation is required: Name of the operation"),
                                   (["tune", "linear", "--", "--set"], "'--set' is one word too many"),
                                   (["tune", *LINEAR, "--length", "4", "--budget", ""], "--budget: .*empty"),
                                   (["explain", *LINEAR, "--length", "4", "--dtype", ""], "--dtype: .*empty"),
                                   (["cache", "ls", "--cache", ""], "--cache: .*empty")):
            self.assert_line(self.seqtile(*arguments), 2, pattern)

    def test_a_mistyped_word_is_told_with_the_nearest_one(self):
        linear = ["linear", "--set", "n=8", "--set", "k=8"]
        replay = ["replay", "--model", "model.json", "--requests", "trace.csv", *self.stores]
        self.write("mistyped.json", json.dumps({"alhpa": [1]}))
        self.write("foreign_kinds.ptx", FOREIGN)
        for arguments, pattern in ((["pruve"], "no command pruve; there are .*; did you mean prove\\?; see"),
                                   (["cache", "chekc"], "no command chekc; .*; did you mean check\\?; see"),
                                   (["cache", "frob"], "diff; see"),
                                   (["prove", "--mdoel", "m.json"], "no option --mdoel; did you mean --model\\?; see"),
                                   (["prove", "--len", "1"], "no option --len; did you mean --lengths\\?; see"),
                                   (["prove", "--frobnicate"], "no option --frobnicate; see"),
                                   (["compile", "liner", "--length", "4"], 'called "liner"; .*; did you mean linear\\?$'),
                                   (["compile", "LINEAR", "--length", "4"], "did you mean linear\\?$"),
                                   (["compile", "zebra", "--length", "4"], 'called "zebra"; there are: [^;]*$'),
                                   (["compile", *linear, "--set", "activtion=gelu", "--length", "4"], "did you mean activation\\?$"),
                                   (["compile", *linear, "--set", "activation=gellu", "--length", "4"], "did you mean gelu\\?$"),
                                   (["compile", *linear, "--length", "4", "--device", "sim:sm_8"], "did you mean sim:sm_80\\?;"),
                                   (["compile", *linear, "--length", "4", "--device", "avx51"], "did you mean avx512\\?$"),
                                   (["compile", *linear, "--length", "4", "--device", "sm80"],
                                    "profiles h200, h100_sxm, a100; code alone .*, sm_90a; did you mean sm_80\\?$"),
                                   (["compile", *linear, "--length", "4", "--device", "sim_80"],
                                    "; did you mean sim:sm_80\\?; code alone [^?]*$"),
                                   (["explain", *linear, "--length", "4", "--device", "h20"], "did you mean h200\\?$"),
                                   (["compile", *linear, "--length", "4", "--emit", "cubn"], "not one of .*; did you mean cubin\\?"),
                                   (["compile", *linear, "--length", "4", "--config", "block_mm=3"], "did you mean block_m\\?$"),
                                   (["compile", *linear, "--length", "4", "--dtype", "bf61"], "did you mean bf16\\?$"),
                                   (["tune", *linear, "--length", "4", "--strategy", "halvign"], "did you mean halving\\?"),
                                   ([*replay, "--policy", "strct"], "did you mean strict\\?; see"),
                                   ([*replay, "--requests-format", "azur"], "did you mean azure\\?; see"),
                                   ([*replay, "--prompt-column", "ContextTokns", "--output-column", "GeneratedTokens"],
                                    "no column 'ContextTokns', .*; did you mean ContextTokens\\?$"),
                                   (["prove", *self.model_flags, "--ranks", "2", "--fabric", "thread"], "did you mean threads\\?$"),
                                   (["cache", "show", "linear", "--set", "acivation=none", *self.stores[:2]],
                                    "no record of linear has .*; did you mean activation\\?$"),
                                   (["plan", "comm", "--model", "model.json", "--mesh", "2", "--calibration", "mistyped.json"],
                                    'unknown field "alhpa"; .*; did you mean alpha\\?$'),
                                   (["simulate", "--ptx", "foreign_kinds.ptx", "--entry", "rce", "--grid", "1", "--block", "1"],
                                    "--entry rce: .*; its kernels are add, race"),
                                   (["simulate", "--ptx", "foreign_kinds.ptx", "--entry", "raec", "--grid", "1", "--block", "1"],
                                    "--entry raec: .*; did you mean race\\?$")):
            run = self.seqtile(*arguments)
            self.assert_line(run, 2, pattern)
            self.assertEqual(run.err.count("\n"), 1, run.err)

    def test_one_is_singular(self):
        replay = self.seqtile("replay", "--model", "model.json", "--threads", "1", *self.stores, "--requests",
                              self.write("one.csv", "ContextTokens,GeneratedTokens\n5,1\n"))
        self.assertEqual(replay.code, 0, replay.err)
        self.assertRegex(replay.out, "1 request .*1 distinct length\n")
        self.assertRegex(replay.out, "planned 1 prefill chunk and \\d+ sampled decode steps?; ")
        self.assertNotRegex(replay.out, r"(^|[^0-9.,])1 (requests|lengths|chunks|steps|tokens|lookups|buckets|misses|compiles)\b")
        run = self.seqtile("compile", *LINEAR[:-1], "0", "--length", "4")
        self.assertRegex(run.err, r"4 times the (1 core|\d+ cores) of this process")

    def test_outputs_replace_no_other_file(self):
        stored = self.content("tuning.db")
        compile_it = ["compile", "linear", "--set", "n=64", "--set", "k=64", "--length", "8", "--emit", "ll", "-o"]
        self.assert_line(self.seqtile(*compile_it, "tuning.db"), 2, "--output tuning.db: is an SQLite database or a")
        self.assertEqual(self.content("tuning.db"), stored)
        for name in "tuning.db-wal", "tuning.db-journal":
            self.write(name, "")
            self.assert_line(self.seqtile(*compile_it, name), 2, f"--output {name}: is an SQLite database or a part of one")
            os.remove(self.path(name))
        model = self.content("model.json")
        plan = ["plan", "model", "--model", "model.json", "--mesh", "2", "--length", "16", "-o"]
        for path in "model.json", "./model.json", self.path("model.json"):
            self.assert_line(self.seqtile(*plan, path), 2, "is also the file of --model, which it would replace; give")
        self.assertEqual(self.content("model.json"), model)
        with open(self.path("kept.txt"), "w", encoding="utf-8") as file:
            file.write("kept\n")
            file.flush()
            subprocess.run([self.program, *compile_it, "/dev/stderr"], cwd=self.work, env=self.env, stderr=file, check=True)
        self.assertTrue(self.content("kept.txt").startswith(b"kept\n;"))

    def test_flags_take_no_value(self):
        for flag in "--dry-run=0", "--dry-run=-1", "--dry-run=nope", "--json=1", "--json=false":
            run = self.seqtile("cache", "rm", "linear", *self.stores[:2], flag)
            self.assert_line(run, 2, f"{flag.split('=')[0]} takes no value; write {flag.split('=')[0]}")
        self.assert_line(self.seqtile("--json", "cache", "ls"), 2, "--json: write it behind the command")
        self.assert_line(self.seqtile("compile", "--set", "n=64", "k=64", "linear", "--length", "8"), 2, "one word too many")

    def test_model_files(self):
        self.assert_line(self.prove_model("absent.json"), 2, r"absent\.json: no such file")
        self.assert_line(self.prove_model("/dev/null"), 2, "not a regular file")
        self.assert_line(self.prove_model("/proc/self/mem"), 3, "cannot be read: Input/output error; check")
        self.assert_line(self.prove_model(self.model("m0.json", model_type=None)), 2, "field model_type is null")
        self.assert_line(self.prove_model(self.write("two.json", json.dumps(MODEL) + "\n" + json.dumps(MODEL))), 2,
                         "line 2, column 1: another '{' behind the end")
        self.assert_line(self.prove_model(self.write("broken.json", "{")), 2, r"broken\.json")
        self.assert_line(self.prove_model(self.model("m1.json", hidden_size=None)), 2, "hidden_size is null")
        self.assert_line(self.prove_model(self.model("m2.json", hidden_size="wide")), 2, "hidden_size")
        self.assert_line(self.prove_model(self.model("m3.json", num_key_value_heads=-1)), 2, "num_key_value_heads")
        self.assert_line(self.prove_model(self.model("m4.json", torch_dtype="float7")), 2, "float7")
        self.assert_line(self.prove_model(self.model("m5.json", model_type="t5")), 2, "t5")
        scaling = {"rope_type": "mrope", "mrope_section": [1, 2, 3]}
        self.assert_line(self.prove_model(self.model("m6.json", rope_scaling=scaling)), 2, "mrope")
        self.assert_line(self.prove_model(self.write("page.json", "<!doctype html><html></html>")), 2, "an HTML page")
        self.assert_line(self.prove_model(self.write("notes.json", "{\n  // of the paper\n}")), 2,
                         "line 2, column 3: a comment")
        self.assert_line(self.prove_model(self.model("m7.json", quantization_config={"quant_method": "awq"})), 2,
                         "quantised by awq")
        self.assert_line(self.prove_model(self.write("stub.json", json.dumps({"model_type": "llama"}))), 2,
                         r"stub\.json: fields hidden_size, .*max_position_embeddings are missing; give the whole config\.json")
        self.assert_line(self.prove_model(self.model("m8.json", ffn_type="moe")), 2, 'ffn_type is "moe", asks for a mixture of experts')

    def test_unknown_fields_of_model_files(self):
        flags = ["prewarm", "--model", self.model("swirl.json", swirl_factor=3), "--lengths", "1..8", "--threads", "1",
                 "--cache", "absent.db", "--dry-run"]
        run = self.seqtile(*flags)
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.err, r"swirl\.json: field swirl_factor is not known")
        self.assert_line(self.seqtile(*flags, "--strict-model"), 2, "--strict-model: swirl.json: field swirl_factor")

    def test_strict_models_are_of_their_own_class_and_their_own_fields(self):
        self.write("outer.json", json.dumps({"text_config": MODEL, "rope_theta": 5e5}))
        for model, said in ((self.model("eagle.json", architectures=["LlamaForCausalLMEagle3"]), "no class of type llama"),
                            (self.model("own.json", auto_map={"AutoModel": "modeling_own.OwnModel"}), "modeling_own"),
                            ("outer.json", "rope_theta is 500000.0, but text_config.rope_theta is 10000.0")):
            run = self.seqtile("explain", "--model", model)
            self.assertEqual(run.code, 0, run.err)
            self.assertRegex(run.out, said)
            self.assert_line(self.seqtile("explain", "--model", model, "--strict-model"), 2, f"--strict-model: .*{said}")

    def test_lengths(self):
        for text, pattern in (("0", "at least 1"), ("-5", "at least 1"), ("99999999999999999", "at most"),
                              ("9" * 30, "at most 1099511627776"),
                              ("ten", "ten"), ("1e3", "1e3")):
            self.assert_line(self.seqtile("explain", *LINEAR, "--length", text, *self.stores), 2, pattern)
        for text in "1..64", "1-64", "1:64", "1,64":
            self.assert_line(self.seqtile("explain", *LINEAR, "--length", text, *self.stores), 2, "a range, where one length")
            self.assert_line(self.seqtile("tune", *LINEAR, "--length", text, "--cache", "absent.db"), 2,
                             r"--length '1.*64': a range, where one length .*--lengths 1\.\.64")
        for text, pattern in (("0..4", "at least 1"), ("8..4", r"above the last; write 4\.\.8"), ("1..", r"as A\.\.B.*1\.\.4096"),
                              ("1-64", r"write for example 1\.\.64"), ("1:64", r"1\.\.64"), ("1,64", r"1\.\.64"),
                              ("1...64", r"1\.\.64"), ("1 to 64", r"1\.\.64"), ("4k", r"as A\.\.B, or as one number")):
            run = self.seqtile("prove", "--model", "model.json", "--lengths", text, *self.stores)
            self.assert_line(run, 2, pattern)

    def test_operation_fields(self):
        for arguments, pattern in ((["liner"], "liner.*linear|known"), (["linear"], r"\bn\b|\bk\b"),
                                   (["linear", "--set", "n=128"], r"\bk\b"), (["linear", "--set", "n"], "KEY=VALUE"),
                                   (["linear", "--set", "n=-1", "--set", "k=8"], r"\bn\b"),
                                   (["linear", "--set", "n=8", "--set", "k=8", "--set", "depth=2"], "depth"),
                                   (["linear", "--set", "n=8", "--set", "kk=9"], "field kk is 9, .*no such field.*; k is missing"),
                                   (["attention_forward", "--set", "head=4", "--set", "kv_heads=2"],
                                    "field head is 4, .*no such field.*; heads is missing"),
                                   (["linear", "--set", "n=8", "--set", "n=9"], "twice")):
            self.assert_line(self.seqtile("explain", *arguments, "--length", "4", *self.stores), 2, pattern)

    def test_dtype_threads_and_budget(self):
        self.assert_line(self.seqtile("explain", *LINEAR, "--dtype", "f8", "--length", "4", *self.stores), 2, "f8")
        self.assert_line(self.seqtile("prewarm", *self.model_flags, *self.stores, "--budget", "soon"), 2, "soon")
        run = self.seqtile("prewarm", "--model", "model.json", "--lengths", "1..8", "--threads", "0")
        self.assert_line(run, 2, "threads")
        for text, pattern in (("1,1", "1 is given twice"), ("1,2,x", "'x' is not a whole number"), ("1,", "''"),
                              ("100000", r"'100000'.* to \d+, 4 times"), ("", "--threads: .*empty")):
            run = self.seqtile("explain", "linear", "--set", "n=8", "--set", "k=8", "--length", "4", "--threads", text)
            self.assert_line(run, 2, pattern)
        run = self.seqtile("compile", *LINEAR[:-1], "0", "--length", "4")
        self.assert_line(run, 2, r"--threads 0: .*write for example --threads 1$")
        for text, pattern in (("1e9h", "'1e9h': not a time above 0: digits, .* and ms, s, m or h; write"),
                              ("999999999h", "--budget 999999999h: longer than 1000000000 s")):
            self.assert_line(self.seqtile("prewarm", *self.model_flags, *self.stores, "--budget", text), 2, pattern)
        run = self.seqtile("simulate", *NORM, "--seed", "-1")
        self.assert_line(run, 2, "--seed -1: not a whole number from 0 to 4294967295")
        run = self.seqtile("prewarm", *self.model_flags, "--cache", "small.db", "--budget", "1ms")
        self.assert_line(run, 2, "budget")

    def test_workload_that_no_configuration_fits(self):
        for more in ([], ["--dry-run"]):
            run = self.seqtile("tune", *LINEAR, "--set", "weight_layout=packed", "--set", "panel=20", "--length", "40",
                               "--cache", "refused.db", *more)
            self.assert_line(run, 2, "panel = 20")
            self.assertFalse(os.path.exists(self.path("refused.db")))

    def test_configurations(self):
        where = r"linear at length 40 for cpu:\w+"
        compile_linear = ["compile", *LINEAR, "--length", "40"]
        for text, pattern in (("mr=1000", f"mr=1000: no configuration of {where} has this value, mr can be 1, .*; give one"),
                              ("mr", "KEY=VALUE"), ("mrr=1", f"mrr=1: {where} has no such parameter; give one of block_m")):
            self.assert_line(self.seqtile(*compile_linear, "--config", text), 2, pattern)
        default = self.seqtile(*compile_linear, "--json").json()["config"]
        form = next(form for form in ("dot", "outer", "transposed") if form != default["form"])
        run = self.seqtile(*compile_linear, "--config", f"form={form}")
        self.assert_line(run, 2, rf"form={form}: the default's \w+=\d+ does not go with it, \w+ can be \d.*for {where}; give")
        example = re.search("for example (.*)", run.err).group(1).split()
        self.assertEqual(self.seqtile(*compile_linear, *example, "--json").json()["config"]["form"], form)
        run = self.seqtile(*compile_linear, "--config", f"form={form}", "--config", "mr=1000")
        self.assert_line(run, 2, rf"this value together with form={form}, mr can be \d.*; give one of these")

    def test_device_that_is_not_there(self):
        run = self.seqtile("prewarm", *self.model_flags, "--cache", "gpu.db", "--device", "cuda")
        self.assert_line(run, 3, "cuda")
        self.assert_line(self.seqtile("compile", *LINEAR, "--length", "4", "--device", "cuda"), 3, "cuda")
        self.assert_line(self.seqtile("simulate", *NORM, "--device", "cpu"), 2, "cpu.*is not simulated; use sim:sm_80")
        self.assert_line(self.seqtile("simulate", *NORM, "--device", "sim:sm_70"), 2, "sim:sm_70.*sim:sm_80")
        self.assert_line(self.seqtile("simulate", *NORM, "--config", "rows=3"), 2, "rows=3")
        with open(self.path("binary.ptx"), "wb") as file:
            file.write(b"\x7fELF\0\0\1")
        for text, name in ("", "empty.ptx"), ("hello\n", "words.ptx"), (".version 8.0\n.target sm_80\n", "nothing.ptx"), \
                (".version 8.0\n.target sm_100a\n", "later.ptx"):
            self.write(name, text)
        for name, pattern in (("absent.ptx", "no such file"), ("empty.ptx", "is not PTX but empty; .seqtile compile"),
                              ("binary.ptx", "is not PTX but an ELF file; .cuobjdump -ptx"), (".", "is a folder"),
                              ("words.ptx", "is not PTX but text without .version"), ("nothing.ptx", "no kernel .*it has none"),
                              ("later.ptx", r"PTX line 2: \.target sm_100 does not run on sim:sm_80")):
            self.assert_line(self.seqtile("simulate", *NORM, "--ptx", name), 2, f"--ptx {name}: .*{pattern}")
        for command in ("compile", "explain"):
            run = self.seqtile(command, *LINEAR, "--length", "4", "--device", "xyz")
            self.assert_line(run, 2, "--device: unknown device.*xyz")

    def test_a_worker_that_is_no_program(self):
        self.write("worker.txt", "no program")
        for path in "absent/worker", "worker.txt", ".":
            run = self.seqtile("tune", *LINEAR, "--length", "3", "--cache", "worker.db", "--artifacts", "worker_artifacts.db",
                               env=dict(self.env, SEQTILE_WORKER=path))
            self.assert_line(run, 2, f"^seqtile: SEQTILE_WORKER={path}: that is no program that can be run; .*unset it$")

    def test_a_profile_executes_nothing(self):
        run = self.seqtile("replay", "--model", "model.json", "--requests", "trace.csv", *self.stores, "--policy",
                           "nearest", "--device", "h200", "--execute", "1h", "--json")
        self.assert_line(run, 2, "--execute 1h: --device h200 is the profile .*leave --execute out.*sim:sm_90a")
        self.assertEqual(run.json()["error"]["code"], "invalid_argument")

    def test_cache_paths(self):
        os.makedirs(self.path("folder"), exist_ok=True)
        self.write("text.db", "this is not a database, whatever its name says\n" * 4)
        for command in (["cache", "check"], ["prewarm", *self.model_flags, "--budget", "5s"]):
            self.assert_line(self.seqtile(*command, "--cache", "folder"), 2, "folder")
            self.assert_line(self.seqtile(*command, "--cache", "text.db"), 2, "text.db")
        self.assert_line(self.seqtile("cache", "check", "--cache", "absent.db"), 2, "absent.db")
        os.mkfifo(self.path("pipe"))
        for path in ("pipe", "/dev/null"):
            self.assert_line(self.seqtile("cache", "stats", "--cache", path, limit=30), 2, "not a regular file")
            run = self.seqtile("replay", "--model", "model.json", "--requests", path, *self.stores, limit=30)
            self.assert_line(run, 2, "not a regular file")
        with open(self.path("text.db"), encoding="utf-8") as file:
            self.assertTrue(file.read().startswith("this is not"))

    def test_files_that_cannot_be_read_are_not_empty_stores(self):
        self.write("truncated.db", "")
        with open(self.path("truncated.db"), "wb") as file:
            file.write(self.content("tuning.db")[:1500])
        content = self.content("truncated.db")
        for command in self.STORE_COMMANDS:
            run = self.seqtile(*command, "--cache", "truncated.db")
            self.assert_line(run, 3, "truncated.db.*left as it is; move it away or name another file")
            self.assertEqual(run.err.count("truncated.db"), 1, run.err)
        run = self.seqtile("cache", "check", "--cache", "truncated.db")
        self.assertEqual((run.code, run.err.count("truncated.db"), run.out.count("truncated.db")), (1, 1, 1), run.out + run.err)
        self.assertRegex(run.out, "not ok; the file is left as it is\n")
        self.assertEqual(self.content("truncated.db"), content)

    STORE_COMMANDS = (["cache", "stats"], ["cache", "ls"], ["cache", "show", "linear"], ["cache", "build"],
                      ["explain", *LINEAR, "--length", "4"], ["prewarm", "--model", "model.json", "--lengths", "1..32", "--dry-run"],
                      ["prewarm", "--model", "model.json", "--lengths", "1..32"], ["tune", *LINEAR, "--length", "4"])

    def test_binaries_that_cannot_be_read_are_no_gap(self):
        content = self.content("artifacts.db")
        with open(self.path("half.db"), "wb") as file:
            file.write(content[:len(content) // 2])
        run = self.seqtile("prove", *self.model_flags, "--cache", "tuning.db", "--artifacts", "half.db")
        self.assert_line(run, 3, "artifact store half.db: .*move it away or name another file$")

    def test_paths_that_cannot_be_followed_are_not_one_file(self):
        os.symlink("loop", self.path("loop"))
        run = self.seqtile("prewarm", "--model", "model.json", "--lengths", "1..2", "--cache", "loop/a.db",
                           "--artifacts", "loop/b.db")
        self.assertNotIn("given twice", run.err)
        self.assertIn(run.code, (2, 3), run.err)

    def test_what_explain_says_of_a_model_is_a_command(self):
        run = self.seqtile("explain", *self.model_flags[:2], "--length", "7000", "--threads", "1", *self.stores)
        step = re.search(r"run `seqtile ([^`]*)`", run.out)
        self.assertTrue(step, run.out + run.err)
        self.assertRegex(step[1], "^prewarm --model .* --lengths 7000..7000 ")
        self.assertEqual(self.seqtile(*step[1].split(), "--dry-run").code, 0)

    def test_what_is_no_store_is_bad_input(self):
        with contextlib.closing(sqlite3.connect(self.path("foreign.db"))) as foreign:
            foreign.execute("CREATE TABLE a(b)")
            foreign.commit()
        content = self.content("foreign.db")
        replay = ["replay", "--model", "model.json", "--requests", "trace.csv", "--threads", "1"]
        for store in "tuning.db", "artifacts.db":
            os.symlink(store, self.path("link_to_" + store))
            flag, other = ("--cache", "--artifacts") if store == "tuning.db" else ("--artifacts", "--cache")
            good = "artifacts.db" if store == "tuning.db" else "tuning.db"
            commands = (*self.STORE_COMMANDS, ["cache", "check"], replay) if flag == "--cache" else (
                ["cache", "build"], ["cache", "check"], ["prove", *self.model_flags], ["tune", *LINEAR, "--length", "4"], replay)
            for command in commands:
                run = self.seqtile(*command, flag, "foreign.db", other, good)
                self.assert_line(run, 2, "foreign.db: another program's SQLite database .*; name another file$")
                run = self.seqtile(*command, flag, "link_to_" + store, other, good)
                self.assert_line(run, 2, f"link_to_{store}: is a symbolic link, .*; give the file it points to, /.*/{store}$")
            os.unlink(self.path("link_to_" + store))
        self.assertEqual(self.content("foreign.db"), content)

    def test_a_store_of_another_release_is_left_alone(self):
        for version, said in ((2, "an earlier release .schema 2, this one reads 3."), (4, "a newer release"),
                              (-1, "user_version -1, which no release writes")):
            shutil.copy(self.path("tuning.db"), self.path("other_release.db"))
            with contextlib.closing(sqlite3.connect(self.path("other_release.db"))) as store:
                store.execute(f"PRAGMA user_version = {version}")
            before = self.content("other_release.db")
            for command in ["explain", *LINEAR, "--length", "40"], ["cache", "rm", "linear"], ["tune", *LINEAR, "--length", "40"]:
                self.assert_line(self.seqtile(*command, "--cache", "other_release.db"), 3, f"other_release.db: .*{said}")
            self.assertEqual(self.content("other_release.db"), before)

    def test_swapped_stores(self):
        for cache, artifacts in ("artifacts.db", "tuning.db"), ("artifacts.db", "more.db"), ("tuning.db", "tuning.db"):
            for command in ["prove", *self.model_flags], ["cache", "build"], ["cache", "check"]:
                run = self.seqtile(*command, "--cache", cache, "--artifacts", artifacts)
                if artifacts == "more.db" or cache == "artifacts.db":
                    line = r"--cache artifacts\.db: is an artifact store .*, not a tuning store .*look swapped"
                else:
                    line = r"--cache tuning\.db, --artifacts tuning\.db: the same file is given twice; give each"
                self.assert_line(run, 2, line)
                self.assertFalse(os.path.exists(self.path("more.db")))
        for command in ["prewarm", *self.model_flags], ["tune", *LINEAR, "--length", "4"], ["plan", "calibrate"]:
            run = self.seqtile(*command, "--cache", "same.db", "--artifacts", "./same.db")
            self.assert_line(run, 2, "--cache same.db, --artifacts ./same.db: the same file is given twice")
            self.assertFalse(os.path.exists(self.path("same.db")))
        shutil.copy(self.path("tuning.db"), self.path("copy.db"))
        run = self.seqtile("cache", "check", "--cache", "tuning.db", "--artifacts", "copy.db")
        self.assert_line(run, 2, r"--artifacts .*copy\.db: is a tuning store .*, not an artifact store .*look swapped")

    def test_a_file_that_cannot_be_written_keeps_its_content(self):
        emit = ["compile", *LINEAR, "--length", "40", "--emit", "asm", "-o"]
        self.write("kept.s", "old")
        os.chmod(self.path("kept.s"), 0o640)

        def stop_growth():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

        run = self.seqtile(*emit, "kept.s", preexec_fn=stop_growth)
        self.assert_line(run, 3, r"--output kept\.s: cannot be written: File too large; check .*free space")
        self.assertEqual(self.content("kept.s"), b"old")
        self.assertEqual([name for name in os.listdir(self.work) if name.startswith("kept.s")], ["kept.s"])
        os.symlink("kept.s", self.path("link.s"))
        self.assertEqual(self.seqtile(*emit, "link.s").code, 0)
        self.assertIn(b"ret", self.content("kept.s"))
        self.assertEqual(stat.S_IMODE(os.stat(self.path("kept.s")).st_mode), 0o640)
        self.assertTrue(os.path.islink(self.path("link.s")))
        self.assert_line(self.seqtile(*emit, "/dev/full"), 3, "/dev/full: cannot be written: No space left on device")
        for command in emit, ["bench", "--filter", "none", "-o"]:
            self.assert_line(self.seqtile(*command, "absent/a"), 2, "--output absent/a: there is no folder absent; make it")
            self.assert_line(self.seqtile(*command, "."), 2, r"--output \.: is a folder; give the path of a file")
            self.assert_line(self.seqtile(*command, "/proc/a"), 3, "--output /proc/a: cannot be written: ")
        self.assert_line(self.seqtile("bench", "--output", "-"), 2, "--output -: .*name a file")
        self.assertEqual(self.seqtile(*emit, "/dev/null").code, 0)

    def test_full_standard_output(self):
        for arguments in (["--help"], ["devices", "--json"], ["prove", *self.model_flags, *self.stores, "--json"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                run = subprocess.run([self.program, *arguments], cwd=self.work, env=self.env, text=True, stdout=full,
                                     stderr=subprocess.PIPE, timeout=240)
            self.assertEqual(run.returncode, 3, run.stderr)
            self.assertIn("standard output", run.stderr)

    def test_unwritable_folder(self):
        run = self.seqtile("prewarm", *self.model_flags, "--cache", "/proc/tuning.db", "--budget", "5s")
        self.assert_line(run, 3, "/proc/tuning.db")

    def test_a_file_is_no_folder_of_stores(self):
        for folder in "/dev/null", self.path("model.json"):
            for command in (["tune", *LINEAR, "--length", "4"], ["cache", "ls"], ["cache", "build"]):
                run = self.seqtile(*command, env=dict(self.env, SEQTILE_CACHE_DIR=folder))
                self.assert_line(run, 2, f"{folder}/tuning.db: {folder} is not a folder; set SEQTILE_CACHE_DIR to a folder")
        self.assert_line(self.seqtile("cache", "ls", "--cache", "model.json/a.db"), 2, "model.json is not a folder; give")

    def test_damaged_rows_are_counted_once(self):
        for name in "tuning.db", "artifacts.db":
            shutil.copy(self.path(name), self.path("bad_" + name))
        for name, sql in (("tuning.db", "UPDATE record SET median_us = median_us + 1"),
                          ("artifacts.db", "UPDATE artifact SET arena_bytes = arena_bytes + 1")):
            with contextlib.closing(sqlite3.connect(self.path("bad_" + name))) as store:
                store.execute(sql)
                store.commit()
        stores = ["--cache", "bad_tuning.db", "--artifacts", "artifacts.db"]
        for command in (["cache", "ls"], ["prove", *self.model_flags], ["explain", *LINEAR, "--length", "4"]):
            run = self.seqtile(*command, *(stores if command[0] != "cache" else stores[:2]))
            self.assertEqual(len(re.findall(r"bad_tuning\.db: rows that are damaged.* are ignored", run.err)), 1, run.err)
        replay = ["replay", "--model", "model.json", "--requests", "trace.csv", "--threads", "1"]
        run = self.seqtile(*replay, "--cache", "tuning.db", "--artifacts", "bad_artifacts.db")
        self.assertEqual(len(re.findall(r"bad_artifacts\.db: binaries that are damaged.* are ignored", run.err)), 1, run.err)

    def test_folders_that_are_not_there_are_not_made(self):
        fused = ["fused_allgather_and_linear", "--set", "n=64", "--set", "k=64", "--length", "9"]
        for command in (["prewarm", *self.model_flags], ["tune", *LINEAR, "--length", "4"], ["explain", *NORM],
                        ["prove", *self.model_flags], ["cache", "build"], ["timeline", *fused], ["plan", "calibrate"],
                        ["replay", "--model", "model.json", "--requests", "trace.csv"]):
            run = self.seqtile(*command, "--cache", "mistyped/here/tuning.db")
            self.assert_line(run, 2, "--cache mistyped/here/tuning.db: there is no folder mistyped/here; make it")
        for command in (["prewarm", *self.model_flags], ["timeline", *fused], ["plan", "calibrate"],
                        ["replay", "--model", "model.json", "--requests", "trace.csv"]):
            run = self.seqtile(*command, "--cache", "tuning.db", "--artifacts", "mistyped/artifacts.db")
            self.assert_line(run, 2, "--artifacts mistyped/artifacts.db: there is no folder mistyped; make it, or give")
        self.assertFalse(os.path.exists(self.path("mistyped")))

    def test_key_files_are_told_of_once(self):
        folder = self.path("wrong_keys")
        os.makedirs(folder + "/artifacts.key")
        env = dict(self.env, SEQTILE_CONFIG_DIR=folder)
        run = self.seqtile("cache", "build", "--cache", "tuning.db", "--artifacts", "keyless.db", env=env)
        self.assert_line(run, 3, r"^seqtile: key file .*artifacts\.key: is not a regular file; move it away")
        self.assertEqual(run.err.count("\n"), 1, run.err)

    def test_the_step_for_an_unusable_key_file_is_about_it(self):
        folder = self.path("short_key")
        os.makedirs(folder)
        with open(folder + "/artifacts.key", "wb") as file:
            file.write(b"abc")
        os.chmod(folder + "/artifacts.key", 0o600)
        env = dict(self.env, SEQTILE_CONFIG_DIR=folder)
        step = r"first correct the key file .*short_key/artifacts\.key: 32 bytes are needed, it has 3; remove it: a new one is made"
        for code, command in ((1, ["cache", "check"]), (1, ["prove", *self.model_flags]), (0, ["explain", *LINEAR, "--length", "40"])):
            run = self.seqtile(*command, *self.stores, env=env)
            self.assertEqual(run.code, code, run.out + run.err)
            self.assertRegex(run.out, step)
            self.assertNotIn("cache build", run.out)

    def test_where_home_is_no_folder_the_given_stores_serve(self):
        for home in "/dev/null", self.path("model.json"):
            env = {name: value for name, value in self.env.items()
                   if name not in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "SEQTILE_CACHE_DIR", "SEQTILE_CONFIG_DIR")}
            env["HOME"] = home
            for command in ["cache", "ls"], ["explain", *LINEAR, "--length", "40"], ["tune", *LINEAR, "--length", "40"]:
                run = self.seqtile(*command, env=env)
                self.assert_line(run, 2, f"^seqtile: --cache {home}/.cache/seqtile/tuning.db: {home} is not a folder; set")
                self.assertEqual(run.err.count("\n"), 1, run.err)
            for command in ["cache", "ls"], ["cache", "check"], ["explain", *LINEAR, "--length", "40"]:
                run = self.seqtile(*command, "--cache", "tuning.db", env=env)
                self.assertEqual(run.code, 0, run.out + run.err)
            self.assertIn(f"--artifacts {home}/.cache/seqtile/artifacts.db: {home} is not a folder", run.err)
            run = self.seqtile("prove", *self.model_flags, "--cache", "tuning.db", env=env)
            self.assertEqual(run.code, 1, run.out + run.err)
            self.assertRegex(run.out, f"no binary.*first correct the key file {home}/.config/seqtile/artifacts.key: {home} is not a folder")
            run = self.seqtile("cache", "build", "--cache", "tuning.db", env=env)
            self.assert_line(run, 2, f"--artifacts {home}/.cache/seqtile/artifacts.db: {home} is not a folder; set")

    def assert_nothing_stored_is_lost(self, check):
        """Checks `cache check --json` of a file that was a copy of tuning.db: it is whole and has no fewer rows."""
        before = self.seqtile("cache", "check", "--cache", "tuning.db", "--json").json()["rows"]
        self.assertTrue(check["ok"], check)
        self.assertEqual(check["bad_rows"], 0)
        self.assertGreaterEqual(check["rows"], before)

    def test_full_disk(self):
        os.makedirs(self.path("disk"), exist_ok=True)
        own_mounts = ["unshare", "--user", "--map-root-user", "--mount"]
        if not shutil.which("unshare") or subprocess.run([*own_mounts, "mount", "-t", "tmpfs", "none", "disk"],
                                                         cwd=self.work, capture_output=True).returncode != 0:
            self.skipTest("no file system can be mounted here")
        size = os.path.getsize(self.path("tuning.db")) + 16384  # four pages more than the file has
        script = f'mount -t tmpfs -o size={size} none disk && cp tuning.db disk/tuning.db || exit 77; "$@"; code=$?; ' \
                 '"$1" cache check --cache disk/tuning.db --json; exit $code'
        run = self.seqtile(*self.more_lengths, "--cache", "disk/tuning.db",
                           before=[*own_mounts, "sh", "-c", script, "sh"])
        self.assert_line(run, 3, r"disk/tuning\.db.*disk is full.*free space.*is kept")
        self.assert_nothing_stored_is_lost(run.json())

    def test_file_that_cannot_grow(self):
        shutil.copy(self.path("tuning.db"), self.path("full.db"))
        limit = os.path.getsize(self.path("full.db"))

        def stop_growth():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        run = self.seqtile(*self.more_lengths, "--cache", "full.db", preexec_fn=stop_growth)
        self.assert_line(run, 3, r"full\.db.*cannot be written: a limit on the size of files is reached.*is kept")
        self.assert_nothing_stored_is_lost(self.seqtile("cache", "check", "--cache", "full.db", "--json").json())
        prove = self.seqtile("prove", *self.model_flags, "--cache", "full.db", "--artifacts", "artifacts.db")
        self.assertEqual(prove.code, 0, prove.out + prove.err)

    def test_binaries_that_cannot_be_stored(self):
        shutil.copy(self.path("artifacts.db"), self.path("other.db"))
        with contextlib.closing(sqlite3.connect(self.path("other.db"))) as other:  # no command may change the file
            other.execute("PRAGMA user_version = 99")
        before = self.content("other.db")
        for name, flags in ("h200", ["--device", "h200", "--lengths", "3..4"]), ("cpu", ["--length", "9"]):
            tune = ["tune", "rms_norm", "--set", "n=64", *flags, "--cache", name + "_unstored.db"]
            run = self.seqtile(*tune, "--artifacts", "other.db", "--json")
            line = r"not stored: \d+ of the binaries that \w+_unstored\.db names \(.*other\.db: written by a newer.*cache build"
            self.assert_line(run, 3, line)
            # The second run has nothing to tune, and stores no binaries either.
            again = self.seqtile(*tune, "--artifacts", "other.db", "--json")
            self.assert_line(again, 3, line)
            self.assertGreater(again.json()["unstored_binaries"], 0)
            self.assertEqual((run.json()["binaries"], run.json()["covered"]), (0, True))
            self.assertEqual(self.content("other.db"), before)
            build = self.seqtile("cache", "build", "--cache", name + "_unstored.db", "--artifacts", name + "_built.db",
                                 *flags[:-2], "--json")
            self.assertEqual(build.code, 0, build.err)
            self.assertEqual(build.json()["compiled"], build.json()["binaries"])

    def test_damaged_binaries_are_repaired_by_cache_build(self):
        stores = ["--cache", "torn.db", "--artifacts", "torn_artifacts.db"]
        tune = ["tune", "rms_norm", "--device", "h200", "--length", "4", *stores]
        self.assertEqual(self.seqtile(*tune, "--set", "n=64").code, 0)
        content, page = bytearray(self.content("torn_artifacts.db")), 4096
        leaf = next(at for at in range(page, len(content), page) if content[at] == 13)  # first leaf of the table
        content[leaf:leaf + 16] = b"\xff" * 16
        with open(self.path("torn_artifacts.db"), "wb") as file:
            file.write(content)
        run = self.seqtile(*tune, "--set", "n=96")
        self.assert_line(run, 3, r"torn_artifacts\.db: damaged.*nothing is written; `seqtile cache build`")
        self.assertEqual(self.content("torn_artifacts.db"), content)
        build = ["cache", "build", "--device", "h200", *stores, "--json"]
        repaired = self.seqtile(*build)
        self.assertEqual(repaired.code, 0, repaired.err)
        self.assertIn("it is now torn_artifacts.db.damaged", repaired.out)
        self.assertEqual(self.content("torn_artifacts.db.damaged"), content)
        self.assertEqual(repaired.json()["binaries"], 2)
        # The files are now as a killed build leaves them.
        os.rename(self.path("torn_artifacts.db.damaged"), self.path("torn_artifacts.db.repairing"))
        self.assertIn("it is now torn_artifacts.db.damaged", self.seqtile(*build).out)
        self.assertEqual(self.seqtile(*build).json()["compiled"], 0)

    def test_the_next_step_can_be_pasted(self):
        shutil.copy(self.path("tuning.db"), self.path("next step.db"))
        explain = ["explain", *LINEAR[:-2], "--length", "40", "--device", "a100", "--cache", "next step.db"]
        run = self.seqtile(*explain, "--json")
        reason = run.json()["reason"]
        self.assertEqual(run.code, 1)
        self.assertRegex(reason, "nearest differs in device_kind: cuda wanted, cpu stored")
        self.assertNotIn("threads", run.out)
        step = shlex.split(re.search("`seqtile (.*)`", reason).group(1))
        self.assertEqual(step[:2] + step[-4:], ["tune", "linear", "--device", "a100", "--cache", "next step.db"])
        self.assertEqual(self.seqtile(*step, "--artifacts", "next_artifacts.db").code, 0)
        self.assertEqual(self.seqtile(*explain).code, 0)
        for device, threads in (["--device", "h200"], ""), ([], " --threads 1"):
            step = f"run `seqtile prewarm --model model.json --lengths 33..40{threads}"
            run = self.seqtile("prove", "--model", "model.json", "--lengths", "33..40", "--threads", "1", *device,
                               *self.stores)
            self.assertEqual(run.code, 1, run.err)
            self.assertIn(step + f"{' '.join(['', *device])} --cache tuning.db", run.out)
            self.assertEqual("threads" in run.out, not device)
        for command in ["replay", "--model", "model.json", "--requests", "trace.csv"], ["explain", *LINEAR, "--length", "4"]:
            run = self.seqtile(*command, "--device", "h200", "--cache", "absent.db")
            self.assert_line(run, 2, "absent.db: no such file; `seqtile (tune linear|prewarm --model).* --device h200 .*"
                                     "--cache absent.db` makes one")

    def test_trace_rows(self):
        rows = TRACE.split("\n")
        rows[2:2] = ["2023,abc,4", "2023,10", "2023,-4,4"]
        self.write("rows.csv", "\n".join(rows))
        replay = ["replay", "--model", "model.json", *self.stores, "--threads", "1"]
        run = self.seqtile(*replay, "--requests", "rows.csv", "--json")
        self.assertEqual(run.code, 1, run.err)
        self.assertIn("line 3", run.err)
        self.assertRegex(run.out, "3 broken rows left out, .* exit code 1; .* --skip-bad-rows")
        self.assertEqual((run.json()["requests"], run.json()["broken_rows"]), (4, 3))
        run = self.seqtile(*replay, "--requests", "rows.csv", "--skip-bad-rows", "--json")
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual((run.json()["requests"], run.json()["broken_rows"]), (4, 3))
        self.assertIn("3 broken rows left out, as --skip-bad-rows allows", run.out)
        self.assert_line(self.seqtile(*replay, "--requests", "absent.csv"), 2, "absent.csv")
        self.assert_line(self.seqtile(*replay, "--requests", self.write("empty.csv", "")), 2, "empty.csv")
        self.assert_line(self.seqtile(*replay, "--requests", self.write("bad.csv", "A,B\n1,2\n")), 2, "ContextTokens")
        self.assert_line(self.seqtile(*replay, "--requests", "trace.csv", "--policy", "guess"), 2, "guess")

    def test_traces_in_every_form_say_the_same(self):
        replay = ["replay", "--model", "model.json", *self.stores, "--threads", "1", "--json"]
        wanted = self.seqtile(*replay, "--requests", "trace.csv").json()
        self.assertEqual((wanted["layout"], wanted["duration_s"]), ("azure", 3))
        pairs = [row.split(",")[1:] for row in TRACE.strip().split("\n")[1:]]
        self.write("forms.csv", "\ufeffTimestamp;Model;Request tokens;Response tokens\r\n" +
                   "".join(f'{i};"a ""model"";\r\nof two lines";"{a}.0";{b}\r\n' for i, (a, b) in enumerate(pairs)))
        self.write("forms.jsonl", "".join(f'{{"timestamp": {1000 * i}, "input_length": {a}, "output_length": {b}}}\n'
                                          for i, (a, b) in enumerate(pairs)))
        self.write("bare.csv", "".join(f"{i},{b},{a}\n" for i, (a, b) in enumerate(pairs)))
        with gzip.open(self.path("forms.csv.gz"), "wt") as file:
            file.write(TRACE)
        bare = ["bare.csv", "--prompt-column", "3", "--output-column", "2", "--time-column", "1"]
        for layout, trace in (("burstgpt", ["forms.csv"]), ("burstgpt", ["forms.csv", "--requests-format", "BurstGPT"]),
                              ("mooncake", ["forms.jsonl"]), ("azure", ["forms.csv.gz"]), ("columns as named", bare)):
            run = self.seqtile(*replay, "--requests", *trace)
            self.assertEqual(run.code, 0, run.err)
            self.assertEqual(run.json()["layout"], layout)
            for name in ("requests", "duration_s", "chunks", "decode_steps", "distinct_lengths", "lookups", "buckets"):
                self.assertEqual(run.json()[name], wanted[name], (trace, name))
        self.write_bytes("wide.csv", TRACE.encode("utf-16"))
        self.write_bytes("cut.csv.gz", gzip.compress(b"ContextTokens,GeneratedTokens\n" + os.urandom(3000).hex().encode())[:900])
        self.write_bytes("tail.csv.gz", gzip.compress(TRACE.encode()) + b"2023,1,1\n")
        for trace, said in ((["wide.csv"], "wide.csv: is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"),
                            (["cut.csv.gz"], "ends in the middle of its packed data"), (["."], "a folder"),
                            (["tail.csv.gz"], "tail.csv.gz: other bytes follow its packed data, from byte"),
                            (["bare.csv"], "positions, for example --prompt-column 2 --output-column 3"),
                            (["trace.csv", "--prompt-column", "tokens"], "no column 'tokens', which --prompt-column names"),
                            (["trace.csv", "--requests-format", "mooncake"], "has no column inputlength of --requests-format")):
            self.assert_line(self.seqtile(*replay, "--requests", *trace), 2, said)

    def test_prompts_beyond_the_positions_are_counted(self):
        self.write("long_prompts.csv", "ContextTokens,GeneratedTokens\n1048576,1\n97,0\n96,0\n90,7\n90,6\n")
        run = self.seqtile("replay", "--model", "model.json", *self.stores, "--threads", "1", "--requests",
                           "long_prompts.csv", "--json")
        self.assertEqual(run.code, 0, run.err)
        found = run.json()
        self.assertEqual((found["positions"], found["long_prompts"], found["long_requests"]), (96, 2, 1))
        self.assertEqual((found["distinct_lengths"], found["cut_decode_steps"]), (2, 2))
        self.assertIn("2 prompts longer than the model's 96 positions", run.out)
        self.assertIn("1 request beyond the model's 96 positions while generating", run.out)

    def test_lengths_beyond_the_positions_are_told(self):
        line = "--lengths 1..97: the model has 96 positions, a server would refuse longer requests"
        flags = ["--model", "model.json", "--lengths", "1..97", "--threads", "1", "--cache", "long.db", "--artifacts", "long_a.db"]
        dry = self.seqtile("prewarm", *flags, "--dry-run", "--json")
        self.assertEqual((dry.code, dry.json()["model"]["warnings"]), (0, [line]))
        self.assertIn(line, dry.out.replace("\n" + " " * 19, " "))
        prewarm = run_to_end(["prewarm", *flags, "--budget", "6s", "--json"], self.work)
        prove = self.seqtile("prove", *flags, "--kv-lengths", "1..100", "--json")
        self.assertEqual((prewarm.code, prewarm.json()["warnings"]), (0, [line]))
        both = [line, line.replace("--lengths 1..97", "--kv-lengths 1..100")]
        self.assertEqual((prove.code, prove.json()["warnings"]), (1, both))
        for run, lines in (dry, [line]), (prewarm, [line]), (prove, both):
            for text in lines:
                self.assertEqual(run.err.count(text), 1, run.err)
        plan = ["plan", "model", "--model", "model.json", "--mesh", "2", "--length"]
        for length, warnings in ("97", [line.replace("--lengths 1..97", "--length 97")]), ("96", []):
            for command in plan, ["explain", "--model", "model.json", *self.stores, "--threads", "1", "--length"]:
                run = self.seqtile(*command, length, "--json")
                self.assertEqual(run.json()["model"]["warnings"], warnings)
                self.assertEqual(run.err.count("positions"), len(warnings), run.err)

    def test_lengths_of_gradients_beyond_the_positions_are_told(self):
        for length, lines in ("97", 1), ("96", 0):
            run = self.seqtile("plan", "comm", "--model", "model.json", "--mesh", "2", "--length", length)
            self.assertEqual(run.code, 0, run.err)
            self.assertEqual(run.err.count(f"--length {length}: the model has 96 positions"), lines, run.err)

    def test_a_store_is_no_trace(self):
        shutil.copy(self.path("tuning.db"), self.path("no_trace.db"))
        run = self.seqtile("replay", "--model", "model.json", "--requests", "no_trace.db", *self.stores)
        self.assert_line(run, 2, r"--requests no_trace\.db: is an SQLite database, such as the stores .*; give a trace: CSV .*docs/traces\.md")

    def peak_bytes(self, *arguments):
        """Peak of resident memory of one run that succeeds."""
        process = subprocess.Popen([self.program, *arguments], cwd=self.work, env=self.env, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return 1024 * usage.ru_maxrss

    def test_memory_does_not_grow_with_the_trace(self):
        replay = ["replay", "--model", "model.json", *self.stores, "--threads", "1", "--requests"]
        before = self.peak_bytes(*replay, "trace.csv")
        for layout, name in (("azure", "many.csv.gz"), ("mooncake", "many.jsonl")):
            make_trace.write_trace(500_000, self.path(name), layout)  # 100 MB if the program kept its calls
            self.assertLess(self.peak_bytes(*replay, name) - before, 20e6)

    def test_damaged_page_costs_records_only(self):
        shutil.copy(self.path("tuning.db"), self.path("damaged.db"))
        with open(self.path("damaged.db"), "r+b") as file:
            page = 4096  # a whole page, because its middle may be empty; the schema's pages are the first ones
            file.seek(os.path.getsize(self.path("damaged.db")) * 3 // 4 // page * page)
            file.write(b"\xff" * page)
        with contextlib.closing(sqlite3.connect(shutil.copy(self.path("tuning.db"), self.path("torn.db")))) as torn:
            roots = [row[0] for row in torn.execute("SELECT rootpage FROM sqlite_master WHERE type = 'table'")]
        with open(self.path("torn.db"), "r+b") as file:  # the tables are known, but none can be read
            for root in roots:
                file.seek((root - 1) * page)
                file.write(b"\xff" * page)
        for command in (["cache", "ls"], ["cache", "stats"], ["cache", "show", "linear"],
                        ["cache", "build", "--artifacts", "torn_build.db"], ["explain", *LINEAR, "--length", "40"],
                        ["prove", *self.model_flags], ["prewarm", *self.model_flags, "--artifacts", "torn_build.db"],
                        ["replay", *self.model_flags, "--requests", "trace.csv"]):
            run = self.seqtile(*command, "--cache", "torn.db", "--json")
            self.assert_line(run, 3, r"torn\.db: damaged \(")
            self.assertEqual(run.json(), {"error": {"code": "io", "message": run.err.strip().removeprefix("seqtile: ")}})
        check = self.seqtile("cache", "check", "--cache", "damaged.db", "--json")
        self.assertEqual(check.code, 1, check.out + check.err)
        self.assertFalse(check.json()["ok"])
        stores = ["--cache", "damaged.db", "--artifacts", "artifacts.db"]
        prove = self.seqtile("prove", *self.model_flags, *stores, "--json")
        self.assertIn(prove.code, (0, 3), prove.err)

    def test_read_only_file_serves(self):
        shutil.copy(self.path("tuning.db"), self.path("readonly.db"))
        os.chmod(self.path("readonly.db"), stat.S_IRUSR)
        run = self.seqtile("prove", *self.model_flags, "--cache", "readonly.db", "--artifacts", "artifacts.db")
        self.assertEqual(run.code, 0, run.err)

    def test_locked_file_does_not_hang(self):
        shutil.copy(self.path("tuning.db"), self.path("locked.db"))
        holder = sqlite3.connect(self.path("locked.db"), isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        run = self.seqtile("prove", *self.model_flags, "--cache", "locked.db", "--artifacts", "artifacts.db")
        self.assert_line(run, 3, "locked")
        for command in (["cache", "ls"], ["explain", *LINEAR, "--length", "40"]):
            run = self.seqtile(*command, "--cache", "locked.db")
            self.assert_line(run, 3, "locked")
            self.assertEqual(run.err.count("locked.db"), 1, run.err)
        run = self.seqtile("cache", "check", "--cache", "locked.db")
        self.assertEqual((run.code, run.err.count("locked.db")), (1, 1), run.err)
        holder.execute("ROLLBACK")
        holder.close()
        self.assertEqual(self.seqtile("cache", "check", "--cache", "locked.db").code, 0)

    def test_errors_are_json_too(self):
        absent, norm = ["--model", "absent.json"], ["rms_norm", "--set", "n=96", "--length", "0"]
        for command in (["prewarm", *absent, "--lengths", "1..4"], ["prewarm", *absent, "--lengths", "1..4", "--dry-run"],
                        ["tune", *norm], ["prove", *absent, "--lengths", "1..4"],
                        ["replay", *absent, "--requests", "trace.csv"], ["report", "--prewarm", "no", "--replay", "no"],
                        ["explain", *norm, *self.stores], ["compile", *norm], ["simulate", *norm],
                        *(["cache", part, "--cache", "absent.db"] for part in ("check", "ls", "stats", "build")),
                        ["cache", "show", "linear", "--cache", "absent.db"], ["plan", "graph", "--bogus"],
                        ["plan", "graph", "a.json", "--format", "yaml"], ["tune", *norm[:-2]], ["nothing"]):
            run = self.seqtile(*command, "--json")
            self.assertEqual((run.code, run.json()["error"]["code"]), (2, "invalid_argument"), command)
            self.assertEqual(run.err, f"seqtile: {run.json()['error']['message']}\n")
        self.assertIn("there is no command nothing", run.err)


class Interrupt(Cli):
    def test_ctrl_c_keeps_what_was_measured(self):
        for number in signal.SIGINT, signal.SIGTERM:
            self.assert_kept_after(number)

    def assert_kept_after(self, number):
        shutil.rmtree(self.path("stopped"), ignore_errors=True)
        os.mkdir(self.path("stopped"))
        process = subprocess.Popen([self.program, "prewarm", *self.model_flags, "--cache", "stopped/tuning.db",
                                    "--artifacts", "stopped/artifacts.db", "--json"], cwd=self.work, env=self.env, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        seen = ""
        while not re.search(r"prewarm: .", seen):  # until the first acknowledged record
            seen += process.stderr.readline()
        process.send_signal(number)
        out, _ = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 128 + number, out)
        self.assertTrue(json.loads(out.rstrip("\n").split("\n")[-1])["interrupted"])
        check = self.seqtile("cache", "check", "--cache", "stopped/tuning.db", "--json")
        self.assertEqual(check.code, 0, check.out + check.err)
        self.assertGreater(check.json()["rows"], 0)

    def test_ctrl_c_during_cache_build_tells_what_remains(self):
        self.write("slow_ptxas", "#!/bin/sh\ngrep -q 'entry smallest' \"$3\" || touch began\n"
                                 "while [ -e began ] && [ ! -e interrupted ]; do sleep 0.02; done\n"
                                 "cp slow.cubin \"$5\"\n")
        os.chmod(self.path("slow_ptxas"), 0o755)
        self.write_cubin("slow.cubin")
        stores = ["--cache", "slow.db", "--artifacts", "slow_artifacts.db"]
        for n in "64", "96", "128":
            tune = self.seqtile("tune", "rms_norm", "--set", f"n={n}", "--device", "h200", "--length", "4", *stores[:2],
                                "--artifacts", "quick_artifacts.db", env=dict(self.env, SEQTILE_PTXAS="none"))
            self.assertEqual(tune.code, 0, tune.err)
        env = dict(self.env, SEQTILE_PTXAS=self.path("slow_ptxas"))
        process = subprocess.Popen([self.program, "cache", "build", "--device", "h200", *stores, "--json"], cwd=self.work,
                                   env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not os.path.exists(self.path("began")) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        self.write("interrupted", "")
        out, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 130, out + err)
        found = json.loads(out.rstrip("\n").split("\n")[-1])
        self.assertEqual((found["binaries"], found["compiled"], found["remaining"], found["interrupted"]), (3, 1, 2, True))
        self.assertIn("Interrupted: 2 of 3 were not looked at; `seqtile cache build --device h200 --cache slow.db "
                      "--artifacts slow_artifacts.db` goes on from here.", out)
        found = self.seqtile("cache", "build", "--device", "h200", *stores, "--json", env=env).json()
        self.assertEqual((found["there"], found["compiled"], found["remaining"]), (1, 2, 0))

    def assert_ctrl_c_ends(self, *arguments):
        """Checks that Ctrl-C ends the program long before its work is done. The program has nothing to keep."""
        process = subprocess.Popen([self.program, *arguments], cwd=self.work, env=self.env, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.wait_until_it_works(process, process.pid)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=240), -signal.SIGINT)

    def test_ctrl_c_ends_a_simulation(self):
        self.assert_ctrl_c_ends("simulate", *LINEAR, "--length", "100000")

    def test_ctrl_c_ends_a_replay(self):
        replay = ["replay", "--model", "model.json", *self.stores, "--threads", "1"]
        self.write_bytes("long.csv.gz", gzip.compress(b"ContextTokens,GeneratedTokens\n") +
                         gzip.compress(b"90,30\n" * 1_000_000) * 2_000)
        self.assert_ctrl_c_ends(*replay, "--requests", "long.csv.gz")  # reading takes minutes
        layers = ["--lengths", "1..96", "--device", "sim:sm_80", "--policy", "default", "--execute", "1h"]
        self.assert_ctrl_c_ends(*replay, "--requests", "trace.csv", *layers)

    def test_ranks_end_with_the_process_that_started_them(self):
        with open(os.devnull, encoding="utf-8") as file:
            inherited = fcntl.fcntl(file, fcntl.F_DUPFD, 200)  # one of a shell's, which is rank 0's alone
        process = subprocess.Popen([self.program, "timeline", "fused_allgather_and_linear", "--set", "n=2048", "--set",
                                    "k=2048", "--length", "20000", "--calls", "1000", "--fabric", "processes"],
                                   cwd=self.work, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   pass_fds=[inherited])
        os.close(inherited)
        others = self.working_children(process)
        self.assertEqual([pid for pid in [process.pid, *others] if os.path.lexists(f"/proc/{pid}/fd/{inherited}")],
                         [process.pid])
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=240), -signal.SIGTERM)
        for _ in range(3000):
            if not any(self.runs(pid) for pid in others):
                break
            time.sleep(0.02)
        self.assertFalse([pid for pid in others if self.runs(pid)])

    @staticmethod
    def runs(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def test_a_call_that_no_memory_holds(self):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        one, all_together = 2**40 // 96, int(memory * 0.6) // (4 * 96)  # bytes of x; y is larger by a third
        for length in one, all_together:
            for command in "simulate", "tune":
                store = ["--cache", "large.db"] if command == "tune" else []
                run = self.seqtile(command, *LINEAR, "--length", str(length), *store, limit=60)
                self.assert_line(run, 3, r"tensors of linear at length \d+ need \d+ bytes of memory.*shorter")
        self.assertFalse(os.path.exists(self.path("large.db")))

    def test_compile_for_a_device(self):
        for device, target in ("sim:sm_80", "sm_80"), ("h200", "sm_90a"), ("neon", "cpu:neon"):
            run = self.seqtile("compile", *LINEAR, "--length", "4", "--device", device, "--emit", "ll", "--json")
            self.assertEqual((run.code, run.json()["target"]), (0, target), run.err)
        self.assert_line(self.seqtile("compile", *LINEAR, "--length", "4", "--device", "tpu"), 2,
                         'unknown device "tpu"; .*h200.*targets .*neon.*sm_90a')
        self.assert_line(self.seqtile("compile", *LINEAR, "--length", "4", "--target", "neon"), 2, "no option --target")


if __name__ == "__main__":
    Cli.program, Cli.fake_driver = map(os.path.abspath, sys.argv[1:3])
    Cli.prepare()
    unittest.main(argv=sys.argv[:1])
