"""Where log lines go besides ``train.csv``."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
from stable_baselines3.common.logger import HumanOutputFormat, KVWriter

from tsac.runs.folder import RunFolder
from tsac.runs.progress import Progress
from tsac.runs.settings import SpecError
from tsac.runs.spec import RunSpec, spec_values


def make_writers(folder: RunFolder, spec: RunSpec, step: int, progress: Progress, wandb: bool) -> list[KVWriter]:
    """
    :param step: where the run goes on from; later events of an earlier process are void
    """
    writers: list[KVWriter] = []
    if importlib.util.find_spec("tensorboard"):
        writers.append(_tensorboard(folder, step))
    else:
        progress.tell('No TensorBoard events: the package is not installed (pip install "tsac[extra]").')
    if progress.verbose:
        writers.append(HumanOutputFormat(sys.stdout))
    if wandb:
        writers.append(WeightsAndBiases(folder, spec))
    return writers


def _tensorboard(folder: RunFolder, step: int) -> KVWriter:
    from stable_baselines3.common.logger import TensorBoardOutputFormat
    from torch.utils.tensorboard import SummaryWriter

    output = TensorBoardOutputFormat.__new__(TensorBoardOutputFormat)
    output.writer = SummaryWriter(str(folder.tensorboard), purge_step=step + 1)
    output._is_closed = False
    return output


class WeightsAndBiases(KVWriter):
    def __init__(self, folder: RunFolder, spec: RunSpec) -> None:
        try:
            import wandb
        except ModuleNotFoundError as error:
            raise SpecError('--wandb needs a package that is not installed: pip install "tsac[wandb]"') from error
        name = folder.path.resolve().name
        self.run: Any = wandb.init(
            project="tsac", name=name, id=name, resume="allow", dir=str(folder.path), config=spec_values(spec)
        )

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        self.run.log({k: v for k, v in key_values.items() if isinstance(v, np.ScalarType)}, step=step)

    def close(self) -> None:
        self.run.finish()
