"""The tasks of the paper by name, their suites, and disturbances of them."""

from tsac.tasks.make import make_task
from tsac.tasks.suites import PAPER_TASKS, SUITES
from tsac.tasks.vectors import WorkerDiedError, make_vec

__all__ = ["PAPER_TASKS", "SUITES", "WorkerDiedError", "make_task", "make_vec"]
