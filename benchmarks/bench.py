"""How fast every part is, beside a plain version, other libraries and what the machine could do at most.

python benchmarks/bench.py [--threads N] [--json FILE]      everything
python benchmarks/bench.py --quick                          a minute; fails where the plain version is faster
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import updates
import whole
from measure import facts, product_rates
from rich.console import Console
from rich.table import Table

LEADING = ("plain / ours", "plain / bf16", "SB3 / ours", "ours / SB3 SAC", "ours / SB3", "ratio")


def measure(threads: int) -> dict[str, Any]:
    rates = product_rates(3.0)
    rows = updates.rows(list(updates.SETTINGS), 8.0, rates)
    rows += whole.buffer_rows(6.0, (10_000, 100_000, 1_000_000))
    rows.append(whole.training_row(40.0))
    rows.append(whole.evaluation_row(152, 3, os.cpu_count() or 1))
    rows.append(whole.checkpoint_row(3.0))
    rows.append(whole.memory_row())
    return {**facts(threads), "GFLOP/s": {name: rate / 1e9 for name, rate in rates.items()}, "rows": rows}


def measure_quickly(threads: int) -> dict[str, Any]:
    rates = product_rates(1.0)
    rows = updates.rows(["laptop", "very small"], 4.0, rates)
    rows += whole.buffer_rows(2.0, (10_000, 100_000))
    return {**facts(threads), "GFLOP/s": {name: rate / 1e9 for name, rate in rates.items()}, "rows": rows}


def show(results: dict[str, Any]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    console.print(f"{results['machine']['processor']}, {results['threads']} threads; {versions}; {results['commit']}")
    rates = ", ".join(f"{name} {rate:.0f}" for name, rate in results["GFLOP/s"].items())
    console.print(f"matrix products, GFLOP/s: {rates}")
    rows = results["rows"]
    for of_updates in (True, False):
        group = [row for row in rows if ("plain / ours" in row) == of_updates]
        names = list(dict.fromkeys(key for row in group for key in row if key not in ("what", "unit")))
        names.sort(key=lambda name: name not in LEADING)  # ratios first
        table = Table("", "unit", *names)
        for row in group:
            table.add_row(row["what"], row["unit"], *(f"{row[name]:.3g}" if name in row else "" for name in names))
        console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    start = time.perf_counter()
    results = measure_quickly(asked.threads) if asked.quick else measure(asked.threads)
    results["seconds"] = time.perf_counter() - start
    show(results)
    print(f"{results['seconds']:.0f} seconds")
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(results, indent=1) + "\n")
    slow = [row["what"] for row in results["rows"] if "critic update" in row["what"] and row["plain / ours"] < 1.0]
    if asked.quick and slow:
        sys.exit(f"The plain version is faster: {', '.join(slow)}.")


if __name__ == "__main__":
    main()
