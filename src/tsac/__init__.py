"""Transformer-based Soft Actor-Critic for Stable-Baselines3."""

from tsac import tasks
from tsac.agent.segments import SegmentReplayBuffer
from tsac.agent.tsac import TSAC

__all__ = ["TSAC", "SegmentReplayBuffer", "tasks"]
__version__ = "0.1.0"
