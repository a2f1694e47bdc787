"""How an update executes: large products, and optimiser steps, clipping and copies for all parameters at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

# ------------------------------------------------------------------------------------------ products


def _slow_products() -> bool:
    """PyTorch gives products in single precision to MKL, which takes a slow way on processors of another maker."""
    try:
        maker = Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return "AuthenticAMD" in maker and torch.backends.mkldnn.is_available() and hasattr(onednn, "_linear_pointwise")


onednn: Any = torch.ops.mkldnn
WORTHWHILE = 2**22  # multiplications; below, one batched call costs less than several
USES_ONEDNN = _slow_products()  # which PyTorch ships as well: twice as fast there, measured by benchmarks/


def products(factors: Tensor, others: Tensor, add: Tensor | None = None) -> Tensor:
    """A matrix product for each of a few networks; without a gradient.

    :param factors: # [networks, rows, inner]
    :param others: # [networks, inner, columns]
    :param add: what the products are added to  # [networks, rows, columns]
    """
    large = factors.shape[1] * others.numel() >= WORTHWHILE * len(others)
    if USES_ONEDNN and large and factors.dtype == torch.float32 and factors.device.type == "cpu":
        linear, pairs = onednn._linear_pointwise, zip(factors, others.mT, strict=True)
        if add is None:
            return torch.stack([linear(x, weight, None, "none", [], "") for x, weight in pairs])
        return torch.stack([linear(x, y, weight, None, "add") for (x, weight), y in zip(pairs, add, strict=True)])
    return torch.bmm(factors, others) if add is None else torch.baddbmm(add, factors, others)


# ------------------------------------------------------------------------------------------ optimisers


def make_adamw(
    parameters: Iterable[nn.Parameter], lr: float, betas: tuple[float, float], weight_decay: float, matrix_dims: int = 2
) -> torch.optim.AdamW:
    """AdamW that decays matrices only, neither biases nor norms.

    :param matrix_dims: a parameter with at least that many dimensions counts as a matrix (3 where critics are stacked)
    """
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.dim() >= matrix_dims], "weight_decay": weight_decay, "decays": True},
        {"params": [p for p in parameters if p.dim() < matrix_dims], "weight_decay": 0.0, "decays": False},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=betas, fused=True)


def set_options(optimizer: torch.optim.Optimizer, betas: tuple[float, float], weight_decay: float) -> None:
    """Of an optimiser that ``make_adamw`` made."""
    for group in optimizer.param_groups:
        group["betas"] = tuple(betas)
        group["weight_decay"] = weight_decay if group["decays"] else 0.0


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
