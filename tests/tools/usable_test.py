#!/usr/bin/env python3
# tests/tools/usable_test.py -- seven commands agree about wrong records: usable_test.py SEQTILE_PROGRAM
# SPDX-License-Identifier: Apache-2.0
#
# One store gets a record of each fault, each in another bucket of one operation. The engine refuses the records
# (replay). `prove` reports them as gaps, `cache check` and `cache build` refuse them, `explain` names them, and
# `prewarm` and `tune` replace them and change nothing else.
import contextlib
import hashlib
import json
import math
import os
import shutil
import sqlite3
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cli_test import MODEL, Cli, run_to_end  # noqa: E402

BUCKETS = [(2, 2), (3, 4), (5, 8), (9, 16), (17, 18), (19, 20), (21, 22), (23, 24), (25, 26), (27, 28), (29, 30),
           (31, 32), (33, 36), (37, 40), (41, 44), (45, 48)]


def row_sum(values):
    """The checksum of docs/cache_format.md."""
    def field(value):
        if isinstance(value, int):
            return b"i" + struct.pack("<q", value)
        if isinstance(value, float):
            return b"r" + struct.pack("<d", value)
        data = value.encode() if isinstance(value, str) else value
        return (b"t" if isinstance(value, str) else b"b") + struct.pack("<q", len(data)) + data
    return hashlib.blake2b(b"".join(map(field, values)), digest_size=16).digest()


class Store:
    """A tuning.db in the view of a script."""

    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.row_factory = sqlite3.Row

    def close(self):
        self.db.commit()
        self.db.close()

    def workload(self, operation, field):
        """Id and fields of the operation's workload that has `field`."""
        for row in self.db.execute("SELECT workload_id, workload FROM workload WHERE operation = ?", [operation]):
            fields = json.loads(row["workload"])
            if fields.get(field):
                return row["workload_id"], fields
        raise AssertionError(f"no {operation} with {field}")

    def record(self, workload, bucket):
        return dict(self.db.execute("SELECT * FROM record WHERE workload_id = ? AND lo = ?",
                                    [workload, bucket[0]]).fetchone())

    def put(self, table, row, damage=False):
        """Stores a row with a checksum to match."""
        env = self.db.execute("SELECT env_hash FROM env WHERE env_id = ?", [row["env_id"]]).fetchone()[0]
        workload = self.db.execute("SELECT workload_hash FROM workload WHERE workload_id = ?",
                                   [row["workload_id"]]).fetchone()[0]
        values = [value for name, value in row.items() if name not in ("env_id", "workload_id", "row_sum")]
        row["row_sum"] = row_sum([table, env, workload] + values) if not damage else bytes(16)
        self.db.execute(f"INSERT OR REPLACE INTO {table} VALUES({','.join('?' * len(row))})", list(row.values()))

    def replace(self, workload, bucket, changes, damage=False):
        """Puts changed values into a record."""
        row = self.record(workload, bucket)
        self.db.execute("DELETE FROM record WHERE workload_id = ? AND lo = ?", [workload, bucket[0]])
        self.put("record", {**row, **changes}, damage)

    def refuse_all(self, workload, bucket, outcome, detail):
        """Makes the bucket one in which every candidate has failed."""
        self.db.execute("DELETE FROM record WHERE workload_id = ? AND lo = ?", [workload, bucket[0]])
        trials = self.db.execute("SELECT * FROM trial WHERE workload_id = ? AND lo = ?", [workload, bucket[0]]).fetchall()
        for trial in trials:
            self.put("trial", {**dict(trial), "outcome": outcome, "detail": detail})
        return len(trials)


# Name, changes of a record, part of the reason, and whether the store itself does not read the row.
FAULTS = [
    ("outside the space", {"config": '{"block_m":7,"block_n":7,"form":"dot","kc":7,"mr":7,"nr":7}'}, "not in the space", False),
    ("a field is missing", {"config": '{"block_m":16,"form":"dot"}'}, "does not fit the operation", False),
    ("a text for a number", {"config": '{"block_m":"16","block_n":384,"form":"dot","kc":96,"mr":4,"nr":6}'}, "does not fit", False),
    ("a form that there is not", {"config": '{"block_m":16,"block_n":384,"form":"inner","kc":96,"mr":4,"nr":6}'}, ".", False),
    ("too large for any machine", {"config": json.dumps({"block_m": 2**40, "block_n": 2**40, "form": "outer", "kc": 2**40, "mr": 4, "nr": 16}), "origin": "pinned"}, ".", False),
    ("no JSON", {"config": "block_m=16"}, "no JSON object of numbers and texts", False),
    ("a list in it", {"config": '{"block_m":[16]}', "origin": "pinned"}, "no JSON object of numbers and texts", False),
    ("an endless time", {"median_us": math.inf}, "it says inf us", False),
    ("a time below 0", {"default_us": -1.0}, "it says -1 us", False),
    ("another ladder", {"bucket_version": 9}, "version 9", False),
    ("no bucket", {"hi": 47}, "there is no bucket", False),
    ("an origin of a later release", {"origin": "guessed"}, "origin is unknown", True),
    ("damaged", None, "does not match its checksum", True),
    ("a name twice", {"config": '{"block_m":16,"block_m":32}'}, "numbers and texts, each name once", False),
]


class Usable(Cli):
    @classmethod
    def setUpClass(cls):
        cls.write("model.json", json.dumps(MODEL))
        cls.flags = ["--model", "model.json", "--lengths", "1..48", "--threads", "1"]
        cls.prewarm = run_to_end(["prewarm", *cls.flags, "--cache", "good.db", "--artifacts", "good_artifacts.db",
                                  "--budget", "10s"], cls.work)
        assert cls.prewarm.code == 0, cls.prewarm.out + cls.prewarm.err
        rows = [f"2023-11-16 18:15:46,{lo},1" for lo, _ in BUCKETS]
        cls.write("trace.csv", "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]) + "\n")

    def setUp(self):
        self.stores = ["--cache", "wrong.db", "--artifacts", "wrong_artifacts.db"]
        shutil.copy(self.path("good.db"), self.path("wrong.db"))
        shutil.copy(self.path("good_artifacts.db"), self.path("wrong_artifacts.db"))

    def open(self):
        return contextlib.closing(Store(self.path("wrong.db")))

    def run_json(self, code, *arguments):
        run = self.seqtile(*arguments, "--json")
        self.assertEqual(run.code, code, run.out + run.err)
        return run.json()

    def prewarm_wrong(self):
        run = run_to_end(["prewarm", *self.flags, *self.stores, "--budget", "20s"], self.work)
        self.assertEqual(run.code, 0, run.out + run.err)

    def prove(self, code):
        return self.run_json(code, "prove", *self.flags, *self.stores)

    def gaps(self):
        """The reason for each bucket. `prove` reports neighbours with one reason as one gap."""
        missing = self.prove(1)["missing"]
        self.assertEqual({gap["operation"] for gap in missing}, {"qkv_proj"})
        return {bucket: gap["reason"] for gap in missing for bucket in BUCKETS
                if gap["lo"] <= bucket[0] and bucket[1] <= gap["hi"]}

    def replay(self, code):
        return self.run_json(code, "replay", *self.flags, "--requests", "trace.csv", *self.stores)

    def operation_flags(self, fields):
        flags = ["linear", "--threads", "1", "--dtype", fields["dtype"]]
        for name, value in fields.items():
            if name not in ("dtype", "threads"):
                flags += ["--set", f"{name}={value}"]
        return flags

    def plant(self):
        """Puts wrong records into buckets, longest first. Returns the workload's fields and the faults by bucket."""
        with self.open() as store:
            workload, fields = store.workload("linear", "n2")
            planted = dict(zip(reversed(BUCKETS), [FAULTS[10], *FAULTS[:10], *FAULTS[11:]]))
            for bucket, (_, changes, _, _) in planted.items():
                store.replace(workload, bucket, changes or {}, damage=changes is None)
            store.replace(workload, BUCKETS[0], {"origin": "pinned"})
        return fields, planted

    def test_all_agree_about_what_is_wrong(self):
        self.assertEqual(self.replay(0)["misses"], 0)
        fields, planted = self.plant()
        gaps = self.gaps()
        self.assertEqual(sorted(gaps), sorted(planted))
        self.assertEqual(self.replay(1)["misses"], len(planted))
        refused = self.run_json(1, "cache", "check", *self.stores)["refused"]
        built = self.run_json(1, "cache", "build", *self.stores)["refused"]
        self.assertEqual(refused, built)
        by_judgement = [bucket for bucket, fault in planted.items()
                        # The commands leave the record of another release alone.
                        if not fault[3] and "bucket_version" not in fault[1]]
        self.assertEqual(sorted(row["lo"] for row in refused), sorted(bucket[0] for bucket in by_judgement))
        for bucket, (name, _, says, _) in planted.items():
            with self.subTest(name):
                self.assertRegex(gaps[bucket], says)
                explained = self.run_json(1, "explain", *self.operation_flags(fields), "--length", str(bucket[0]),
                                          *self.stores)
                self.assertRegex(explained["refusal"], says)
                self.assertIn(explained["refusal"], explained["reason"])

    def test_explain_says_what_tuning_refused_and_what_may_help(self):
        for outcome, detail, helps in (("crash", "signal 11", r"`seqtile tune linear .* --strategy exhaustive.*` tries the \d+ others"),
                                       ("oom", "no memory for 1 GB", r"with more free memory `seqtile tune linear .*` tries again .*")):
            with self.open() as store:
                workload, fields = store.workload("linear", "n2")
                count = store.refuse_all(workload, BUCKETS[3], outcome, detail)
            self.assertGreater(count, 0)
            explained = self.run_json(1, "explain", *self.operation_flags(fields), "--length", "12", *self.stores)
            self.assertRegex(explained["reason"], rf"no record; nearest is .*; tuning has refused every one of {count} candidates?, "
                                                  rf"most often: {count} {outcome}, {detail} \(first \{{.*\}}\); {helps}$")
            self.assertEqual({trial["outcome"] for trial in explained["refused"]}, {outcome})

    def test_prewarm_replaces_what_is_wrong_and_nothing_else(self):
        fields, planted = self.plant()
        with self.open() as store:
            workload, _ = store.workload("linear", "n2")
            kept = [tuple(row) for row in store.db.execute(
                "SELECT * FROM record WHERE origin IN ('tuned', 'merged') AND workload_id <> ?", [workload])]
            pinned = store.record(workload, BUCKETS[0])
            foreign = [tuple(row) for row in store.db.execute("SELECT * FROM record WHERE bucket_version = 9")]
            self.assertEqual(len(foreign), 1)  # the record of another release
            kept += foreign
        self.prewarm_wrong()
        self.assertEqual(self.prove(0)["missing"], [])
        self.assertEqual(self.replay(0)["misses"], 0)
        self.assertEqual(self.run_json(0, "cache", "check", *self.stores)["refused"], [])
        for bucket in planted:
            self.run_json(0, "explain", *self.operation_flags(fields), "--length", str(bucket[1]), *self.stores)
        with self.open() as store:
            found = {tuple(row) for row in store.db.execute("SELECT * FROM record")}
            self.assertEqual([row for row in kept if row not in found], [])
            self.assertEqual(store.record(workload, BUCKETS[0]), pinned)

    def test_edits_leave_records_of_other_releases_alone(self):
        self.plant()
        with self.open() as store:
            foreign = [tuple(row) for row in store.db.execute("SELECT * FROM record WHERE bucket_version = 9")]
            lo, hi = store.db.execute("SELECT lo, hi FROM record WHERE bucket_version = 9").fetchone()
        self.assertEqual(len(foreign), 1)
        for command in "pin", "unpin", "rm":
            with self.subTest(command):
                run = self.seqtile("cache", command, "linear", "--lengths", f"{lo}..{hi}", *self.stores[:2])
                self.assertIn("1 of other releases left as they are", run.out)
        self.assertGreater(len(self.run_json(0, "cache", "rm", "linear", *self.stores[:2])["removed"]), 0)
        with self.open() as store:
            found = [tuple(row) for row in store.db.execute("SELECT * FROM record WHERE bucket_version = 9")]
        self.assertEqual(found, foreign)

    def test_tune_replaces_the_record_of_its_bucket(self):
        fields, planted = self.plant()
        bucket = next(bucket for bucket, fault in planted.items() if fault[0].startswith("too large"))
        flags = self.operation_flags(fields)
        run = self.seqtile("tune", *flags, "--length", str(bucket[0]), *self.stores)
        self.assertEqual(run.code, 0, run.out + run.err)
        self.run_json(0, "explain", *flags, "--length", str(bucket[0]), *self.stores)
        self.assertEqual(sorted(self.gaps()), sorted(set(planted) - {bucket}))

    def test_binaries_that_do_not_serve(self):
        with contextlib.closing(sqlite3.connect(self.path("wrong_artifacts.db"))) as artifacts:
            keys = [row[0] for row in artifacts.execute("SELECT key_hash FROM artifact WHERE symbol LIKE 'linear%'")]
            for number, key in enumerate(keys):
                artifacts.execute(["DELETE FROM artifact WHERE key_hash = ?",
                                   "UPDATE artifact SET code = zeroblob(64) WHERE key_hash = ?",
                                   "UPDATE artifact SET symbol = 'linear_other' WHERE key_hash = ?"][number % 3], [key])
            artifacts.commit()
        gaps = self.prove(1)["missing"]
        self.assertTrue(all("no binary" in gap["reason"] for gap in gaps), gaps)
        check = self.run_json(1, "cache", "check", *self.stores)
        self.assertEqual(check["refused"], [])
        self.assertGreater(check["artifacts"]["missing"], 0)
        self.prewarm_wrong()
        self.assertEqual(self.prove(0)["missing"], [])
        self.assertEqual(self.replay(0)["compiles_at_load"], 0)

    def test_damaged_rows_of_a_key(self):
        for statement in "UPDATE env SET manifest = manifest || ' '", "UPDATE workload SET row_sum = zeroblob(16)":
            with self.subTest(statement):
                self.setUp()
                with self.open() as store:
                    store.db.execute(statement)
                    before = store.db.execute("SELECT count(*) FROM record").fetchone()[0]
                self.assertIn("checksum", self.prove(1)["missing"][0]["reason"])
                self.assertGreater(self.replay(1)["misses"], 0)
                self.run_json(1, "cache", "check", *self.stores)
                self.prewarm_wrong()
                self.assertEqual(self.prove(0)["missing"], [])
                with self.open() as store:
                    self.assertEqual(store.db.execute("SELECT count(*) FROM record").fetchone()[0], before)


if __name__ == "__main__":
    Cli.program = os.path.abspath(sys.argv.pop(1))
    with contextlib.ExitStack() as stack:
        Cli.work = stack.enter_context(tempfile.TemporaryDirectory(prefix="seqtile_usable_"))
        Cli.env = dict(os.environ, SEQTILE_CACHE_DIR=Cli.work + "/cache", SEQTILE_CONFIG_DIR=Cli.work + "/config",
                       SEQTILE_LOCK_DIR=Cli.work + "/locks")
        unittest.main()
