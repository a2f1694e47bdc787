"""How things are timed: side by side in one process, in turns, since a machine's speed drifts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

Work = Callable[[], object]


def seconds(works: Mapping[str, Work], budget: float, least: int = 3, most: int = 200) -> dict[str, float]:
    """Median seconds of each piece of work. The pieces take turns until the budget is spent.

    :param budget: seconds for all of them together
    """
    for work in works.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in works}
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + budget
        turns = 0
        while turns < least or (turns < most and time.perf_counter() < end):
            for name, work in works.items():
                start = time.perf_counter()
                work()
                taken[name].append(time.perf_counter() - start)
            turns += 1
    finally:
        gc.enable()
    return {name: median(times) for name, times in taken.items()}


def product_rates(budget: float) -> dict[str, float]:
    """The machine's limit: the most multiplications and additions a second that a large matrix product reaches."""
    from tsac.agent import engine

    rows, inner, columns = 4352, 256, 1024
    x, weight = torch.randn(rows, inner), torch.randn(columns, inner)
    low_x, low_weight = x.bfloat16(), weight.bfloat16()
    works: dict[str, Work] = {"MKL": lambda: x @ weight.T, "bf16": lambda: low_x @ low_weight.T}
    if engine.USES_ONEDNN:
        works["oneDNN"] = lambda: engine.onednn._linear_pointwise(x, weight, None, "none", [], "")
    taken = seconds(works, budget)
    rates = {name: 2 * rows * inner * columns / value for name, value in taken.items()}
    return {"highest": max(rates[name] for name in works if name != "bf16"), **rates}


def critic_operations(batch: int, tokens: int, width: int, layers: int, critics: int, passes: int) -> float:
    """Multiplications and additions in the blocks' matrix products: 12 squared widths a token, and attention.

    :param passes: 1: values; 3: values and all gradients
    """
    of_token = layers * (24 * width**2 + 4 * tokens * width)
    return float(critics * batch * tokens * of_token * passes)


def facts(threads: int) -> dict[str, Any]:
    from tsac.runs.folder import commit, machine, versions

    return {"threads": threads, "commit": commit(), "versions": versions(), "machine": machine()}
