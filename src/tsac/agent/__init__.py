"""The method: the algorithm, its networks, its targets and its replay buffer."""

from tsac.agent.segments import SegmentReplayBuffer
from tsac.agent.tsac import TSAC

__all__ = ["TSAC", "SegmentReplayBuffer"]
