#!/usr/bin/env python3
# tests/tools/plan_test.py -- `seqtile plan`: models, forms of a plan, bad input: plan_test.py ROOT PROGRAM
# SPDX-License-Identifier: Apache-2.0
import gzip
import html.parser
import json
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

MODEL = {"model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",
         "hidden_size": 128, "intermediate_size": 192,
         "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 384,
         "max_position_embeddings": 96}
FLAGS = ["--model", "model.json", "--mesh", "2x2", "--length", "64"]
SMALL = {"meta": {"mesh": [2, 2], "alpha": [1, 1], "beta": [1, 1]},
         "nodes": [{"name": "x", "op": "placeholder", "inputs": [], "out": {"shape": [8, 4], "dtype": "torch.float32"}},
                   {"name": "y", "op": "call_function", "target": "relu", "inputs": ["x"], "args": ["x"],
                    "out": {"shape": [8, 4], "dtype": "torch.float32"}},
                   {"name": "out", "op": "output", "inputs": ["y"], "out": None}]}

CALIBRATED = ["--costs", "calibrated"]


def tensor(*shape):
    return {"shape": shape, "dtype": "torch.float32"}


def linears(rows, columns):
    """Two layers in a row on four devices; their parameters take 4 * (columns + 1) * columns bytes each."""
    layers = [{"name": name, "op": "call_module", "target": name, "inputs": [x], "args": [x], "module": "Linear",
               "params": {"weight": [columns, columns], "bias": [columns]}, "out": tensor(rows, columns)}
              for name, x in (("a", "x"), ("b", "a"))]
    return {"meta": {"mesh": [4], "alpha": [1], "beta": [1]},
            "nodes": [{"name": "x", "op": "placeholder", "inputs": [], "out": tensor(rows, columns)}, *layers,
                      {"name": "out", "op": "output", "inputs": ["b"], "out": None}]}


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

    def own_folders(self):
        """An environment without other files and without waiting for other processes that tune."""
        return {**os.environ, "XDG_CACHE_HOME": self.folder, "XDG_CONFIG_HOME": self.folder,
                "SEQTILE_LOCK_DIR": self.folder + "/locks"}

    def plan(self, *arguments):
        return subprocess.run([self.program, "plan", *arguments], cwd=self.folder, capture_output=True, text=True,
                              timeout=600)

    def good(self, *arguments):
        done = self.plan(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def answer(self, *arguments):
        return json.loads(self.good(*arguments, "--json").rstrip("\n").split("\n")[-1])

    def assert_line(self, done, pattern):
        """Checks for exit code 2, one line that names the fault, and no plan."""
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertRegex(done.stderr, pattern)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertNotIn("objective", done.stdout)

    def with_unknown(self, count):
        """Writes a graph file with `count` operators whose name has no rule. Returns the operators."""
        self.good("model", *FLAGS, "-o", "graph.json")
        with open(self.path("graph.json"), encoding="utf-8") as file:
            graph = json.load(file)
        gates = [node for node in graph["nodes"] if node["target"] == "silu_and_mul"][:count]
        for node in gates:
            node["target"] = "mystery_and_mul"
        self.write("unknown.json", json.dumps(graph))
        return gates


class Model(Plan):
    def test_a_graph_that_is_written_has_the_plan_of_its_model(self):
        for phase in "training", "prefill":
            for name in "graph.json", "graph.json.gz":
                of_model = self.answer("model", *FLAGS, "--phase", phase, "-o", name)
                self.assertTrue(of_model["exact"])
                of_graph = self.answer("graph", name)
                for field in "objective", "memory", "plan":
                    self.assertEqual(of_model[field], of_graph[field])
            with gzip.open(self.path("graph.json.gz"), "rt") as file:
                with open(self.path("graph.json"), encoding="utf-8") as plain:
                    self.assertEqual(file.read(), plain.read())

    def test_operators_without_strategies_are_named_and_counted(self):
        for pricing in [], CALIBRATED:
            self.assertNotIn("no way to cut them", self.good("model", *FLAGS, *pricing))
            self.assertEqual(self.answer("model", *FLAGS, *pricing)["graph"]["unknown"], 0)
            first = self.with_unknown(2)[0]["name"]
            text = self.good("graph", "unknown.json", *pricing)
            self.assertIn(f"no way to cut them is known: mystery_and_mul (node {first} and 1 other)", text)
            graph = self.answer("graph", "unknown.json", *pricing)["graph"]
            self.assertEqual((graph["unknown"], graph["unknown_operators"]), (2, {"mystery_and_mul": 2}))
            self.assertEqual(graph["unknown_share"], 2 / graph["operators"])
            self.assertIn(f"graph: {graph['parameters']:.0f} parameters; 2 of {graph['operators']} operators unknown (", text)

    def test_a_log_level_that_is_none_is_told_once(self):
        with unittest.mock.patch.dict(os.environ, SEQTILE_LOG="much"):
            done = self.plan("graph", "absent.json")
        self.assertRegex(done.stderr, "^seqtile: SEQTILE_LOG=much: is no level; give 0 .*; 0 is used\n.*absent.json.*\n$")

    def test_prices_that_are_not_of_the_phase_are_told(self):
        prefill = [*FLAGS, "--phase", "prefill"]
        self.assertIn("warning: --costs compat prices a forward and a backward pass", self.good("model", *prefill))
        self.assertIn("--costs compat prices", self.plan("model", *prefill, "--format", "json").stderr)
        for flags in FLAGS, [*prefill, *CALIBRATED]:
            self.assertNotIn("--costs compat prices", self.good("model", *flags))

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
            self.assert_line(self.plan("model", "--model", "model.json", "--mesh=" + mesh, "--length", "64"),
                             "--mesh " + mesh[0])
        for flags, text in [(["--devices", "8"], "--devices 8: the mesh has 4"),
                            (["--layers", "4"], "--layers 4: model.json has 3 layers; give at most as many"),
                            (["-o", "-"], "--output -: the plan goes to standard output; name a file for the graph"),
                            (["--length", "65"], r"--length is given 2 times \(64, 65\); give it once"),
                            (["--batch", "0"], "--batch 0: a whole number above 0 is wanted"),
                            (["--layers", "-1"], "--layers -1: a whole number above 0"),
                            (["--devices", "0.5"], "--devices 0.5: a whole number above 0"), (["--phase", "decode"], "--phase"),
                            (["--batch", str(1 << 40)], "at most 2\\^40")]:
            self.assert_line(self.plan("model", *FLAGS, *flags), text)
        self.assert_line(self.plan("model", "--model", "model.json", "--mesh", "2", "--length", "0"), "--length 0")
        self.assert_line(self.plan("model", "--model", "none.json", "--mesh", "2", "--length", "64"), "none.json")
        self.good("model", *FLAGS, "--devices", "4")


class Comm(Plan):
    FLAGS = ["--model", "model.json", "--mesh", "2x4"]
    PARAMETERS = 2 * 384 * 128 + 3 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 192 * 128 + 2 * 128) + 128

    def test_nine_ways_are_priced_and_the_best_is_named(self):
        found = self.answer("comm", *self.FLAGS)
        self.assertEqual([way["number"] for way in found["ways"]], [1, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9])
        self.assertEqual([way["number"] for way in found["ways"] if way["framework"]], [5, 6])
        self.assertEqual(found["devices"], 8)
        self.assertEqual(found["gradient_bytes"], 2 * self.PARAMETERS)
        for way in found["ways"]:
            self.assertGreaterEqual(way["seconds"], found["backward_s"])
            self.assertAlmostEqual(way["traffic"] * found["ways"][0]["bytes"] / way["bytes"], 1, places=9)
            if way["exact"]:
                self.assertGreaterEqual(way["seconds"], found["best"]["seconds"])
                self.assertAlmostEqual(way["bytes"] / (2 * 7 / 8 * 2 * self.PARAMETERS), 1, places=9)
        self.assertTrue(found["best"]["exact"])
        self.assertFalse(found["best_lossy"]["exact"])
        self.assertTrue(found["why"].startswith(found["best"]["way"]))
        text = self.good("comm", *self.FLAGS)
        self.assertEqual(text.count("(the framework's)"), 2)
        self.assertIn("\nbest: " + found["why"], text)

    def test_links_and_batches_are_taken_as_given(self):
        plain = self.answer("comm", *self.FLAGS)
        self.write("slow.json", '{"alpha": [1e-4, 1e-6], "beta": [1e-7, 1e-10], "overlap_slowdown": 1}')
        slow = self.answer("comm", *self.FLAGS, "--calibration", "slow.json")
        self.assertEqual(slow["overlap_slowdown"], 1)
        self.assertIn("by levels", slow["best"]["way"])
        self.assertGreater(slow["ways"][0]["seconds"], 10 * plain["ways"][0]["seconds"])
        self.assertEqual(slow["backward_s"], plain["backward_s"])
        more = self.answer("comm", *self.FLAGS, "--batch", "64")
        self.assertGreater(more["backward_s"], 2 * plain["backward_s"])
        self.assertGreater(more["backward_s"], self.answer("comm", *self.FLAGS, "--batch", "64", "--length", "64")["backward_s"])

    def test_bad_input_is_one_line(self):
        self.assert_line(self.plan("comm", "--model", "model.json", "--mesh", "1x1"), "--mesh 1x1: one device sends no gradients")
        self.assert_line(self.plan("comm", "--model", "model.json", "--mesh", "2x"), "--mesh 2x")
        self.assert_line(self.plan("comm", "--model", "none.json", "--mesh", "2"), "none.json")
        self.assert_line(self.plan("comm", *self.FLAGS, "--length", "0"), "--length 0")
        self.assert_line(self.plan("comm", *self.FLAGS, "--batch", "0"), "--batch")
        # The links hold for any device that the program knows.
        self.write("machine.json", '{"alpha": [2e-5, 5e-6], "beta": [8e-11, 5e-12]}')
        for command in ["comm", *self.FLAGS], ["model", *FLAGS, *CALIBRATED]:
            self.good(*command, "--calibration", "machine.json", "--device", "h200")
            self.assert_line(self.plan(*command, "--calibration", "machine.json", "--device", "bogus"), "--device: .*bogus")
        for text, message in [('{"alpha": [1]}', "of 1 mesh axis, "), ('{"overlap_slowdown": 0.5}', "0.5 must be at least 1"),
                              ('{"alpha"', "no JSON"), ('{"beta": [0, 1e300]}', r"beta\[1\]: 1e\+300 must be at most 0.001: seconds of a byte"), ('{"speed": 1}', 'unknown field "speed"')]:
            self.write("machine.json", text)
            self.assert_line(self.plan("comm", *self.FLAGS, "--calibration", "machine.json"), message)


class Calibrate(Plan):
    """One short run for all tests: this machine, two axes of two ranks."""
    STORES = ["--cache", "tuning.db", "--artifacts", "artifacts.db"]
    measured, progress = None, ""

    def setUp(self):
        super().setUp()
        if Calibrate.measured is None:
            done = self.plan("calibrate", "--mesh", "2x2", "-o", "machine.json", *self.STORES)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            with open(self.path("machine.json"), encoding="utf-8") as file:
                Calibrate.measured, Calibrate.progress = json.load(file), done.stderr
        self.write("machine.json", json.dumps(self.measured))
        self.write("small.json", json.dumps(SMALL))

    def test_links_and_device_are_measured(self):
        found = self.measured
        self.assertEqual([found[name] for name in ("ranks", "fabric", "dtype")], [[2, 2], "threads", "f32"])
        for name in "alpha", "beta", "residual":
            self.assertEqual(len(found[name]), 2)
            self.assertEqual(found[name][0], found[name][1])  # both axes have two ranks
        self.assertGreater(found["alpha"][0] + 1e6 * found["beta"][0], 0)
        self.assertLess(found["alpha"][0] + 1e6 * found["beta"][0], 1)
        self.assertGreater(found["peak_flops"], 1e7)
        self.assertGreater(found["bandwidth"], 1e6)
        self.assertLess(found["launch_s"], 1e-2)
        self.assertEqual(found["machine"]["device_kind"], "cpu")
        self.assertIn("model", found["machine"])
        self.assertRegex(self.progress, r"2 ranks, all-gather of 4\.1 kB a rank: .*s, by the fit")
        self.assertIn("4 ranks at once, each: ", self.progress)

    def test_processes_and_other_types_are_measured(self):
        flags = ["calibrate", "--ranks", "3", "--fabric", "processes", "--threads", "1", "--dtype", "bf16"]
        text = self.good(*flags, *self.STORES)
        found = json.loads(text)
        self.assertEqual([found[name] for name in ("ranks", "fabric", "dtype")], [[3], "processes", "bf16"])
        self.assertEqual(text.count("\n"), len(found) + 2)  # one line a field
        self.write("three.json", text)
        self.good("model", "--model", "model.json", "--mesh", "4", "--length", "64", *CALIBRATED, "--calibration",
                  "three.json")

    def test_any_mesh_of_as_many_axes_takes_it(self):
        for mesh in "2x2", "8x4":
            for command in ["model", "--length", "64", *CALIBRATED], ["comm", "--length", "64"]:
                self.good(*command, "--model", "model.json", "--mesh", mesh, "--calibration", "machine.json")
        self.good("explain", "small.json", "y", *CALIBRATED, "--calibration", "machine.json")

    def test_another_machine_is_refused(self):
        takers = [["graph", "small.json", *CALIBRATED], ["model", *FLAGS, *CALIBRATED], ["comm", *FLAGS],
                  ["explain", "small.json", "y", *CALIBRATED]]
        for command in takers:
            self.good(*command, "--calibration", "machine.json", "--device", "cpu")
            done = self.plan(*command, "--calibration", "machine.json", "--device", "h200")
            self.assert_line(done, r"machine.json: measured on cpu, model .*; the plan is for cuda, sm 90; run `seqtile "
                                   r"plan calibrate` there; plan graph and plan model also take the machine of the file "
                                    r"with --device")
        other = dict(self.measured, machine=dict(self.measured["machine"], cores="4096"))
        self.write("machine.json", json.dumps(other))
        for command in takers:
            self.assert_line(self.plan(*command, "--calibration", "machine.json"),
                             "measured on cpu, cores 4096, model .*; the plan is for cpu, cores [0-9]+, model")
        del other["machine"]
        self.write("machine.json", json.dumps(other))
        self.assert_line(self.plan(*takers[0], "--calibration", "machine.json"), 'is there without "machine"')

    def test_bad_input_is_one_line(self):
        for flags, message in ((["--ranks", "1"], "one rank sends nothing"),
                               (["--ranks", "17"], "--ranks 17: not a number of ranks from 1 to 16"),
                               (["--ranks", "two"], "--ranks two"),
                               (["--ranks", "2", "--mesh", "2"], "excludes"),
                               (["--mesh", "2x1"], "an axis of one rank sends nothing"),
                               (["--mesh", "4x8"], "32 ranks, a fabric has at most 16"),
                               (["--mesh", "2y2"], "--mesh 2y2: 1 to 3 sizes"),
                               (["--fabric", "sim:sm_80"], "--fabric sim:sm_80: calibrate measures CPU ranks"),
                               (["--fabric", "wires"], "--fabric wires"),
                               (["--dtype", "f64"], "--dtype f64: unknown"),
                               (["--threads", "0"], "--threads 0"),
                               (["--threads", "1,2"], "this command takes one")):
            self.assert_line(self.plan("calibrate", *flags, "-o", "none.json", *self.STORES), message)
        self.write("text.db", "no database\n" * 50)
        for path, message in ((".", "is a folder"), ("text.db", "is not an SQLite database"),
                              ("mistyped/t.db", "there is no folder mistyped; make it")):
            for flag in "--cache", "--artifacts":
                self.assert_line(self.plan("calibrate", flag, path, "-o", "none.json"), f"{flag} {path}: {message}")
        self.assertFalse(os.path.exists(self.path("none.json")) or os.path.exists(self.path("mistyped")))

    def test_a_new_store_is_made_and_nothing_is_said_of_it(self):
        self.assertNotIn("tuning store", self.progress)
        text = self.good("calibrate", "-o", "-", *self.STORES)
        self.assertEqual(json.loads(text)["ranks"], [2])
        self.assertTrue(os.path.exists(self.path("tuning.db")))
        self.assertFalse(os.path.exists(self.path("-")))

    def test_records_are_those_of_as_many_threads(self):
        self.good("graph", "small.json", "--cache", "plans.db")  # calibrated prices need a file
        command = ["graph", "small.json", *CALIBRATED, "--calibration", "machine.json", "--cache", "plans.db"]
        for threads in 1, 2:
            self.write("machine.json", json.dumps(dict(self.measured, threads=threads)))
            self.good(*command)
            self.assertIn("plan: from the cache", self.plan(*command, "--threads", str(threads)).stderr)
            self.assert_line(self.plan(*command, "--threads", str(3 - threads)),
                             f"machine.json: measured on ranks of {threads} threads?, kernel times are wanted of "
                             f"{3 - threads}; `seqtile plan calibrate --threads {3 - threads}`")
        self.assert_line(self.plan("run", "--length", "33", "--calibration", "machine.json"), "measured on ranks of 2")

    def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(self):
        self.write("file", "")
        os.symlink("nothing", self.path("dangling"))
        for path, reason in (("none/c.json", "there is no folder none; make it"), (".", "is a folder; give the path of"),
                             ("file/c.json", "a part of file is not a folder"),
                             ("dangling", "is a symbolic link to nothing; remove it")):
            for command in ["calibrate", *self.STORES], ["model", *FLAGS]:
                done = self.plan(*command, "-o", path)
                # The message has no progress line before it.
                self.assert_line(done, f"^[^\n]*--output {re.escape(path)}: {reason}")
                self.assertEqual(done.stdout, "")
        self.assert_line(self.plan("model", *FLAGS, "-o", "early.json", "--devices", "8"), "--devices 8")
        self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("early.json")])


class Kept(Plan):
    """Plans that are kept in a file and found again."""
    LINKS = {"alpha": [2e-5, 5e-6], "beta": [8e-11, 5e-12]}

    def setUp(self):
        super().setUp()
        self.write("links.json", json.dumps(self.LINKS))
        self.graph = ["model", *FLAGS, "--cache", "plans.db"]
        self.seconds = [*CALIBRATED, "--calibration", "links.json"]

    def run_plan(self, *arguments):
        """Standard output, and true if the plan was found."""
        done = self.plan(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, "plan: from the cache, plans.db\n" in done.stderr

    def rows(self, query="SELECT count(*) FROM plan"):
        database = sqlite3.connect(self.path("plans.db"))
        found = database.execute(query).fetchall()
        database.commit()
        database.close()
        return found

    def test_what_is_found_is_told_as_what_was_made(self):
        self.run_plan(*self.graph)  # calibrated prices need a file
        for flags in [], self.seconds:
            for form in (["--json"], *(["--format", form] for form in ("table", "json", "dot", "dtensor", "html"))):
                with self.subTest(flags=flags, form=form):
                    self.rows("DELETE FROM plan")
                    made, was_found = self.run_plan(*self.graph, *flags, *form)
                    self.assertFalse(was_found)
                    for _ in range(2):
                        self.assertEqual(self.run_plan(*self.graph, *flags, *form), (made, True))

    def test_one_row_serves_all_forms(self):
        made = json.loads(self.run_plan(*self.graph, "--format", "json")[0])
        for form in "table", "dot", "dtensor", "html":
            self.assertTrue(self.run_plan(*self.graph, "--format", form)[1])
        self.assertEqual(self.rows("SELECT objective, lower_bound, is_exact, ms FROM plan"),
                         [(made["objective"], made["lower_bound"], made["exact"], made["ms"])])
        [(plan, manifest)] = self.rows("SELECT plan, manifest FROM plan")
        self.assertEqual({row["name"]: row["strategy"] for row in json.loads(plan)["operators"]}, made["plan"])
        self.assertEqual(json.loads(manifest)["mesh"], [2, 2])
        self.assertEqual(self.rows("SELECT costs, mesh, operators, exact, phase FROM v_plans"),
                         [("compat", "[2,2]", len(made["plan"]), 1, "training")])

    def test_whatever_decides_a_plan_is_looked_at(self):
        self.run_plan(*self.graph)
        self.run_plan(*self.graph, *self.seconds)
        others = [["--memory", "1e9"], [*self.seconds, "--memory", "1e9"], ["--phase", "prefill"], ["--batch", "2"],
                  ["--layers", "2"], CALIBRATED]
        for flags in others:
            self.assertFalse(self.run_plan(*self.graph, *flags)[1], flags)
        for flags in others:
            self.assertTrue(self.run_plan(*self.graph, *flags)[1], flags)
        for name, value in (("alpha", [2e-5, 6e-6]), ("peak_flops", 1e12), ("bandwidth", 1e11), ("launch_s", 1e-5),
                            ("state_bytes", 12), ("overlap_slowdown", 1.9)):
            self.write("links.json", json.dumps({**self.LINKS, name: value}))
            self.assertFalse(self.run_plan(*self.graph, *self.seconds)[1], name)
        self.write("links.json", json.dumps(self.LINKS, indent=1))  # the same numbers
        self.assertTrue(self.run_plan(*self.graph, *self.seconds)[1])

    def test_a_graph_that_changes_is_planned_again(self):
        self.write("small.json", json.dumps(SMALL))
        graph = ["graph", "small.json", "--cache", "plans.db"]
        self.assertEqual([self.run_plan(*graph)[1] for _ in range(2)], [False, True])
        self.assertFalse(self.run_plan(*graph, "--strategies", "own")[1])
        for text in json.dumps(SMALL).replace("relu", "silu"), json.dumps(SMALL).replace("[8, 4]", "[8, 8]"):
            self.write("small.json", text)
            self.assertEqual([self.run_plan(*graph)[1] for _ in range(2)], [False, True])

    def test_what_is_no_plan_is_not_kept(self):
        self.assertEqual(self.plan(*self.graph, "--memory", "1").returncode, 1)
        self.assertFalse(os.path.exists(self.path("plans.db")))
        self.run_plan(*self.graph)
        self.assertEqual(self.plan(*self.graph, "--memory", "1").returncode, 1)
        self.write("bad.json", json.dumps(SMALL).replace('"relu"', "7"))
        self.write("three.json", json.dumps({"alpha": [1, 1, 1]}))
        for command, message in ((["graph", "bad.json"], "bad.json"),
                                 (["model", *FLAGS, "--devices", "5"], "--devices 5"),
                                 (["model", *FLAGS, *CALIBRATED, "--calibration", "three.json"], "mesh has 2"),
                                 (["model", *FLAGS, "--threads", "1"], "for --costs calibrated"),
                                 (["model", *FLAGS, *CALIBRATED, "--device", "abacus"], "abacus")):
            self.assert_line(self.plan(*command, "--cache", "plans.db"), message)
        self.assertEqual(self.rows(), [(1,)])
        self.assert_line(self.plan("model", *FLAGS, "--cache", "model.json"), "not an SQLite database")
        self.assert_line(self.plan("model", *FLAGS, "--cache", "."), "is a folder")
        self.assert_line(self.plan("explain", "bad.json", "y", "--cache", "plans.db"), "bad.json")
        self.write("small.json", json.dumps(SMALL))
        self.assert_line(self.plan("explain", "small.json", "y", "--cache", "plans.db"), "no plan is kept here")

    def test_rows_that_were_edited_are_made_again(self):
        made, _ = self.run_plan(*self.graph, "--format", "dtensor")
        for change in "plan = replace(plan, 'S0', 'S1')", "plan = '{}'", "objective = 1":
            self.rows("UPDATE plan SET " + change)
            self.assertEqual(self.run_plan(*self.graph, "--format", "dtensor"), (made, False))
            self.assertEqual(self.run_plan(*self.graph, "--format", "dtensor"), (made, True))
        self.assertEqual(self.rows(), [(1,)])

    def test_the_stores_command_knows_plans(self):
        self.run_plan(*self.graph)
        self.run_plan(*self.graph, "--phase", "prefill")

        def cache(command):
            done = subprocess.run([self.program, "cache", command, "--cache", "plans.db", "--json"], cwd=self.folder,
                                  capture_output=True, text=True, timeout=600)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return done.stdout, json.loads(done.stdout.rstrip("\n").split("\n")[-1])
        text, listed = cache("ls")
        self.assertRegex(text, r"(?m)^  1 +compat +2x2 +training ")
        self.assertEqual([plan["manifest"]["phase"] for plan in listed["plans"]], ["training", "prefill"])
        self.assertEqual(cache("stats")[1]["plans"], 2)
        self.assertEqual(cache("check")[1]["rows"], 2)
        self.rows("UPDATE plan SET ms = 1 WHERE manifest LIKE '%prefill%'")
        text, counts = cache("stats")
        self.assertEqual([counts["plans"], counts["bad_rows"]], [1, 1])
        self.assertRegex(text, r"(?m)^bad rows +1$")
class Run(Plan):
    SIZES = ["--hidden", "64", "--heads", "4", "--kv-heads", "2", "--intermediate", "96", "--length", "33",
             "--rounds", "3"]

    def plan(self, *arguments):
        environment = self.own_folders()
        return subprocess.run([self.program, "plan", *arguments], cwd=self.folder, capture_output=True, text=True,
                              timeout=600, env=environment)

    def run_plans(self, *arguments):
        """The answer with any order of times: times of so small sizes on a shared machine are noise."""
        done = self.plan("run", *arguments, "--json")
        self.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)
        answer = json.loads(done.stdout.rstrip("\n").split("\n")[-1])
        self.assertEqual(done.returncode == 0, not answer["wrong_pairs"], done.stdout)
        self.assertTrue(answer["same_results"], done.stdout)
        return answer, done.stdout

    def test_four_plans_compute_the_same_and_are_priced(self):
        self.write("machine.json", json.dumps({"alpha": [1e-6], "beta": [1e-10], "peak_flops": 1e11,
                                               "bandwidth": 1e10, "launch_s": 1e-6}))
        answer, text = self.run_plans(*self.SIZES, "--calibration", "machine.json", "--operators")
        plans = {plan["name"]: plan for plan in answer["plans"]}
        self.assertEqual(list(plans)[:4], ["replicated", "tensor parallel", "tensor and sequence parallel",
                                           "context parallel"])
        for name, plan in plans.items():
            self.assertGreaterEqual(plan["predicted_s"], answer["best_s"] * (1 - 1e-9), name)
            if "refusal" in plan:
                continue
            self.assertLess(plan["difference"], 1e-5, name)
            self.assertTrue(0 < plan["p20_s"] <= plan["measured_s"] <= plan["p80_s"], name)
            of_operators = sum(each["predicted_s"] for each in plan["operators"])
            self.assertAlmostEqual(of_operators / plan["predicted_s"], 1, places=9, msg=name)
        strategies = {each["name"]: each["strategy"] for each in plans["context parallel"]["operators"]}
        self.assertEqual(strategies["self_attn_attention"], "S0 length with gathered keys")
        changes = [each["name"] for each in plans["tensor parallel"]["operators"]
                   if each["strategy"] == "change of layout"]
        self.assertEqual(changes, ["all_reduce before add_attention", "all_reduce before add_mlp"])
        self.assertIn("pairs of plans predicted at least 10 % apart", text)

    def test_recorded_attention_prices_ranks_that_share_its_queries(self):
        environment = self.own_folders()
        tuned = subprocess.run([self.program, "tune", "attention_forward", "--set", "heads=4", "--set", "kv_heads=2",
                                "--set", "head_dim=16", "--threads", "1", "--length", "33", "--budget", "2s", "--cache",
                                "t.db"], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600)
        self.assertIn(tuned.returncode, (0, 1), tuned.stderr)
        self.write("free.json", json.dumps({"alpha": [0], "beta": [0], "launch_s": 0}))
        answer, text = self.run_plans(*self.SIZES, "--calibration", "free.json", "--cache", "t.db", "--operators")
        replicated, context = ([each["predicted_s"] for each in plan["operators"]
                                if each["name"] == "self_attn_attention"] for plan in
                               (answer["plans"][0], answer["plans"][3]))
        self.assertGreater(replicated[0], 1e-6)  # the roofline's default device would be faster
        self.assertAlmostEqual(context[0] / replicated[0], 17 / 33)

    def test_a_terminal_sees_how_far_it_is(self):
        self.write("none.json", "{}")
        terminal, end = pty.openpty()
        command = [self.program, "plan", "run", "--calibration", "none.json", "--hidden", "64", "--heads", "4",
                   "--intermediate", "128", "--length", "32", "--rounds", "600", "--json"]
        environment = self.own_folders()
        with subprocess.Popen(command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=end,
                              text=True) as process:
            os.close(end)
            seen = ""
            while True:
                try:
                    seen += os.read(terminal, 4096).decode()
                except OSError:  # the program's end is closed
                    break
            out = process.stdout.read()
        os.close(terminal)
        self.assertIn(process.returncode, (0, 1), out)
        self.assertRegex(seen, r"plan run \[[#.]*\] +\d+ %: round \d+ of 600")
        self.assertNotIn(" of 600", out)
        self.assertEqual(json.loads(out.rstrip("\n").split("\n")[-1])["rounds"], 600)

    def test_a_config_json_in_bf16(self):
        self.write("none.json", "{}")
        answer, _ = self.run_plans("--model", "model.json", "--calibration", "none.json", "--layers", "1", "--length",
                                   "20", "--rounds", "1", "--dtype", "bf16")
        self.assertGreaterEqual(len(answer["plans"]), 4)

    def test_bad_input_is_one_line(self):
        self.write("none.json", "{}")
        for flags, pattern in (
                (["--hidden", "60", "--heads", "8"], "--hidden 60 --heads 8 --kv-heads 4: heads must divide"),
                (["--ranks", "3", *self.SIZES], "tensor parallel over 3 ranks: .*; ranks must divide heads"),
                (["--hidden", "1000000000"], "--hidden"), (["--layers", "101"], "--layers"), (["--rounds", "0"], "--rounds"),
                (["--ranks", "1"], "--ranks"), (["--length", "0"], "--length 0"), (["--dtype", "f8"], "--dtype f8"),
                (["--length", "2"], "--length 2: give each of 2 ranks two tokens at least"),
                (["--model", "model.json", "--hidden", "64"], "--hidden"),
                (["--model", "model.json", "--layers", "7", "--length", "20"], "--layers 7: model.json has 3 layers"),
                (["--model", "absent.json"], "absent.json"),
                (["--cache", "absent.db"], "absent.db")):
            self.assert_line(self.plan("run", "--calibration", "none.json", *flags), pattern)
        self.assert_line(self.plan("run"), "needs --calibration FILE, .*seqtile plan calibrate --ranks 2 --threads 1 -o FILE")


class PageReader(html.parser.HTMLParser):
    """Elements and text of a page. The page must close elements in the reverse order of their opening."""
    VOID = {"meta", "input"}

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.text, self.rows = [], [], [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data
        if "td" in self.open and "title" not in self.open:
            self.rows[-1][-1] += data


class Forms(Plan):
    GRAPHS = ["gpt_block_384", "resnet18_b128_32px_2x2"]

    def golden(self, name):
        return os.path.join(self.root, "tests/golden/planner", name + ".json.gz")

    def test_json_is_the_plan_and_its_costs(self):
        for name in self.GRAPHS:
            found = json.loads(self.good("graph", self.golden(name), "--format", "json"))
            usual = self.answer("graph", self.golden(name))
            self.assertEqual(found["plan"], usual["plan"])
            self.assertEqual([row["strategy"] for row in found["operators"]], list(found["plan"].values()))
            total = sum(row[part] for row in found["operators"] for part in ("compute", "communication", "reshard"))
            self.assertAlmostEqual(total / found["objective"], 1, places=12)
            self.assertAlmostEqual(sum(row["memory"] for row in found["operators"]) / found["memory"], 1, places=12)

    def test_dot_has_every_operator_and_tensor(self):
        for name in self.GRAPHS:
            text = self.good("graph", self.golden(name), "--format", "dot")
            with gzip.open(self.golden(name)) as file:
                nodes = json.load(file)["nodes"]
            self.assertEqual(len(re.findall(r"^  n\d+ \[label", text, re.M)), len(nodes))
            names = {node["name"] for node in nodes}
            tensors = sum(len(set(node["inputs"]) & names) for node in nodes)
            self.assertEqual(len(re.findall(r"^  n\d+ -> n\d+ \[", text, re.M)), tensors)
            if shutil.which("dot"):  # Graphviz takes seconds for a large graph: its syntax is enough
                drawn = subprocess.run(["dot", "-Tsvg" if len(nodes) < 60 else "-Tcanon"], input=text,
                                       capture_output=True, text=True, timeout=600)
                self.assertEqual((drawn.returncode, drawn.stderr), (0, ""))
            else:
                print("skipped: this machine has no dot", file=sys.stderr)

    def python_plan(self, *arguments):
        """Runs the printed Python with classes like PyTorch's."""
        module = types.ModuleType("torch.distributed.tensor")
        module.Shard, module.Replicate, module.Partial = lambda dim: dim, lambda: "R", lambda: "P"
        modules = {"torch": types.ModuleType("torch"), "torch.distributed": types.ModuleType("torch.distributed"),
                   "torch.distributed.tensor": module}
        found = {}
        with unittest.mock.patch.dict(sys.modules, modules):
            code = compile(self.good(*arguments, "--format", "dtensor"), "plan", "exec")
            exec(code, found)  # pylint: disable=exec-used
        return found

    def test_placements_are_python(self):
        found = self.python_plan("model", *FLAGS)
        self.assertEqual(found["mesh_shape"], (2, 2))
        self.assertEqual(len(found["parameters"]), 3 + 3 * 8)
        for name in "model.embed_tokens.weight", "model.layers.2.mlp.down_proj.weight", "lm_head.weight":
            self.assertEqual(len(found["parameters"][name]), 2)
        row = self.python_plan("model", "--model", "model.json", "--mesh", "2", "--length", "64")
        self.assertEqual(row["mesh_shape"], (2,))
        for name in self.GRAPHS:  # the stored layout of each result, in DTensor's spelling
            found = self.python_plan("graph", self.golden(name))
            chosen = json.loads(self.good("graph", self.golden(name), "--format", "json"))["plan"]
            with gzip.open(self.golden(name)) as file:
                nodes = json.load(file)["nodes"]
            for node in nodes:
                if not isinstance(node["out"], dict):
                    continue
                specs = next(s["specs"] for s in node["strategies"] if s["name"] == chosen[node["name"]])
                cuts = {int(axis): dim for dim, cut in enumerate(specs[node["name"]]) for axis in cut[1:]}
                self.assertEqual(found["activations"][node["name"]]["output"],
                                 [cuts.get(axis, "R") for axis in range(2)])

    def test_inputs_are_no_partial_sums(self):
        """Partial sums in the layouts of operands belong to gradients."""
        self.write("linears.json", json.dumps(linears(256, 1024)))
        flags = ["graph", "linears.json", *CALIBRATED, "--memory", "10e6"]
        self.assertEqual(self.answer(*flags)["plan"]["a"], "S0 n")  # the gradient of x is a partial sum
        found = self.python_plan(*flags)
        self.assertEqual(found["activations"]["a"], {"inputs": [["R"]], "output": [1]})
        self.assertEqual(found["parameters"]["a.weight"], [0])
        for mesh in "2", "2x2", "2x2x2":
            found = self.python_plan("model", "--model", "model.json", "--mesh", mesh, "--length", "64", *CALIBRATED)
            for name, node in found["activations"].items():
                self.assertNotIn("P", [state for placement in node["inputs"] for state in placement], name)

    def test_parameters_in_parts_have_the_placements_of_parts(self):
        self.write("linears.json", json.dumps(linears(1 << 18, 256)))
        flags = ["graph", "linears.json", *CALIBRATED]
        whole = self.python_plan(*flags)["parameters"]
        self.assertEqual(self.answer(*flags)["plan"]["a"], "S0 rows")
        self.assertEqual(whole, dict.fromkeys(["a.bias", "a.weight", "b.bias", "b.weight"], ["R"]))
        done = self.plan(*flags, "--memory", "1", "--json")
        budget = json.loads(done.stdout.rstrip("\n").split("\n")[-1])["smallest_memory"]
        flags += ["--memory", str(budget)]
        self.assertIn("parameters in parts", self.answer(*flags)["plan"]["b"])
        self.assertEqual(self.python_plan(*flags)["parameters"], dict.fromkeys(whole, [0]))
        self.assertIn(f"parameters {2 * 257 * 256 * (4 + 8) / 4 / 1e3:.1f} kB", self.good(*flags, "--format", "html"))

    def test_a_page_needs_nothing_else_and_has_every_operator(self):
        for arguments, operators in [(["graph", self.golden("gpt_block_384")], None),
                                     (["model", *FLAGS], 2 + 3 * 18 + 3)]:
            text = self.good(*arguments, "--format", "html")
            page = PageReader()
            page.feed(text)
            page.close()
            self.assertEqual(page.open, [])
            self.assertTrue(text.startswith("<!DOCTYPE html>"))
            self.assertFalse({"link", "img", "iframe", "object"} & set(page.tags))
            self.assertFalse([name for name, _ in page.attributes if name in ("src", "href", "xlink:href")])
            self.assertNotRegex(text, r"https?:|url\(|@import")
            plan = self.answer(*arguments)["plan"]
            if operators:
                self.assertEqual(len(plan), operators)
            self.assertEqual([row[0] for row in page.rows if row], list(plan))
            self.assertEqual([row[2] for row in page.rows if row], list(plan.values()))
            for word in "computation", "communication", "resharding", "Memory over time", "parameters":
                self.assertIn(word, page.text)
            self.assertNotRegex(text, r'"-?(nan|inf)')

    def test_names_are_escaped(self):
        graph = json.loads(json.dumps(SMALL).replace('"x"', json.dumps('<b>"x\\&')))
        self.write("names.json", json.dumps(graph))
        page = PageReader()
        page.feed(self.good("graph", "names.json", "--format", "html"))
        self.assertNotIn("b", page.tags)
        self.assertEqual(page.rows[1][0], '<b>"x\\&')
        self.assertIn(r'"<b>\"x\\&\nRepl', self.good("graph", "names.json", "--format", "dot"))
        self.assertIn('<b>"x\\&', self.python_plan("graph", "names.json")["activations"])

    def test_warnings_and_refusals_are_not_in_the_plan(self):
        self.with_unknown(1)
        done = self.plan("graph", "unknown.json", "--format", "dot")
        self.assertEqual(done.returncode, 0)
        self.assertIn("no way to cut them is known", done.stderr)
        self.assertTrue(done.stdout.startswith("digraph") and done.stdout.endswith("}\n"))
        done = self.plan("model", *FLAGS, "--format", "html", "--memory", "1")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no plan fits 1 B of memory", done.stderr)
        self.assert_line(self.plan("model", *FLAGS, "--format", "dot", "--json"), "excludes")
        self.assert_line(self.plan("model", *FLAGS, "--format", "pdf"), "--format")


class Parts(Plan):
    def check_parts(self, *arguments):
        """Checks that the parts are sums over all operators, and that no operator pays less than nothing."""
        found = json.loads(self.good(*arguments, *CALIBRATED, "--format", "json"))
        parts, operators = found["parts"], found["operators"]
        for name, field in ("compute_s", "compute"), ("communication_s", "communication"), ("resharding_s", "reshard"):
            self.assertGreaterEqual(min(row[field] for row in operators), 0)
            self.assertAlmostEqual(parts[name], sum(row[field] for row in operators), delta=1e-9 * found["objective"])
        self.assertLessEqual(parts["measured"], parts["kernels"])
        return parts

    def test_costs_that_are_not_there_are_nothing(self):
        for mesh in [["1"], ["2x2"], ["2x2x2"]]:
            parts = self.check_parts("model", "--model", "model.json", "--mesh", *mesh, "--length", "64")
            self.assertGreater(parts["compute_s"], 0)
            self.assertGreaterEqual(parts["resharding_s"], 0)
            if mesh == ["1"]:
                self.assertEqual((parts["communication_s"], parts["resharding_s"]), (0, 0))
        layers = os.path.join(self.root, "examples/models/llama-3-70b.json")
        parts = self.check_parts("model", "--model", layers, "--mesh", "1", "--length", "4096")
        self.assertEqual(parts["resharding_s"], 0)  # exactly 0, without the rest of a difference


class Document(Plan):
    def test_docs_cli_md_names_every_flag_of_help(self):
        with open(os.path.join(self.root, "docs/cli.md"), encoding="utf-8") as file:
            sections = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", file.read(), re.M))
        script = subprocess.run([self.program, "completion", "bash"], capture_output=True, text=True, timeout=60).stdout
        commands = re.findall(r'^    "(.+)"\) flags="(.*?)"', script, re.M)
        self.assertIn("plan run", dict(commands))
        for path, flags in commands:
            known = sections[path.split()[0]] + sections["Flags of several commands"]
            for flag in set(flags.split()) - {"-h", "--help"}:
                self.assertRegex(known, rf"(?<![\w-]){flag}(?![\w-])", path)
            if path.startswith("plan "):
                rows = [row.split("|")[1:3] for row in sections["plan"].splitlines() if row.startswith("| `-")]
                named = {flag for flags_of, of in rows if path[5:] in re.findall(r"\w+", of)
                         for flag in re.findall(r"(?<![\w-])--?\w[\w-]*", flags_of)}
                self.assertEqual(named, set(flags.split()) - {"-h", "--help", "--json"}, path)


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
        self.refused("the last node, y, is no output but a call_function", lambda graph: graph["nodes"].pop())
        self.refused("output out has no node among its inputs; give the names", node(2, inputs=[]))
        self.refused('there are no "nodes"', lambda graph: graph.pop("nodes"))
        self.refused("shapes of node y contradict each other: relu of x .8, 4. gives .8, 4., \"out\" says .8, 5.",
                     node(1, out=tensor(8, 5)))
        self.refused("contradict", node(1, out=tensor(8, 5)), *CALIBRATED)
        self.refused('"softplus" is none of placeholder, get_attr', node(1, op="softplus"))
        self.refused('"meta" is missing', lambda graph: graph.pop("meta"))
        self.refused('4 devices in all, "devices" says 6', lambda graph: graph["meta"].update(devices=6))
        self.refused("--devices 6: the mesh has 4", lambda graph: None, "--devices", "6")
        self.good("graph", "bad.json", "--devices", "4")

    def test_circles_of_nodes_that_follow(self):
        problem = {"s_len": [2, 2, 2], "s_follow": [-1, 2, -1], "alias": {"2": 1}, "compute": [1] * 6, "comm": [0] * 6,
                   "mem": [1] * 6, "edges": [], "reshard": []}
        self.write("circle.json", json.dumps({"problem": problem}))
        self.assert_line(self.plan("solve", "circle.json"),
                         r"circle.json.problem: nodes follow one another in a circle, (1 -> 2 -> 1|2 -> 1 -> 2), so that none of "
                         r'them chooses; give one -1 in "s_follow" and no "alias"')

    def test_models_that_are_not_planned(self):
        for fields, message in (({"num_hidden_layers": 10001}, r"num_hidden_layers is 10001, must be a whole number of 1\.\.1000"),
                                ({"num_experts": 8}, "num_experts is 8, asks for a mixture of experts, which is not modelled")):
            self.write("other.json", json.dumps({**MODEL, **fields}))
            for command in "model", "comm":
                self.assert_line(self.plan(command, "--model", "other.json", "--mesh", "2x2", "--length", "64"), message)

    def test_a_thousand_layers_are_planned(self):
        self.write("deep.json", json.dumps({**MODEL, "num_hidden_layers": 1000}))
        for costs in [], CALIBRATED:
            found = self.answer("model", "--model", "deep.json", "--mesh", "2x2", "--length", "64", *costs)
            self.assertTrue(found["exact"])
            self.assertIn("model_layers_999_mlp_down_proj", found["plan"])

    def test_controls_in_names_do_not_reach_a_terminal(self):
        name = "y\x1b]0;owned\x07\nseqtile: done\x9b2J\x7f"
        text = json.dumps(SMALL).replace('"y"', json.dumps(name))
        graphs = {"plain": text, "unknown": text.replace("relu", "softplus\\u001b[31m"),
                  "wrong": text.replace("call_function", json.dumps("call\x1b[2J")[1:-1]), "cut": text[:-1] + "\x1b[2J"}
        controls = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        for kind, graph in graphs.items():
            file = f"{kind}\x1b[1m.json"
            self.write(file, graph)
            for flags in [], ["--format", "dot"], ["--format", "html"], ["--format", "dtensor"], ["--memory", "1"]:
                done = self.plan("graph", file, *flags)
                self.assertEqual(done.returncode, 2 if kind in ("wrong", "cut") else 1 if "--memory" in flags else 0, done.stderr)
                self.assertIsNone(controls.search(done.stdout + done.stderr), repr(done.stdout + done.stderr))
                self.assertNotRegex(done.stdout + done.stderr, "(?m)^seqtile: done")
        found = self.answer("graph", "plain\x1b[1m.json")
        self.assertIn(name, found["plan"])  # JSON keeps names as they are

    def test_memory_is_a_finite_number_of_bytes(self):
        self.write("small.json", json.dumps(SMALL))
        for command in ["graph", "small.json"], ["model", *FLAGS], ["solve", "small.json"]:
            for budget in "nan", "-nan", "inf", "-inf", "1e999", "0", "-1", "much":
                done = self.plan(*command, f"--memory={budget}")
                self.assert_line(done, f"--memory.*{budget}.*finite number of bytes above 0")
        self.good("graph", "small.json", "--memory", "1e6")

    def test_flags_that_would_do_nothing(self):
        self.write("small.json", json.dumps(SMALL))
        for flags in ["--device", "cpu"], ["--threads", "1"], ["--threads", "-3"]:
            for costs in [], CALIBRATED:
                self.assert_line(self.plan("graph", "small.json", *flags, *costs), f"{flags[0]} requires --cache")
                self.assert_line(self.plan("model", *FLAGS, *flags, *costs), f"{flags[0]} requires --cache")
        self.assert_line(self.plan("graph", "small.json", "--cache", "t.db", "--device", "cpu"),
                         "for --costs calibrated")

    def test_files_that_are_none(self):
        self.write("small.json", json.dumps(SMALL))
        for path, why in ("absent.json", "there is no such file"), (".", "is a folder, not a file"):
            for command in ["graph", path], ["solve", path], ["explain", path, "y"]:
                self.assert_line(self.plan(*command), f"file {re.escape(path)}: {why}; give a graph or a problem as JSON")
            for command in (["graph", "small.json", *CALIBRATED], ["comm", "--model", "model.json", "--mesh", "2"],
                            ["explain", "small.json", "y", *CALIBRATED]):
                self.assert_line(self.plan(*command, "--calibration", path),
                                 f"--calibration {re.escape(path)}: {why}; give a file that `seqtile plan calibrate")

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
