"""The tasks of the paper by name, their suites, and disturbances of them."""

from typing import TYPE_CHECKING, Any

from tsac.tasks.make import make_task
from tsac.tasks.suites import PAPER_TASKS, SUITES

if TYPE_CHECKING:
    from tsac.tasks.vectors import WorkerDiedError, make_vec

__all__ = ["PAPER_TASKS", "SUITES", "WorkerDiedError", "make_task", "make_vec"]


def __getattr__(name: str) -> Any:
    """Vector environments are Stable-Baselines3's, whose import takes seconds."""
    if name in ("WorkerDiedError", "make_vec"):
        from tsac.tasks import vectors

        return getattr(vectors, name)
    raise AttributeError(f"module 'tsac.tasks' has no attribute {name!r}")
