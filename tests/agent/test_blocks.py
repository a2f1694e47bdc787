"""The block by hand computes what PyTorch's own modules and automatic differentiation compute."""

import sys
from pathlib import Path

import pytest
import torch

from tsac.agent import blocks
from tsac.agent.critic import PrefixCritic

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import plain

NAMES = ("norm_attention", "queries_keys_values", "attention_out", "norm_mlp", "mlp_in", "mlp_out")


def both(dtype, critics=2, width=16, heads=4, scale=0.3):
    """Weights of our blocks, and PyTorch's modules with the same ones."""
    theirs = [plain.Block(width, heads).to(dtype) for _ in range(critics)]
    for module in theirs:
        for parameter in module.parameters():
            parameter.data = torch.randn_like(parameter) * scale + (1.0 if parameter.dim() == 1 else 0.0)
    parts = [(m.norm_attention, m.queries_keys_values, m.attention_out, m.norm_mlp, m.mlp[0], m.mlp[2]) for m in theirs]
    ours = [torch.stack([own[i].weight.detach() for own in parts]).requires_grad_() for i in range(6)]
    return ours, theirs, parts


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("tokens", [2, 5, 17])
def test_outputs_and_gradients_are_those_of_the_plain_formulation(first, tokens):
    torch.manual_seed(tokens)
    ours, theirs, parts = both(torch.float64)
    x = torch.randn(2, 3, tokens, 16, dtype=torch.float64, requires_grad=True)
    out = blocks.block(x, *ours, 4, first, "highest")
    expected = torch.stack([module(x[i]) for i, module in enumerate(theirs)])[:, :, first:]
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    gradient = torch.randn_like(out)
    (of_x,) = torch.autograd.grad(expected, [x], gradient, retain_graph=True)
    torch.testing.assert_close(
        torch.autograd.grad(out, [x], gradient, retain_graph=True)[0], of_x, rtol=1e-11, atol=1e-12
    )
    expected.backward(gradient)
    given = torch.autograd.grad(out, ours, gradient)
    for number, name in enumerate(NAMES):
        wanted = torch.stack([own[number].weight.grad for own in parts])
        torch.testing.assert_close(given[number], wanted, rtol=1e-10, atol=1e-11, msg=name)


def test_where_only_the_input_needs_a_gradient_it_is_the_same():
    ours, _, _ = both(torch.float64)
    x = torch.randn(2, 3, 5, 16, dtype=torch.float64, requires_grad=True)
    (with_weights,) = torch.autograd.grad(blocks.block(x, *ours, 4, 0, "highest").sum(), [x])
    fixed = [weight.detach() for weight in ours]
    (without,) = torch.autograd.grad(blocks.block(x, *fixed, 4, 0, "highest").sum(), [x])
    assert torch.equal(with_weights, without)


@pytest.mark.parametrize("first", [0, 1])
def test_bf16_is_close(first):
    torch.manual_seed(0)
    ours, _, _ = both(torch.float32, width=64, scale=0.1)
    x = torch.randn(2, 8, 9, 64, requires_grad=True)
    outs = [blocks.block(x, *ours, 4, first, precision) for precision in ("highest", "bf16")]
    gradient = torch.randn_like(outs[0])
    exact, rounded = (torch.autograd.grad(out, [x, *ours], gradient) for out in outs)
    for one, other in zip([outs[0], *exact], [outs[1], *rounded], strict=True):
        assert 0.0 < (one - other).norm() / one.norm() < 0.02


def test_a_score_that_outweighs_all_others_is_no_overflow():
    scores = torch.zeros(1, 3, 3, dtype=torch.float32)
    scores[0, 2, 0] = 1e5
    scores[0, 1, 1] = 1e5
    weights = blocks._causal_softmax(scores.clone(), 1)
    wanted = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]])
    torch.testing.assert_close(weights, wanted)


def test_a_hundred_updates_are_those_of_the_plain_formulation():
    """Losses and weights, in double precision, with PyTorch's AdamW and clipping on the other side."""
    from tsac.agent import engine

    torch.manual_seed(0)
    sizes = {"width": 16, "layers": 2, "heads": 4, "max_length": 8}
    ours = PrefixCritic(3, 2, **sizes).double()
    theirs = [plain.Critic(3, 2, *sizes.values()).double() for _ in range(2)]
    copy_weights(ours, theirs)
    optimizer = engine.make_adamw(ours.parameters(), 1e-3, (0.5, 0.95), 0.0, matrix_dims=3)
    optimizers = [
        torch.optim.AdamW(critic.parameters(), lr=1e-3, betas=(0.5, 0.95), weight_decay=0.0) for critic in theirs
    ]
    for update in range(100):
        length = 1 + update % 8
        states, actions = torch.randn(6, 3).double(), torch.randn(6, length, 2).double()
        targets = torch.randn(6, length).double()
        loss = (ours(states, actions) - targets).square().mean(dim=(1, 2))
        optimizer.zero_grad()
        loss.sum().backward()
        engine.step(optimizer, 1.0, stacked=True)
        for number, (critic, own) in enumerate(zip(theirs, optimizers, strict=True)):
            expected = (critic(states, actions) - targets).square().mean()
            assert loss[number].item() == pytest.approx(expected.item(), rel=1e-6)
            own.zero_grad()
            expected.backward()
            torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
            own.step()
    assert largest_difference(ours, theirs) < 1e-6


def test_bf16_follows_the_loss_of_single_precision():
    """The loss over a thousand updates on the same batches is within 2 %.

    In between the two runs part, as any two do whose rounding differs, but not for long and to neither side.
    """
    from tsac.agent import engine

    torch.manual_seed(0)
    sizes = {"width": 32, "layers": 2, "heads": 4, "max_length": 8}
    critics = [PrefixCritic(3, 2, **sizes, precision=precision) for precision in ("highest", "bf16")]
    critics[1].load_state_dict(critics[0].state_dict())
    optimizers = [engine.make_adamw(critic.parameters(), 1e-3, (0.9, 0.95), 0.0, matrix_dims=3) for critic in critics]
    losses = torch.zeros(2, 1000)
    for update in range(1000):
        length = 1 + update % 8
        states, actions = torch.randn(32, 3), torch.randn(32, length, 2)
        wave = (states.sum(dim=1, keepdim=True) + actions.sum(dim=2)).sin().cumsum(dim=1)
        targets = wave + 0.3 * torch.randn(32, length)
        for number, (critic, optimizer) in enumerate(zip(critics, optimizers, strict=True)):
            loss = (critic(states, actions) - targets).square().mean(dim=(1, 2))
            optimizer.zero_grad()
            loss.sum().backward()
            engine.step(optimizer, 1.0, stacked=True)
            losses[number, update] = loss.detach().mean()
    exact, rounded = losses.view(2, 10, 100).mean(dim=2)
    assert exact[-1] < 0.5 * exact[0]  # something is learned
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(rounded.mean(), exact.mean(), rtol=0.02, atol=0.0)
    torch.testing.assert_close(rounded, exact, rtol=0.15, atol=0.0)


def pairs(ours, critic, number):
    yield ours.embed_state.weight[number], critic.embed_state.weight
    yield ours.embed_action.weight[number], critic.embed_action.weight
    yield ours.body.positions[number], critic.positions.weight
    for mine, their in zip(ours.body.blocks, critic.blocks, strict=True):
        yield mine.norm_attention.weight[number], their.norm_attention.weight
        yield mine.queries_keys_values.weight[number], their.queries_keys_values.weight
        yield mine.attention_out.weight[number], their.attention_out.weight
        yield mine.norm_mlp.weight[number], their.norm_mlp.weight
        yield mine.mlp_in.weight[number], their.mlp[0].weight
        yield mine.mlp_out.weight[number], their.mlp[2].weight
    yield ours.body.norm.weight[number], critic.norm.weight
    yield ours.head.weight[number], critic.head.weight


def copy_weights(ours, theirs):
    with torch.no_grad():
        for number, critic in enumerate(theirs):
            for mine, their in pairs(ours, critic, number):
                their.copy_(mine)


def largest_difference(ours, theirs):
    return max(
        float((mine - their).detach().abs().max() / their.detach().abs().max())
        for number, critic in enumerate(theirs)
        for mine, their in pairs(ours, critic, number)
    )
