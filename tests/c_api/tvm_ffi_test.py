#!/usr/bin/env python3
# tests/c_api/tvm_ffi_test.py -- calls the library from PyTorch by the package apache-tvm-ffi: tvm_ffi_test.py ROOT
# LIBRARY SPDX-License-Identifier: Apache-2.0 The package is installed once, into the user's cache folder beside the
# PyTorch of other tests. Where that cannot be done the test says so and is skipped.
import json
import os
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77


class TvmFfi(unittest.TestCase):
    library = ""

    @classmethod
    def setUpClass(cls):
        import tvm_ffi
        cls.module = tvm_ffi.load_module(cls.library)
        cls.folder = tempfile.TemporaryDirectory()
        options = {"threads": 2, "pool": "auto", "cache": cls.folder.name + "/tuning.db",
                   "artifacts": cls.folder.name + "/artifacts.db"}
        cls.engine = cls.module.seqtile_engine_open(json.dumps(options))

    @classmethod
    def tearDownClass(cls):
        cls.module.seqtile_engine_release(cls.engine)
        cls.folder.cleanup()

    def test_a_product_of_torch_tensors(self):
        import torch
        fields = {"n": 48, "k": 32, "dtype": "bf16", "bias": True}
        linear = self.module.seqtile_engine_prepare(self.engine, "linear", json.dumps(fields))
        w, bias = torch.randn(48, 32).bfloat16(), torch.randn(48).bfloat16()
        for rows in (0, 1, 7, 130):
            x, y = torch.randn(rows, 64).bfloat16()[:, 16:48], torch.full((rows, 48), float("nan")).bfloat16()
            self.module.seqtile_op_call(linear, None, x, w, bias, y)
            want = x.double() @ w.double().t() + bias.double()
            torch.testing.assert_close(y.double(), want, rtol=2e-2, atol=2e-2)
        explained = json.loads(self.module.seqtile_op_explain(linear, 130))
        self.assertEqual(explained["bucket"], [129, 144])
        names = [tensor["name"] for tensor in json.loads(self.module.seqtile_op_describe(linear))["tensors"]]
        self.assertEqual(names, ["x", "w", "bias", "y"])
        self.module.seqtile_op_release(linear)

    def test_numpy_arrays(self):
        import numpy
        softmax = self.module.seqtile_engine_prepare(self.engine, "softmax", '{"n": 4}')
        x, y = numpy.ones((3, 4), numpy.float32), numpy.zeros((3, 4), numpy.float32)
        import tvm_ffi
        self.module.seqtile_op_call(softmax, None, tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y))
        self.assertEqual(y.tolist(), [[0.25] * 4] * 3)

    def test_ranks_on_threads(self):
        import threading
        import torch
        first = self.module.seqtile_fabric_open_threads(2, 1)
        problems = []

        def rank_body(rank):
            try:
                fabric = first + rank
                self.assertEqual(json.loads(self.module.seqtile_fabric_describe(fabric))["rank"], rank)
                stores = {"cache": self.folder.name + "/ranks.db", "artifacts": self.folder.name + "/ranks.bin"}
                engine = self.module.seqtile_engine_open_on(json.dumps(stores), fabric)
                channel = self.module.seqtile_channel_open(fabric, 64, 600)
                gather = self.module.seqtile_engine_prepare_on(engine, "all_gather", '{"n": 4}', channel)
                whole = torch.arange(9 * 4, dtype=torch.float32).reshape(9, 4)
                mine, y = whole[rank * 9 // 2:(rank + 1) * 9 // 2].clone(), torch.empty(9, 4)
                self.module.seqtile_op_call(gather, 9, mine, y)
                self.module.seqtile_channel_check(channel)
                self.assertTrue(torch.equal(y, whole))
            except Exception as error:
                problems.append(error)

        threads = [threading.Thread(target=rank_body, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])

    def test_errors_are_exceptions_of_the_right_type(self):
        import torch
        module = self.module
        softmax = module.seqtile_engine_prepare(self.engine, "softmax", '{"n": 4}')
        x, y = torch.ones(2, 4), torch.full((2, 4), 7.0)
        for call, error, words in (
                (lambda: module.seqtile_op_call(softmax, None, x), ValueError, "1 tensor given, 2 expected: x, y"),
                (lambda: module.seqtile_op_call(softmax, None, x.half(), y), ValueError, "dtype is f16, f32 expected"),
                (lambda: module.seqtile_op_call(softmax, None, x.t(), y), ValueError, "size of dimension 1 is 2, 4"),
                (lambda: module.seqtile_op_call(softmax, None, "x", y), ValueError, "a tensor is expected"),
                (lambda: module.seqtile_op_call(softmax, "2", x, y), ValueError, "length: a whole number is expected"),
                (lambda: module.seqtile_op_call(softmax), ValueError, "1 arguments given, at least 2 expected"),
                (lambda: module.seqtile_op_call(softmax, None, *[x] * 30), ValueError, "30 tensors given, at most"),
                (lambda: module.seqtile_op_call(10 ** 6, None, x, y), ValueError, "1000000 is no operation"),
                (lambda: module.seqtile_op_describe(self.engine), ValueError, "is no operation"),
                (lambda: module.seqtile_op_release(self.engine), ValueError, "is no operation"),
                (lambda: module.seqtile_op_call(softmax, True, x, y), ValueError, "length: a whole number"),
                (lambda: module.seqtile_op_call(softmax, -2, x, y), ValueError, "SEQTILE_LENGTH_OF_TENSORS"),
                (lambda: module.seqtile_engine_write_misses(self.engine, "long.enough.json\0more"), ValueError, "zero"),
                (lambda: module.seqtile_engine_prepare(self.engine, "softmaks", "{}"), ValueError, "did you mean soft"),
                (lambda: module.seqtile_engine_open('{"device": "cuda:99"}'), RuntimeError, "cuda"),
                (lambda: module.seqtile_fabric_open_threads(1 << 40, 1), ValueError, "32 bits"),
                (lambda: module.seqtile_world_make(99), ValueError, "99")):
            with self.assertRaises(error) as raised:
                call()
            self.assertIn(words, str(raised.exception))
            self.assertTrue(torch.equal(y, torch.full((2, 4), 7.0)))
        module.seqtile_op_release(softmax)
        with self.assertRaises(ValueError):
            module.seqtile_op_call(softmax, None, x, y)

    def test_many_calls_keep_no_memory(self):
        import torch
        softmax = self.module.seqtile_engine_prepare(self.engine, "softmax", '{"n": 4}')
        x, y = torch.ones(2, 4), torch.empty(2, 4)

        def resident_after(calls):
            """KiB of this process."""
            for i in range(calls):
                self.module.seqtile_op_call(softmax, None, x, y)
                if i % 10 == 0:
                    with self.assertRaises(ValueError):
                        self.module.seqtile_op_call(softmax, None, x)
                    other = self.module.seqtile_engine_prepare(self.engine, "softmax", '{"n": 4}')
                    self.module.seqtile_op_release(other)
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024

        before = resident_after(20000)
        self.assertLess(resident_after(100000) - before, 1024)

    def test_every_kind_of_object_is_released_in_any_order(self):
        first = self.module.seqtile_fabric_open_threads(1, 1)
        engine = self.module.seqtile_engine_open_on(None, first)
        channel = self.module.seqtile_channel_open(first, 8, 600)
        gather = self.module.seqtile_engine_prepare_on(engine, "all_gather", '{"n": 4}', channel)
        for release, number in ((self.module.seqtile_fabric_release, first),
                                (self.module.seqtile_channel_release, channel),
                                (self.module.seqtile_engine_release, engine)):
            release(number)
            with self.assertRaises(ValueError):
                release(number)
        import torch
        x, y = torch.arange(8.0).reshape(2, 4), torch.zeros(2, 4)
        self.module.seqtile_op_call(gather, None, x, y)
        self.assertTrue(torch.equal(x, y))
        self.module.seqtile_op_release(gather)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        root, library = sys.argv[1:]
        sys.path.insert(0, root + "/tests/tools")
        from torch_python import folder_with_tvm_ffi, python_with_torch
        python, why = python_with_torch()
        folder, why = folder_with_tvm_ffi(python) if python else (None, why)
        if not folder:
            print("skipped: " + why)
            sys.exit(SKIPPED)
        done = subprocess.run([python, __file__, library], env=dict(os.environ, PYTHONPATH=folder), check=False)
        sys.exit(done.returncode)
    TvmFfi.library = sys.argv.pop()
    unittest.main()
