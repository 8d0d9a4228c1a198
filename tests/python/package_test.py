#!/usr/bin/env python3
# tests/python/package_test.py -- the Python package from NumPy and PyTorch: package_test.py ROOT LIBRARY
# SPDX-License-Identifier: Apache-2.0
#
# The test runs in torch_python.py's Python. Where that, or tvm-ffi, cannot be had it says so and is skipped.
import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.engine = cls.new_engine()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def new_engine(cls, **options):
        stores = {"cache": cls.folder.name + "/tuning.db", "artifacts": cls.folder.name + "/artifacts.db"}
        return seqtile.Engine(**{"threads": 2, **stores, **options})

    def test_outputs_are_made_or_written(self):
        linear = self.engine.prepare("linear", n=48, k=32, dtype=torch.bfloat16, bias=True)
        self.assertEqual([spec.name for spec in linear.tensors], ["x", "w", "bias", "y"])
        self.assertEqual(linear.tensors[3].role, "output")
        w, bias = torch.randn(48, 32).bfloat16(), torch.randn(48).bfloat16()
        for rows in (0, 1, 7, 130):
            x = torch.randn(rows, 64).bfloat16()[:, 16:48]
            y = linear(x, w, bias)
            torch.testing.assert_close(y.double(), x.double() @ w.double().t() + bias.double(), rtol=2e-2, atol=2e-2)
            written = torch.full_like(y, float("nan"))
            self.assertIsNone(linear(x, w, bias, written))
            self.assertTrue(torch.equal(written, y))
        norm = self.engine.prepare("rms_norm", n=4, residual=True)
        y, total = norm(torch.ones(3, 4), torch.ones(3, 4), torch.ones(4))
        self.assertTrue(torch.equal(total, torch.full((3, 4), 2.0)))
        torch.testing.assert_close(y, torch.ones(3, 4), rtol=1e-5, atol=1e-5)

    def test_numpy(self):
        softmax = self.engine.prepare("softmax", n=4, dtype=numpy.dtype("float32"))
        x = numpy.ones((3, 8), numpy.float32)
        self.assertEqual(softmax(x[:, :4]).tolist(), [[0.25] * 4] * 3)
        y = numpy.zeros((3, 4), numpy.float32)
        softmax(numpy.ascontiguousarray(x[:, 4:]), y)
        self.assertEqual(y.tolist(), [[0.25] * 4] * 3)
        read_only = numpy.broadcast_to(numpy.ones(4, numpy.float32), (3, 4))
        self.assertEqual(softmax(read_only).tolist(), [[0.25] * 4] * 3)
        self.assertEqual(softmax(read_only[::-1]).tolist(), [[0.25] * 4] * 3)
        with self.assertRaises(BufferError):
            softmax(x[:, :4], read_only)
        self.assertEqual(softmax(x[:0, :4]).shape, (0, 4))
        self.assertEqual(self.engine.prepare("softmax", n=numpy.int64(4), dtype=numpy.float32).dtype, "f32")
        with self.assertRaisesRegex(ValueError, "NumPy has no bf16"):
            self.engine.prepare("softmax", n=4, dtype="bf16")(x[:, :4])

    def test_equal_operations_are_prepared_once_and_explained(self):
        op = self.engine.prepare("softmax", n=4)
        self.assertIs(self.engine.prepare("softmax", dtype="float32", n=4).fields["n"], op.fields["n"])
        self.assertIs(self.engine.prepare("softmax", n=4), op)
        found = op.explain(100)
        self.assertEqual((found.bucket, found.origin), ((97, 104), "default"))
        self.assertIn("softmax", [operation["operation"] for operation in seqtile.operations()])

    def test_autograd_learns_of_written_outputs(self):
        softmax, out = self.engine.prepare("softmax", n=4), torch.zeros(2, 4)
        loss = (torch.ones(2, 4, requires_grad=True) * out).sum()
        softmax(torch.ones(2, 4), out)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_rows_of_no_sequence_are_zeros(self):
        attention = self.engine.prepare("attention_forward", heads=2, kv_heads=1, head_dim=16)
        q, k, v = torch.randn(9, 2, 16), torch.randn(9, 1, 16), torch.randn(9, 1, 16)
        out, lse = attention(q, k, v, *sequences(5), length=5)
        self.assertEqual((out[5:].abs().max().item(), lse[5:].abs().max().item()), (0, 0))
        scores = q[:5].transpose(0, 1) @ k[:5, 0].t() / 4
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf"))
        torch.testing.assert_close(out[:5], (torch.softmax(scores, -1) @ v[:5, 0]).transpose(0, 1), rtol=1e-5, atol=1e-5)

    def test_counters_misses_and_refresh(self):
        engine = self.new_engine()
        softmax = engine.prepare("softmax", n=12)
        softmax(torch.ones(5, 12))
        softmax(torch.ones(0, 12))
        counters = engine.counters()
        self.assertEqual((counters["launches"], counters["misses_no_record"]), (1, 1))
        path = self.folder.name + "/misses.json"
        engine.write_misses(path)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["misses"][0]["lengths"], [5, 8])
        engine.refresh()
        del engine  # the operation keeps what it needs
        self.assertEqual(softmax(torch.zeros(1, 12))[0, 0].item(), torch.softmax(torch.zeros(1, 12), 1)[0, 0].item())

    def test_what_is_wrong_is_an_exception_with_one_line(self):
        linear = self.engine.prepare("linear", n=8, k=4)
        x, w, y = torch.ones(2, 4), torch.ones(8, 4), torch.full((2, 8), 7.0)
        for call, error, words in (
                (lambda: linear(x), ValueError, "1 tensors given; give all 3, x, w, y, or the first 2"),
                (lambda: linear(x, w, y, y), ValueError, "4 tensors given"),
                (lambda: linear(x, w, length=-1), ValueError, "length is -1"),
                (lambda: linear(torch.tensor(1.0), w), ValueError, "x has 0 dimensions"),
                (lambda: pickle.dumps(linear), TypeError, "belongs to its process"),
                (lambda: pickle.dumps(self.engine), TypeError, "belongs to its process"),
                (lambda: linear(x, 3), TypeError, "w is of type int"),
                (lambda: linear(x.half(), w, y), ValueError, "dtype is f16, f32 expected"),
                (lambda: linear(x.t(), w, y), ValueError, "size of dimension 1 is 2, 4 expected"),
                (lambda: linear(x, w, y, length=3), ValueError, "size of dimension 0 is 2, 3 expected"),
                (lambda: linear(x.clone().requires_grad_(), w, y), RuntimeError, "x requires a gradient"),
                (lambda: linear(torch._neg_view(x), w, y), ValueError, "resolve_neg"),
                (lambda: linear(x.to("meta"), w, y), Exception, ""),
                (lambda: self.engine.prepare("linaer"), ValueError, "did you mean linear"),
                (lambda: self.engine.prepare("linear", n=8), ValueError, "k"),
                (lambda: self.engine.prepare("linear", n=8, k=4, dtype=torch.int8), ValueError, "i8"),
                (lambda: self.engine.prepare("all_gather", n=8), ValueError, "over ranks"),
                (lambda: self.new_engine(system_caches="a.db"), TypeError, "give a list"),
                (lambda: self.new_engine(cache="a\0b"), ValueError, "zero byte"),
                (lambda: self.new_engine(policy="never"), ValueError, "unknown miss policy"),
                (lambda: self.new_engine(device="cuda:99"), NotImplementedError, "cuda"),
                (lambda: self.engine.write_misses(self.folder.name + "/none/m.json"), OSError, "none/m.json"),
                (lambda: self.new_engine(policy="strict").prepare("linear", n=8, k=4)(x, w, y), LookupError, "tune")):
            with self.subTest(words), self.assertRaises(error) as raised:
                call()
            self.assertIn(words, str(raised.exception))
            self.assertTrue(torch.equal(y, torch.full((2, 8), 7.0)))
        with torch.no_grad():
            linear(x.clone().requires_grad_(), w, y)
        self.assertTrue(torch.equal(y, torch.full((2, 8), 4.0)))


def sequences(*tokens):
    """Starts of queries and of keys, and numbers of keys, of sequences of so many tokens."""
    starts = [sum(tokens[:i]) for i in range(len(tokens) + 1)]
    return [torch.tensor(numbers, dtype=torch.int32) for numbers in (starts, starts[:-1], tokens)]


def examples():
    """Of every operation: fields, inputs, and the length where no input shows it."""
    heads = {"heads": 4, "kv_heads": 2, "head_dim": 16}
    q, k, v = torch.randn(7, 4, 16), torch.randn(7, 2, 16), torch.randn(7, 2, 16)
    index = lambda *numbers: torch.tensor(numbers, dtype=torch.int32)
    return {
        "linear": ({"n": 8, "k": 4}, [torch.randn(5, 4), torch.randn(8, 4)], None),
        "linear_wgrad": ({"n": 8, "k": 4}, [torch.randn(5, 8), torch.randn(5, 4)], None),
        "grouped_linear": ({"n": 8, "k": 4, "experts": 3}, [torch.randn(5, 4), index(0, 2, 2, 5), torch.randn(3, 8, 4)], None),
        "attention_forward": (heads, [q, k, v, *sequences(3, 4)], 4),
        "attention_backward": (heads, [q, k, v, torch.randn(7, 4, 16), torch.randn(7, 4), torch.randn(7, 4, 16),
                                       *sequences(3, 4)], 4),
        "rms_norm": ({"n": 8}, [torch.randn(5, 8), torch.randn(8)], None),
        "rms_norm_backward": ({"n": 8}, [torch.randn(5, 8), torch.randn(5, 8), torch.randn(8)], None),
        "layer_norm": ({"n": 8}, [torch.randn(5, 8), torch.randn(8), torch.randn(8)], None),
        "rope": (heads, [q, k, torch.arange(7, dtype=torch.int32), torch.zeros(3, 8, dtype=torch.int32)], None),
        "act_and_mul": ({"n": 8}, [torch.randn(5, 16)], None),
        "act_and_mul_backward": ({"n": 8}, [torch.randn(5, 8), torch.randn(5, 16)], None),
        "softmax": ({"n": 8}, [torch.randn(5, 8)], None),
        "embedding": ({"n": 8, "vocab": 10}, [index(3, 1, 9), torch.randn(10, 8)], None),
    }


class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        st.use(seqtile.Engine(threads=2, cache=cls.folder.name + "/tuning.db", artifacts=cls.folder.name + "/artifacts.db"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_operation_passes_opcheck(self):
        known = {operation["operation"] for operation in seqtile.operations() if not operation["over_ranks"]}
        self.assertEqual(known, set(examples()))
        for name, (fields, inputs, length) in examples().items():
            with self.subTest(name):
                found = torch.library.opcheck(getattr(torch.ops.seqtile, name).default,
                                              (inputs, json.dumps(fields), length))
                self.assertEqual(set(found.values()), {"SUCCESS"})

    def test_functions_agree_with_pytorch(self):
        functional = torch.nn.functional
        for dtype, tolerance in ((torch.float32, 2e-5), (torch.bfloat16, 3e-2)):
            x, w, bias = (torch.randn(*shape).to(dtype) for shape in ((2, 9, 32), (48, 32), (48,)))
            residual, weight = torch.randn(2, 9, 48).to(dtype), torch.randn(32).to(dtype)
            for got, want in (
                    (st.linear(x, w), functional.linear(x, w)),
                    (st.linear(x.transpose(0, 1), w), functional.linear(x.transpose(0, 1), w)),
                    (st.linear(x, w, bias, activation="silu"), functional.silu(functional.linear(x, w, bias))),
                    (st.linear(x, w, None, residual), functional.linear(x, w) + residual),
                    (st.rms_norm(x, weight, eps=1e-3), functional.rms_norm(x, (32,), weight, 1e-3)),
                    (st.add_rms_norm(x, x, weight)[0], functional.rms_norm(x + x, (32,), weight, 1e-5)),
                    (st.add_rms_norm(x, x, weight)[1], x + x),
                    (st.softmax(x), torch.softmax(x, -1)),
                    (st.act_and_mul(x), functional.silu(x[..., :16]) * x[..., 16:])):
                torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)

    def test_a_compiled_function_serves_every_length_with_one_graph(self):
        w, weight = torch.randn(32, 32), torch.randn(32)
        graphs = []

        def counted(graph, _):
            graphs.append(graph)
            return graph.forward

        def layer(x):
            return st.softmax(st.linear(st.rms_norm(x, weight), w, activation="silu") * 2)

        compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counted)
        for rows in (3, 9, 200):
            x = torch.randn(rows, 32)
            torch.testing.assert_close(compiled(x), layer(x))
        self.assertEqual(len(graphs), 1)

    def test_gradients_are_refused(self):
        x, w = torch.randn(2, 4), torch.randn(8, 4, requires_grad=True)
        compiled = torch.compile(st.linear, fullgraph=True, backend="aot_eager")
        for call, words in ((lambda: st.linear(x, w), "requires a gradient"), (lambda: compiled(x, w), "requires a gradient"),
                            (lambda: torch.func.grad(lambda a: st.softmax(a).sum())(x), "requires a gradient"),
                            (lambda: torch.func.jvp(st.softmax, (x,), (x,)), "tangent")):
            with self.subTest(words), self.assertRaisesRegex(Exception, words):
                call()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, w), torch.nn.functional.linear(x, w))

    def test_inputs_and_fields_that_are_wrong(self):
        x, y = torch.ones(2, 4), torch.full((2, 4), 7.0)
        softmax = torch.ops.seqtile.softmax
        for call, words in ((lambda: softmax([x, y], '{"n": 4}'), "2 inputs given; give 1: x"),
                            (lambda: softmax([x], '{"n": 4'), "no JSON"), (lambda: softmax([x], "[4]"), "give an object"),
                            (lambda: softmax([x], '{"n": 4, "operation": "x"}'), "give an object"),
                            (lambda: st.act_and_mul(x, activation='none", "n": "3'), "no name of a choice"),
                            (lambda: st.act_and_mul(torch.ones(2, 7)), "give .*2 n"),
                            (lambda: st.linear(x, torch.ones(3, 5)), "k. and .n, k"),
                            (lambda: st.linear(x, torch.ones(3, 4), None, torch.ones(3)), "residual has the shape"),
                            (lambda: st.softmax(torch.tensor(1.0)), "no rows"),
                            (lambda: st.softmax(torch.ones(3, 0)), "no rows")):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                call()
        self.assertTrue(torch.equal(y, torch.full((2, 4), 7.0)))
        with self.assertRaises(TypeError):
            st.use("engine")


def run_in_torch_python(root, library):
    sys.path.insert(0, root + "/tests/tools")
    from torch_python import folder_with_tvm_ffi, python_with_torch
    python, why = python_with_torch()
    folder, why = folder_with_tvm_ffi(python) if python else (None, why)
    if not folder:
        print("skipped: " + why)
        return SKIPPED
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([root + "/python", folder]), SEQTILE_LIBRARY=library,
               PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run([python, os.path.abspath(__file__)], env=env, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(run_in_torch_python(*map(os.path.abspath, sys.argv[1:])))
    import numpy
    import torch

    import seqtile
    import seqtile.torch as st
    unittest.main()
