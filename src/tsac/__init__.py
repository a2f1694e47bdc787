"""Transformer-based Soft Actor-Critic for Stable-Baselines3."""

from tsac import tasks
from tsac.agent import TSAC, SegmentReplayBuffer

__all__ = ["TSAC", "SegmentReplayBuffer", "tasks"]
__version__ = "0.1.0"
