"""What the critic is trained towards: equations 1 to 5 of the paper, as pure tensor functions.

Shapes: a window holds ``length`` consecutive steps of one segment; ``[batch, length]`` tensors are indexed by
the step inside the window, so entry ``i - 1`` belongs to the prefix of ``i`` actions and to horizon ``i``.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

ValueReduction = Literal["min", "mean", "random"]
ReturnPropagation = Literal["gradients", "targets", "longest"]


def valid_steps(ends: Tensor) -> Tensor:
    """Which steps of a window count: all up to and including its first end.

    :param ends: whether the step is the last one of its episode, bool  # [batch, length]
    :return: bool  # [batch, length]
    """
    ends_so_far = ends.cumsum(dim=1)
    return (ends_so_far - ends.to(ends_so_far.dtype)) == 0


def reduce_values(values: Tensor, how: ValueReduction) -> Tensor:
    """One value per next state from the values that the critics give it.

    :param values: # [critics, ...]
    :param how: the ``min`` of the critics, their ``mean``, or ``random``: a fresh fair choice for every entry
    :return: # [...]
    """
    if how == "min":
        return values.amin(dim=0)
    if how == "mean":
        return values.mean(dim=0)
    choice = torch.randint(values.shape[0], values.shape[1:], device=values.device)
    return values.gather(0, choice.unsqueeze(0)).squeeze(0)


def prefix_targets(rewards: Tensor, next_values: Tensor, terminated: Tensor, gamma: float) -> Tensor:
    """The i-step target of every prefix of every window (eqs. 1 and 4): no entropy, no importance sampling.

    Entries after a window's first end mix two episodes: ``horizon_weights`` keeps them out of the loss.

    :param rewards: # [batch, length]
    :param next_values: value of the state that each step leads to; at a truncation, of the true final state
    :param terminated: bool, no bootstrap beyond such a step  # [batch, length]
    :return: # [batch, length]
    """
    steps = torch.arange(rewards.shape[1], device=rewards.device, dtype=rewards.dtype)
    discounts = gamma**steps  # [length]
    reward_sums = (discounts * rewards).cumsum(dim=1)
    return reward_sums + gamma * discounts * next_values * ~terminated


def carry_over_ends(targets: Tensor, valid: Tensor) -> Tensor:
    """Prefixes that reach beyond a window's first end get the target of the prefix up to it.

    For policies that choose chunks of actions: an end drops the rest of a chunk, which adds nothing, whatever it is.
    Otherwise nothing would train the value of a chunk that is chosen shortly before an end.
    """
    last = valid.sum(dim=1, keepdim=True) - 1  # valid steps are the first ones
    return torch.where(valid, targets, targets.gather(1, last))


def average_targets(targets: Tensor) -> Tensor:
    """Eq. 3: the target of prefix n becomes the mean of the targets of the horizons 1 to n."""
    horizons = torch.arange(1, targets.shape[1] + 1, device=targets.device, dtype=targets.dtype)
    return targets.cumsum(dim=1) / horizons


def horizon_weights(valid: Tensor, lengths: Tensor | int, propagation: ReturnPropagation, dtype: torch.dtype) -> Tensor:
    """The weight of every squared error in the critic's loss, so that the loss is ``(weights * errors**2).sum()``.

    Eq. 5: a window's loss is the mean over its horizons, and the windows are averaged. The mean is over the
    window's length as it was drawn, masked steps included, as in the published implementation. With
    ``"longest"``, only the last valid prefix of a window counts.

    :param valid: bool  # [batch, length]
    :param lengths: the drawn length of each window  # [batch], or one for all
    """
    batch = valid.shape[0]
    if propagation == "longest":
        followed = torch.zeros_like(valid)
        followed[:, :-1] = valid[:, 1:]
        return (valid & ~followed).to(dtype) / batch
    if isinstance(lengths, int):
        return valid.to(dtype) / (batch * lengths)
    return valid.to(dtype) / (batch * lengths.to(dtype)).unsqueeze(1)
