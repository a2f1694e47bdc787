"""T-SAC and what it is compared with, by name."""

from tsac.baselines.registry import ALGORITHMS, Algorithm, find_algorithm

__all__ = ["ALGORITHMS", "Algorithm", "find_algorithm"]
