"""The line that a person watches, on a terminal only."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tsac.runs.evaluation import Summary

LOSSES = ("train/critic_loss", "train/value_loss", "train/loss")


class Progress:
    """
    :param verbose: Stable-Baselines3's tables instead of the line
    """

    def __init__(self, title: str, steps: int, verbose: bool = False) -> None:
        self.console = Console(stderr=True)
        self.verbose = verbose
        self.steps = steps
        self.started = (0, 0.0)
        self.bar: Bar | None = None
        if self.console.is_terminal and not verbose:
            columns = (
                TextColumn(title, markup=False),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[facts]}", markup=False),
                TimeRemainingColumn(compact=True),
            )
            self.bar = Bar(*columns, console=self.console, speed_estimate_period=60.0)

    def start(self, step: int) -> None:
        self.started = (step, time.monotonic())
        if self.bar is not None:
            self.bar.start()
            self.line = self.bar.add_task("", total=self.steps, completed=step, facts="")

    def update(self, step: int, result: Summary | None, logged: dict[str, Any]) -> None:
        if self.bar is None:
            return
        facts = [f"{(step - self.started[0]) / max(time.monotonic() - self.started[1], 1e-6):.0f} steps/s"]
        if result is not None:
            facts.append(str(result))
        loss = next((logged[name] for name in LOSSES if name in logged), None)
        if loss is not None:
            facts.append(f"critic loss {loss:.3g}")
        self.bar.update(self.line, completed=min(step, self.steps), facts=" · ".join(facts))

    def say(self, what: str) -> None:
        """Of interest to who watches."""
        if self.bar is not None:
            self.bar.update(self.line, facts=what)

    def tell(self, what: str) -> None:
        """To be known in any case."""
        if self.bar is not None:
            self.bar.console.print(what, highlight=False, markup=False)
        else:
            print(what, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
