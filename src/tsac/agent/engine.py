"""How an update executes: optimiser steps, clipping and copies, for all parameters at once."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def make_adamw(
    parameters: Iterable[nn.Parameter], lr: float, betas: tuple[float, float], weight_decay: float, matrix_dims: int = 2
) -> torch.optim.AdamW:
    """AdamW that decays matrices only, neither biases nor norms.

    :param matrix_dims: a parameter with at least that many dimensions counts as a matrix (3 where critics are stacked)
    """
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.dim() >= matrix_dims], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < matrix_dims], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=betas, fused=True)


def step(optimizer: torch.optim.Optimizer, max_norm: float | None, stacked: bool = False) -> Tensor:
    """Clip the gradients, take one step, and return the norms from before the clipping.

    :param max_norm: largest norm that passes unchanged; None: no clipping
    :param stacked: parameters have a leading dimension of independent networks, each clipped on its own
    :return: # [networks], or [1]
    """
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    if stacked:
        networks = grads[0].shape[0]
        norms = torch.stack([g.reshape(networks, -1).square().sum(dim=1) for g in grads]).sum(dim=0).sqrt()
    else:
        norms = torch.stack(torch._foreach_norm(grads)).square().sum().sqrt().unsqueeze(0)
    if max_norm is not None:
        scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
        if stacked:
            torch._foreach_mul_(grads, [scale.view(-1, *[1] * (g.dim() - 1)) for g in grads])
        else:
            torch._foreach_mul_(grads, scale[0])
    optimizer.step()
    return norms


@torch.no_grad()
def copy_parameters(source: nn.Module, target: nn.Module, tau: float) -> None:
    """Move the target's parameters by the share ``tau`` towards the source's; 1 is a hard copy."""
    sources: list[Tensor] = list(source.parameters())
    targets: list[Tensor] = list(target.parameters())
    if tau == 1.0:
        torch._foreach_copy_(targets, sources)
    else:
        torch._foreach_lerp_(targets, sources, tau)
