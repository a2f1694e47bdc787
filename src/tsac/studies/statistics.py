"""Interquartile means with stratified bootstrap intervals, as rliable computes them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

REPETITIONS = 2_000  # of the bootstrap
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """Along a learning curve."""

    centre: NDArray[np.float64]  # [evaluations]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def interquartile_mean(scores: NDArray[np.float64]) -> Estimate:
    """
    :param scores: # [seeds, tasks, evaluations]; the bootstrap draws seeds anew for every task
    """
    try:
        from rliable import library, metrics
    except ModuleNotFoundError as error:
        message = f'Statistics need {error.name}, which is not installed: pip install "tsac[studies]"'
        raise ModuleNotFoundError(message) from error

    def along(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.array([metrics.aggregate_iqm(values[..., i]) for i in range(values.shape[-1])])

    # rliable draws from NumPy's global generator: the same draws every time, so that a figure can be made again.
    before = np.random.get_state()
    np.random.seed(0)
    try:
        points, intervals = library.get_interval_estimates(
            {"": scores}, along, reps=REPETITIONS, confidence_interval_size=CONFIDENCE
        )
    finally:
        np.random.set_state(before)
    return Estimate(points[""], intervals[""][0], intervals[""][1])
