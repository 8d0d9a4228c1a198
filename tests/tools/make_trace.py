#!/usr/bin/env python3
# tests/tools/make_trace.py -- writes a request trace of any length: make_trace.py ROWS FILE [azure|burstgpt|mooncake]
# SPDX-License-Identifier: Apache-2.0
#
# Prompts and outputs are log-normal like those of conversation services; times rise. The same arguments give the same
# file. FILE may end in .gz.
import datetime
import gzip
import random
import sys

HEADERS = {"azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n", "mooncake": "",
           "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"}
START = datetime.datetime(2024, 5, 10)
BLOCK = 100_000


def row(layout, second, prompt, output):
    if layout == "azure":
        return f"{START + datetime.timedelta(seconds=second)}+00:00,{prompt},{output}\n"
    if layout == "burstgpt":
        return f"{second:.1f},ChatGPT,{prompt},{output},{prompt + output},\"API, log\"\n"
    return f'{{"timestamp": {int(1000 * second)}, "input_length": {prompt}, "output_length": {output}, ' \
           f'"hash_ids": [0, {prompt}]}}\n'


def lengths(random_numbers, count, middle, spread, least, most):
    """Random lengths from a table. Drawing each one would take ten times as long."""
    table = [min(most, max(least, int(random_numbers.lognormvariate(middle, spread)))) for _ in range(20_000)]
    return random_numbers.choices(table, k=count)


def write_trace(rows, path, layout="azure"):
    random_numbers = random.Random(rows)
    with (gzip.open(path, "wt") if path.endswith(".gz") else open(path, "w", encoding="utf-8")) as file:
        file.write(HEADERS[layout])
        for first in range(0, rows, BLOCK):
            count = min(BLOCK, rows - first)
            prompts = lengths(random_numbers, count, 7, 1.2, 1, 120_000)
            outputs = lengths(random_numbers, count, 5, 1, 1, 4_000)
            file.write("".join(row(layout, 0.02 * (first + i), prompt, output)
                               for i, (prompt, output) in enumerate(zip(prompts, outputs))))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], *([name] for name in HEADERS)):
        sys.exit(f"usage: make_trace.py ROWS FILE [{'|'.join(HEADERS)}]")
    write_trace(int(sys.argv[1]), *sys.argv[2:])
