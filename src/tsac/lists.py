"""What there is: tasks, presets, algorithms."""

from __future__ import annotations

from importlib import resources

from tsac import presets as preset_files
from tsac.baselines import ALGORITHMS
from tsac.near import nearest
from tsac.tasks import SUITES


def tasks() -> None:
    for suite, names in SUITES.items():
        print(f"{suite} ({len(names)})")
        for name in names:
            print(f"  {name}")
    print("Any other id that Gymnasium knows works as well.")


def presets(name: str | None) -> None:
    if name is None:
        for known in preset_files.preset_names():
            algorithms = ", ".join(preset_files.preset_algorithms(known))
            print(f"{known}: {preset_files.read_table(known)['suite']}; {algorithms}")
        print("laptop: that of the task's suite, for two CPU cores (as --scale laptop)")
        return
    if name not in preset_files.preset_names():
        raise ValueError(f"There is no preset {name!r}.{nearest(name, preset_files.preset_names())}")
    print(resources.files(preset_files).joinpath(f"{name}.yaml").read_text("utf-8"), end="")


def algorithms() -> None:
    width = max(map(len, ALGORITHMS))
    for algorithm in ALGORITHMS.values():
        print(f"{algorithm.name:<{width}}  {algorithm.summary}")
