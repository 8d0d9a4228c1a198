#!/usr/bin/env python3
# tests/tools/export_graph_test.py -- tools/python/export_graph.py: export_graph_test.py ROOT PROGRAM. The test uses
# this Python's PyTorch or torch_python.py's. It checks only the messages if there is no PyTorch.
# SPDX-License-Identifier: Apache-2.0
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import traceback
import unittest

import torch_python

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "small_models.py")
BROKEN = """raise RuntimeError("not\\x1b[31m today\\nnor tomorrow")"""


try:
    import torch  # imported once: each case is a fork of this process
    import torch.export
    import torch.fx
except ImportError:
    torch = None


def captured(run):
    """Exit code, standard output and standard error of a function, in a process of its own."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = 1
            try:
                run()
                code = 0
            except SystemExit as end:
                code = end.code or 0
            except BaseException:  # pylint: disable=broad-except
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in out, err:
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess([], code, *texts)


class ExportGraph(unittest.TestCase):
    root = program = "."

    def export(self, *arguments):
        def run():
            os.chdir(self.folder)
            sys.argv = ["export_graph.py", *arguments]
            sys.path[0] = self.root + "/tools/python"
            import export_graph

            export_graph.main()

        return captured(run)

    @classmethod
    def setUpClass(cls):
        if torch is not None:  # the first trace imports more modules, so it runs before the forks
            torch.export.export(
                torch.nn.Linear(1, 1, device="meta"), (torch.empty(1, 1, device="meta"),), strict=False
            ).run_decompositions({})

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="seqtile_export_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(MODELS, encoding="utf-8") as models, open(self.folder + "/model.py", "w", encoding="utf-8") as file:
            file.write(models.read())
        with open(self.folder + "/broken.py", "w", encoding="utf-8") as file:
            file.write(BROKEN)
        with open(self.folder + "/needs.py", "w", encoding="utf-8") as file:
            file.write("import no_such_package.part\n")

    def assert_refused(self, arguments, text, code=2):
        done = self.export(*arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(text, done.stderr)
        self.assertRegex(done.stderr, "^export_graph: [^\n\x1b]+\n$")

    def exported(self, *arguments):
        """The graph and the number of elements of its parameters."""
        done = self.export(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        graph = json.loads(done.stdout)
        held = sum(
            math.prod(node["out"]["shape"]) for node in graph["nodes"] if node.get("role") in ("parameter", "frozen")
        )
        of_modules = sum(math.prod(shape) for node in graph["nodes"] for shape in node.get("params", {}).values())
        return graph, held + of_modules

    def planned(self, graph, *arguments):
        path = self.folder + "/graph.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(graph, file)
        plan = subprocess.run(
            [self.program, "plan", "graph", path, "--json", *arguments], capture_output=True, text=True
        )
        self.assertEqual(plan.returncode, 0, plan.stdout + plan.stderr)
        return json.loads(plan.stdout.splitlines()[-1])

    def test_bad_arguments_are_told_before_anything_is_loaded(self):
        for shape in (
            "0x32",
            "",
            "8x",
            "x8",
            "-1",
            "8x-1",
            "8.5",
            "2*2",
            "1x1x1x1x1x1x1x1x1",
            "2000000x2000000",
            "9" * 5000,
        ):
            self.assert_refused(
                ["model:tiny", "--input", "x=" + shape], f"--input x={shape}: {shape or 'nothing'} is no shape"
            )
        for mesh in "0x2", "", "2x", "2x2x2x2", "1048577", "two":
            self.assert_refused(["model:tiny", "--input", "x=1", "--mesh", mesh], f"--mesh {mesh}: 1 to 3 sizes from 1")
        for arguments, text in [
            (["--input", "x"], "--input x: NAME=VALUE is wanted"),
            (["--input", "x=1", "--input", "x=2"], "--input x=2: x is given twice"),
            (["--input", "x=1", "--value", "y"], "--value y: NAME=VALUE is wanted"),
            (["--input", "x y=1"], "x y is no name of an argument"),
            (["--input", "x=1", "--arg", "width"], "--arg width: NAME=VALUE is wanted"),
        ]:
            self.assert_refused(["model:tiny", *arguments], text)

    def test_words_that_are_not_known_are_one_line_with_the_nearest_one(self):
        tiny = ["model:tiny", "--input", "x=1"]
        for arguments, text in [
            ([], "MODULE:FUNCTION is missing, as in torchvision.models:resnet50; see `export_graph.py --help`"),
            (["model:tiny"], "--input is missing: give each tensor of the forward pass"),
            ([*tiny, "--mesh"], "--mesh has no value; write --mesh VALUE; see"),
            ([*tiny, "-o"], "--output has no value; write --output VALUE; see"),
            ([*tiny, "--tracer", "exprt"], "--tracer exprt: unknown; give export or fx; did you mean export?"),
            ([*tiny, "--tracer", "jit"], "--tracer jit: unknown; give export or fx\n"),
            ([*tiny, "--inptu", "y=1"], "there is no option --inptu; did you mean --input?; see"),
            ([*tiny, "--frob=1"], "there is no option --frob; see"),
            ([*tiny, "more"], "'more' is one word too many; see"),
        ]:
            self.assert_refused(arguments, text)

    def test_an_error_of_the_models_own_code_is_its_own_fault(self):
        with open(self.folder + "/own.py", "w", encoding="utf-8") as file:
            file.write(
                "import json\n"
                "def mistyped(x): return x + lenght\n"
                "def lacks(x): return x.wdith\n"
                "def refuses(x): raise ValueError('three dimensions are wanted')\n"
                "def asserts(x): assert x > 5\n"
                "def of_a_library(x): return json.loads('{')\n"
                "def lacks_an_argument(x, mask=None): return mask.shape\n"
            )
        sys.path[:0] = [self.folder, self.root + "/tools/python"]
        try:
            own, refusal = importlib.import_module("own"), importlib.import_module("graph_export.refusal")
        finally:
            del sys.path[:2], sys.modules["own"]
        for name, step in [
            ("mistyped", "the model's own code is at fault: correct that line"),
            ("lacks", "the model's own code is at fault: correct that line"),
            ("refuses", "the model's own code refuses the call: that line says what it wants"),
            ("asserts", "the model's own code refuses the call: that line says what it wants"),
            ("of_a_library", ""),
            ("lacks_an_argument", ""),
        ]:
            try:
                getattr(own, name)(1)
            except Exception as error:  # pylint: disable=broad-except
                self.assertEqual(refusal.own_fault(error), step, name)
                self.assertIn(f" at {self.folder}/own.py:" if step else "", refusal.cause(error, "torch.fx"))
                self.assertIn(step or "check --input and --value", refusal.cause(error, "torch.fx"))
            else:
                self.fail(name)

    def test_a_file_that_cannot_be_written_is_told_before_anything_is_loaded(self):
        for path, why in (
            ("none/g.json", "there is no folder none; make it"),
            (".", "is a folder; give the path"),
            ("model.py/g", "there is no folder model.py; make it"),
        ):
            self.assert_refused(["broken:none", "--input", "x=1", "-o", path], f"--output {path}: {why}")
        self.assertFalse(os.path.exists(self.folder + "/none"))

    @unittest.skipUnless(torch, "no PyTorch")
    def test_what_is_no_model_is_one_line(self):
        for arguments, text in [
            (["model"], "model: MODULE:FUNCTION is wanted"),
            ([":tiny"], "MODULE:FUNCTION"),
            (["model:"], "MODULE:FUNCTION"),
            (["absent:tiny"], "module absent cannot be imported: ModuleNotFoundError"),
            (["broken:tiny"], "not [31m today; correct the module there"),
            (["broken:tiny"], "module broken cannot be imported at broken.py:1, `raise"),
            (["needs:tiny"], "package no_such_package is missing"),
            (["model:none"], "module model has no function none"),
            (["model:tinny"], "module model has no function tinny; give one that returns the nn.Module; did you mean tiny?"),
            (["model:constant"], "no function constant"),
            (["model:tiny"], "no model comes of it: TypeError"),
            (["model:fails"], "no model comes of it at model.py:"),
            (["model:fails"], "the model's own code refuses the call: that line says what it wants"),
            (["model:wants_package"], "no model comes of it: package no_such_package is missing"),
            (["model:lazy"], "parameter weight has no size before the first call"),
            (["model:nothing"], "gives int, an nn.Module is wanted"),
        ]:
            self.assert_refused([*arguments, "--input", "x=16x3x8x8"], text)
        for dtype in "float31", "nn", "Tensor":
            self.assert_refused(
                ["model:tiny", "--input", "x=1:" + dtype], f"--input x=1:{dtype}: {dtype} is no dtype of torch"
            )

    @unittest.skipIf(torch, "PyTorch is there")
    def test_no_pytorch_is_one_line(self):
        self.assert_refused(["model:tiny", "--input", "x=1"], "install PyTorch", 3)

    @unittest.skipUnless(torch, "no PyTorch")
    def test_a_refusal_names_the_cause_and_the_line_of_the_model(self):
        x = ["--input", "x=4x8"]
        for arguments, text in [
            (
                ["model:Branches", *x],
                "control flow depends on values of tensors at model.py:{branch}, `return x if x.sum() > 0",
            ),
            (
                ["model:Branches", *x, "--tracer", "fx"],
                "control flow depends on values of tensors at model.py:{branch}, `",
            ),
            (["model:Sized", *x], "depends on values of tensors; a plan needs sizes that are known"),
            (["model:Elsewhere", *x], 'made on another device than the model\'s, "meta" at model.py:{device}, `'),
            (["model:Needs", *x], "package no_such_package is missing"),
            (
                ["model:optional", "--input", "x=4x9"],
                "torch.export cannot trace it at model.py:{linear}, `y = self.l(x) * scale",
            ),
            (
                ["model:optional", "--input", "x=4x8", "--input", "y=3"],
                "the model takes x, mask (optional), scale (optional); --input gives x, y; y is none of them",
            ),
            (["model:optional", "--input", "mask=3"], "--input gives mask; x is missing: --input x=SIZES[:DTYPE]"),
            (["model:optional", *x, "--value", "x=3"], "x is given by --input and by --value"),
        ]:
            with open(MODELS, encoding="utf-8") as file:
                lines = {
                    mark: number
                    for number, line in enumerate(file, 1)
                    for mark in ("branch", "device", "linear")
                    if line.rstrip().endswith("# " + mark)
                }
            self.assert_refused(arguments, text.format(**lines))

    @unittest.skipUnless(torch, "no PyTorch")
    def test_results_of_any_form_are_carried_with_the_parameters_behind_them(self):
        for model, inputs in [
            ("attention", "x=2x8x32"),
            ("recurrent", "x=4x6x16"),
            ("nested", "x=4x16"),
            ("structured", "x=4x16"),
            ("optional", "x=4x8"),
        ]:
            for tracer in "export", "fx":
                with self.subTest(model=model, tracer=tracer):
                    graph, parameters = self.exported(f"model:{model}", "--input", inputs, "--tracer", tracer)
                    self.assertEqual(parameters, self.parameters_of(model))
                    names = {node["name"] for node in graph["nodes"]}
                    for node in graph["nodes"]:
                        self.assertLessEqual(set(node["inputs"]), names)
                        if node["target"] == "_operator.getitem":
                            self.assertEqual(len(node["inputs"]), 1, node)
                    self.planned(graph)

    @unittest.skipUnless(torch, "no PyTorch")
    def test_a_result_that_cannot_be_looked_into_is_refused_by_its_type(self):
        for form, name in ("slots", "Slots"), ("function", "Function"), ("closure", "function"), ("iterator", "list_iterator"):
            for more in [], ["--arg", "is_alone=True"], ["--tracer", "fx"]:
                self.assert_refused(
                    ["model:wrapped", "--arg", f"form={form}", "--input", "x=4x8", *more],
                    f"model:wrapped: a result has a {name}, in which tensors cannot be looked for; return tensors, ",
                )
        self.assert_refused(
            ["model:wrapped", "--arg", "form=nothing", "--arg", "is_alone=True", "--input", "x=4x8"],
            "model:wrapped: the model gives dict, in which no tensor is found; return tensors, ",
        )
        for form in "member", "marked", "queue", "values":
            graph, parameters = self.exported("model:wrapped", "--arg", f"form={form}", "--input", "x=4x8")
            self.assertEqual(parameters, 144)
            self.assertEqual([node["inputs"] for node in graph["nodes"]][-1], ["linear_1", "linear"])

    def parameters_of(self, model):
        def run():
            sys.path.insert(0, self.folder)
            print(sum(p.numel() for p in getattr(importlib.import_module("model"), model)().parameters()))

        return int(captured(run).stdout)

    @unittest.skipUnless(torch, "no PyTorch")
    def test_members_of_nested_tuples_are_counted_through(self):
        graph, _ = self.exported("model:recurrent", "--input", "x=4x6x16", "--tracer", "fx")
        by_name = {node["name"]: node for node in graph["nodes"]}
        self.assertEqual([out["shape"] for out in by_name["r"]["out"]], [[4, 6, 16], [2, 4, 16], [2, 4, 16]])
        members = {name: node["args"] for name, node in by_name.items() if node["target"] == "_operator.getitem"}
        self.assertEqual(
            members,
            {
                "getitem": ["r", "0"],
                "getitem_1": ["r", "1", "2"],
                "getitem_2": ["getitem_1", "0"],
                "getitem_3": ["getitem_1", "1"],
            },
        )

    @unittest.skipUnless(torch, "no PyTorch")
    def test_arguments_with_defaults_and_others_are_given_by_name(self):
        for arguments, operators in [
            ([], ["linear", "mul"]),
            (["--input", "mask=4x8"], ["linear", "mul", "add"]),
            (["--value", "scale=2.0"], ["linear", "mul"]),
        ]:
            graph, parameters = self.exported("model:optional", "--input", "x=4x8", *arguments)
            self.assertEqual(parameters, 72)
            self.assertEqual(
                [node["target"] for node in graph["nodes"] if node["op"].startswith("call")],
                ["aten." + name for name in operators],
            )

    @unittest.skipUnless(torch, "no PyTorch")
    def test_a_parameter_that_is_used_twice_is_one_row_counted_once(self):
        for tracer in "export", "fx":
            graph, parameters = self.exported("model:tied", "--input", "ids=4x8:int64", "--tracer", tracer)
            self.assertEqual(parameters, 64 * 16 + 16 * 16 + 16 + 16, tracer)
            readers = [node["name"] for node in graph["nodes"] if "words_weight" in node["inputs"]]
            self.assertEqual(len(readers), 2, (tracer, readers))
            layer = [node["name"] for node in graph["nodes"] if "layer_weight" in node["inputs"]]
            self.assertEqual(len(layer), 2, (tracer, layer))
            plan = self.planned(graph, "--costs", "calibrated")
            self.assertEqual(plan["graph"]["parameters"], parameters)
            self.assertEqual(plan["graph"]["unknown"], 0, plan["graph"])
        roles = {node["name"]: node["role"] for node in graph["nodes"] if node["op"] == "get_attr"}
        self.assertEqual(roles["frozen"], "frozen")
        self.assertEqual(roles["mask"], "buffer")

    @unittest.skipUnless(torch, "no PyTorch")
    def test_a_module_that_nothing_reads_is_named(self):
        done = self.export("model:unread", "--input", "x=4x8")
        self.assertEqual(done.returncode, 0)
        self.assertIn("2 parameters are read by no operator, spare.weight the first of them", done.stderr)
        self.assert_refused(
            ["model:unread", "--input", "x=4x8", "--tracer", "fx"],
            "the graph lacks 72 parameters of the model, those of module spare first (spare.weight)",
        )

    @unittest.skipUnless(torch, "no PyTorch")
    def test_an_exported_model_is_planned(self):
        for tracer, row in ("export", r"(?m)^fc_weight "), ("fx", r"(?m)^fc_weight "):
            done = self.export(
                "model:tiny", "--input", "x=16x8x8x8", "--arg", "width=8", "-o", "tiny.json.gz", "--tracer", tracer
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            for costs in "compat", "calibrated":
                plan = subprocess.run(
                    [self.program, "plan", "graph", "tiny.json.gz", "--costs", costs],
                    cwd=self.folder,
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(plan.returncode, 0, plan.stdout + plan.stderr)
                self.assertRegex(plan.stdout, row)
                self.assertRegex(plan.stdout, r"(?m)^graph: 636 parameters; 0 of \d+ operators unknown \(0 %\)$")

    @unittest.skipUnless(torch, "no PyTorch")
    def test_what_needs_values_while_it_is_made_is_exported_too(self):
        _, parameters = self.exported("model:rates", "--input", "input=4x8")
        self.assertEqual(parameters, 72)


if __name__ == "__main__":
    ExportGraph.root, ExportGraph.program = (os.path.abspath(path) for path in sys.argv[1:3])
    if torch is None:
        python, why = torch_python.python_with_torch()
        if python:
            os.execv(python, [python, *sys.argv])
        print(f"export_graph_test: {why}; tests of exported models are left out", file=sys.stderr)
    unittest.main(argv=sys.argv[:1])
