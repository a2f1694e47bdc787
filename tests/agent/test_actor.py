"""The actor's distribution, against torch's own, and its deviation."""

import math

import pytest
import torch
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from tsac.agent.actor import Actor, standard_deviation


def sampled(entropy):
    torch.manual_seed(0)
    actor = Actor(5, 3, mean_layers=(16,), std_layers=(16,), entropy=entropy).double()
    states, noise = torch.randn(64, 5).double(), torch.randn(64, 3).double()
    gaussian = Independent(Normal(actor.mean(states), standard_deviation(actor.std(states))), 1)
    raw = gaussian.base_dist.mean + gaussian.base_dist.stddev * noise
    return actor, actor.sample(states, noise=noise), gaussian, raw


def test_gaussian_entropy_is_that_before_tanh():
    _, sample, gaussian, raw = sampled("gaussian")
    torch.testing.assert_close(sample.actions, raw.tanh())
    torch.testing.assert_close(sample.entropy, gaussian.entropy())
    torch.testing.assert_close(sample.log_prob, gaussian.log_prob(raw))


def test_squashed_log_probability_is_that_of_the_action():
    _, sample, gaussian, raw = sampled("squashed")
    squashed = TransformedDistribution(gaussian, [TanhTransform(cache_size=1)])
    actions = squashed.transforms[0](raw)
    torch.testing.assert_close(sample.log_prob, squashed.log_prob(actions))
    torch.testing.assert_close(sample.entropy, -sample.log_prob)


def test_the_gaussian_entropy_sends_no_gradient_to_the_mean():
    actor, sample, _, _ = sampled("gaussian")
    sample.entropy.sum().backward()
    assert all(parameter.grad is None for parameter in actor.mean.parameters())
    assert all(parameter.grad is not None for parameter in actor.std.parameters())


def test_the_deviation_grows_slowly_above_one_and_never_explodes():
    x = torch.tensor([-50.0, -1.0, 0.0, 1.0, 2.0, 1e6], requires_grad=True)
    std = standard_deviation(x)
    expected = [math.exp(-20), math.exp(-1), 1.0, 1 + math.log(2), 1 + math.log(3), 1 + math.log(3)]
    assert std.tolist() == pytest.approx(expected, abs=2e-6)
    std.sum().backward()
    assert x.grad.isfinite().all()


def test_the_step_index_is_an_input_where_asked_for():
    actor = Actor(5, 3, step_input=True, episode_length=10)
    states = torch.randn(4, 5)
    first, last = torch.zeros(4, dtype=torch.int64), torch.full((4,), 9)
    assert (actor.best(states, first) - actor.best(states, last)).abs().max() > 1e-4


def test_a_small_output_scale_makes_the_first_policy_the_same_everywhere():
    states = 3 * torch.randn(100, 5)
    for scale, largest in ((0.0, 0.0), (0.01, 0.1)):
        actor = Actor(5, 3, output_scale=scale)
        assert actor.mean(states).abs().max() <= largest
        torch.testing.assert_close(
            standard_deviation(actor.std(states)), torch.ones(100, 3), atol=1.1 * largest, rtol=1e-5
        )
    assert Actor(5, 3).mean(states).std() > 0.3
