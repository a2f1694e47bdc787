"""Targets equal a brute-force loop on any episode structure, and nothing leaks over an end."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsac.agent.targets import average_targets, horizon_weights, prefix_targets, reduce_values, valid_steps

windows = st.lists(st.sampled_from(["goes on", "terminated", "truncated"]), min_size=1, max_size=16)


def window(kinds, seed):
    torch.manual_seed(seed)
    length = len(kinds)
    rewards, values = torch.randn(1, length, dtype=torch.float64), torch.randn(1, length, dtype=torch.float64)
    terminated = torch.tensor([[kind == "terminated" for kind in kinds]])
    ends = torch.tensor([[kind != "goes on" for kind in kinds]])
    return rewards, values, terminated, ends


def by_hand(kinds, rewards, values, gamma):
    """The target of each valid prefix, step by step, as one would on paper."""
    targets = []
    for i in range(1, len(kinds) + 1):
        if any(kind != "goes on" for kind in kinds[: i - 1]):
            targets.append(None)
            continue
        total = sum(gamma**j * rewards[0, j].item() for j in range(i))
        if kinds[i - 1] != "terminated":
            total += gamma**i * values[0, i - 1].item()
        targets.append(total)
    return targets


@settings(max_examples=200, deadline=None)
@given(kinds=windows, seed=st.integers(0, 1000), gamma=st.sampled_from([0.0, 0.9, 0.99, 1.0]))
def test_targets_equal_a_brute_force_loop(kinds, seed, gamma):
    rewards, values, terminated, ends = window(kinds, seed)
    valid = valid_steps(ends)
    targets = prefix_targets(rewards, values, terminated, gamma)
    expected = by_hand(kinds, rewards, values, gamma)
    assert valid[0].tolist() == [target is not None for target in expected]
    for ours, theirs in zip(targets[0].tolist(), expected, strict=True):
        if theirs is not None:
            assert ours == pytest.approx(theirs, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(kinds=windows, seed=st.integers(0, 1000))
def test_averaged_targets_equal_a_brute_force_loop(kinds, seed):
    rewards, values, terminated, _ = window(kinds, seed)
    averaged = average_targets(prefix_targets(rewards, values, terminated, 0.9))
    so_far = []
    for n, target in enumerate(by_hand(kinds, rewards, values, 0.9)):
        if target is None:
            break
        so_far.append(target)
        assert averaged[0, n].item() == pytest.approx(sum(so_far) / len(so_far), abs=1e-12)


def test_windows_of_one_step_are_one_step_actor_critic():
    rewards, values = torch.randn(50, 1), torch.randn(2, 50, 1)
    terminated = torch.rand(50, 1) < 0.3
    target = prefix_targets(rewards, reduce_values(values, "min"), terminated, 0.97)
    expected = rewards + 0.97 * torch.minimum(values[0], values[1]) * (1 - terminated.float())
    torch.testing.assert_close(target, expected)


def test_value_reductions():
    values = torch.stack([torch.zeros(2000), torch.ones(2000)])
    assert reduce_values(values, "min").sum() == 0
    assert (reduce_values(values, "mean") == 0.5).all()
    torch.manual_seed(0)
    drawn = reduce_values(values, "random")
    assert set(drawn.tolist()) == {0.0, 1.0}  # a choice for every entry, not one for all
    assert 0.45 < drawn.mean() < 0.55


def test_weights_average_over_horizons_then_over_windows():
    valid = torch.tensor([[True, True, True], [True, False, False]])
    shared = horizon_weights(valid, 3, "gradients", torch.float32)
    torch.testing.assert_close(shared, valid / 6.0)
    own = horizon_weights(valid, torch.tensor([3, 2]), "gradients", torch.float32)
    torch.testing.assert_close(own, torch.tensor([[1 / 6, 1 / 6, 1 / 6], [1 / 4, 0.0, 0.0]]))
    longest = horizon_weights(valid, 3, "longest", torch.float32)
    torch.testing.assert_close(longest, torch.tensor([[0.0, 0.0, 0.5], [0.5, 0.0, 0.0]]))
