#!/usr/bin/env python3
# bench/tables.py -- turns result files of `seqtile bench -o` into the Markdown tables of docs/benchmarks.md.
# SPDX-License-Identifier: Apache-2.0
"""tables.py FILE...: one table for each operation, dtype and thread count; later files replace earlier results."""
import collections
import json
import math
import re
import sys

UNITS = (("gflops", "GFLOP/s"), ("gbs", "GB/s"))


def load(paths):
    """Results by name, and the context of the last file."""
    results, context = {}, {}
    for path in paths:
        with open(path) as file:
            content = json.load(file)
        context = content["context"]
        for entry in content["benchmarks"]:
            results[entry["name"]] = entry
    return results, context


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def row_key(shape):
    """Shapes share a row when their first word is the same: all weights of one m."""
    word = shape.split("_")[0]
    number = re.search(r"\d+", word)
    return (int(number.group()) if number else 0, word)


def collect(results):
    """(operation, dtype, threads) -> row -> implementation -> entries."""
    tables = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list)))
    for name, entry in results.items():
        operation, dtype, shape, implementation, threads = name.split("/")
        if not entry.get("error_occurred"):
            tables[operation, dtype, threads][row_key(shape)][implementation].append(entry)
    return tables


def rate_of(entry):
    return next(((entry[key], unit) for key, unit in UNITS if key in entry), None)


def cell(entries):
    rates = [rate_of(e) for e in entries]
    if all(rates):
        return f"{geometric_mean([r[0] for r in rates]):.1f}"
    return f"{geometric_mean([e['real_time'] for e in entries]):.3g} us"


def comparison(entries):
    """Geometric mean and worst of the paired ratios to each shape's best peer; share of the roofline."""
    ratios = [e["ratio_to_best_peer"] for e in entries if "ratio_to_best_peer" in e]
    shares = [e["percent_of_roofline"] for e in entries if "percent_of_roofline" in e]
    text = f"{geometric_mean(ratios):.2f} (worst {min(ratios):.2f})" if ratios else ""
    return text, f"{geometric_mean(shares):.0f} %" if shares else ""


def print_table(key, rows):
    implementations = sorted({i for row in rows.values() for i in row if i != "roofline"},
                             key=lambda i: (not i.startswith("seqtile"), i))
    units = {rate_of(e)[1] for row in rows.values() for es in row.values() for e in es if rate_of(e)}
    print(f"\n**{' '.join(key)}** ({', '.join(units) or 'time'}, geometric mean of medians)\n")
    print("| shape | " + " | ".join(implementations) + " | seqtile / best peer | of roofline |")
    print("|---|" + "---|" * (len(implementations) + 2))
    for (_, word), row in sorted(rows.items()):
        cells = [cell(row[i]) if i in row else "" for i in implementations]
        print(f"| {word} | " + " | ".join(cells) + " | " + " | ".join(comparison(row.get("seqtile", []))) + " |")


def main():
    results, context = load(sys.argv[1:])
    print("Machine: " + "; ".join(f"{k} {v}" for k, v in context.items()))
    for key, rows in sorted(collect(results).items()):
        print_table(key, rows)


main()
