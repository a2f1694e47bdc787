"""The CSV files of a run. What a killed process wrote after its last checkpoint is dropped when the run goes on."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.logger import KVWriter

from tsac.agent import files
from tsac.runs.evaluation import Episode

COLUMNS = ["step", "seconds", "episode", "return", "length", "success"]
Row = dict[str, str]


def read_rows(path: Path, until: int | None = None) -> list[Row]:
    """The complete rows of a file, of steps not after ``until``."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if None not in row and None not in row.values()]
    return [row for row in rows if row["step"].isdigit() and (until is None or int(row["step"]) <= until)]


def write_rows(path: Path, columns: list[str], rows: list[Row]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    files.write_bytes(path, text.getvalue().encode())


def append(path: Path, line: list[str], *more: list[str]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([line, *more])
    with path.open("a", newline="") as file:
        file.write(text.getvalue())
        file.flush()
        os.fsync(file.fileno())


# ------------------------------------------------------------------------------------------ evaluations.csv


def start_evaluations(path: Path, until: int) -> None:
    write_rows(path, COLUMNS, read_rows(path, until))


def append_evaluation(path: Path, step: int, seconds: float, episodes: list[Episode]) -> None:
    rows = []
    for episode in episodes:
        success = "" if episode.success is None else str(int(episode.success))
        rows.append(
            [str(step), f"{seconds:.1f}", str(episode.number), repr(episode.total), str(episode.length), success]
        )
    append(path, *rows)


def last_evaluation(path: Path) -> tuple[int, list[Episode]]:
    """The step and the episodes of the latest evaluation."""
    rows = read_rows(path)
    latest = max((int(row["step"]) for row in rows), default=0)
    return latest, [to_episode(row) for row in rows if int(row["step"]) == latest]


def to_episode(row: Row) -> Episode:
    success = None if row["success"] == "" else row["success"] == "1"
    return Episode(int(row["episode"]), float(row["return"]), int(row["length"]), success)


# ------------------------------------------------------------------------------------------ train.csv


class TrainingCsv(KVWriter):
    """One row per log line. A quantity that turns up later gets a column of its own, empty before."""

    def __init__(self, path: Path, until: int) -> None:
        self.path = path
        self.rows = read_rows(path, until)
        self.columns = ["step"]
        for row in self.rows:
            self.columns += [name for name, value in row.items() if value and name not in self.columns]
        self.latest: dict[str, float] = {}
        write_rows(path, self.columns, self.rows)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        numbers: list[tuple[str, Any]] = [
            (name, value) for name, value in sorted(key_values.items()) if np.isscalar(value)
        ]
        values = {name: float(value) for name, value in numbers if not isinstance(value, str)}
        self.latest.update(values)
        row = {"step": str(step), **{name: repr(value) for name, value in values.items()}}
        self.rows.append(row)
        new = [name for name in row if name not in self.columns]
        if new:
            self.columns += new
            write_rows(self.path, self.columns, self.rows)
        else:
            append(self.path, [row.get(name, "") for name in self.columns])

    def close(self) -> None:
        pass
