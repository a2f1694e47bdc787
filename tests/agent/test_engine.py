"""Optimiser steps, clipping and copies, against torch's own."""

import pytest
import torch
from torch import nn

from tsac.agent import engine


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))


@pytest.mark.parametrize("max_norm", [None, 0.1, 100.0])
def test_a_step_is_torchs_clipping_and_adamw(max_norm):
    ours, theirs, x = network(), network(), torch.randn(16, 4)
    matrices = [p for p in theirs.parameters() if p.dim() > 1]
    others = [p for p in theirs.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=1e-2, betas=(0.5, 0.9))
    optimizer = engine.make_adamw(ours.parameters(), 1e-2, (0.5, 0.9), 0.1)
    for _ in range(5):
        ours.zero_grad()
        ours(x).square().sum().backward()
        norm = engine.step(optimizer, max_norm)
        theirs.zero_grad()
        theirs(x).square().sum().backward()
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), max_norm or 1e9)
        reference.step()
        torch.testing.assert_close(norm, expected.view(1))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_stacked_networks_are_clipped_each_on_its_own():
    parameters = [nn.Parameter(torch.zeros(2, 3, 4)), nn.Parameter(torch.zeros(2, 5))]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
        parameter.grad[0] *= 0.01
    norms = engine.step(optimizer, 1.0, stacked=True)
    torch.testing.assert_close(norms, torch.tensor([0.01, 1.0]) * 17**0.5)
    moved = torch.stack([torch.cat([p[i].flatten() for p in parameters]).norm() for i in range(2)])
    torch.testing.assert_close(moved, torch.tensor([0.01 * 17**0.5, 1.0]), rtol=1e-4, atol=0)


@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_copies(tau):
    source, target = network(), network()
    nn.init.ones_(source[0].weight)
    before = target[0].weight.clone()
    engine.copy_parameters(source, target, tau)
    torch.testing.assert_close(target[0].weight, before + tau * (1.0 - before))


@pytest.mark.parametrize("rows", [16, 1200])
@pytest.mark.parametrize("onednn", [False, engine.USES_ONEDNN])
def test_products_are_those_of_double_precision(rows, onednn, monkeypatch):
    """Also of views: the transposed factors of a gradient."""
    monkeypatch.setattr(engine, "USES_ONEDNN", onednn)
    torch.manual_seed(0)
    x, weight, add = torch.randn(2, rows, 64), torch.randn(2, 96, 64), torch.randn(2, rows, 96)
    gradient = torch.randn(2, rows, 96)
    for factors, others, extra in ((x, weight.mT, None), (x, weight.mT, add), (gradient.mT, x, None)):
        exact = factors.double() @ others.double() + (0.0 if extra is None else extra.double())
        found = engine.products(factors, others, extra)
        assert found.is_contiguous()
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)
