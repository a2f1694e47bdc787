"""The prefix critic: causal, independent critics, an input for the step index."""

import pytest
import torch

import tsac.agent.critic
from tsac.agent.critic import PrefixCritic


def critic(**options):
    torch.manual_seed(0)
    made = PrefixCritic(5, 3, width=16, heads=2, max_length=8, **options)
    for parameter in made.parameters():  # the small initial weights would hide a leak in rounding
        torch.nn.init.normal_(parameter, std=0.5)
    return made.double()


def test_a_prefix_does_not_depend_on_later_actions():
    made = critic()
    states, actions = torch.randn(4, 5).double(), torch.randn(4, 8, 3).double()
    values = made(states, actions)
    for i in range(8):
        changed = actions.clone()
        changed[:, i] += 1.0
        different = made(states, changed)
        torch.testing.assert_close(different[:, :, :i], values[:, :, :i], rtol=0, atol=0)
        assert (different[:, :, i:] - values[:, :, i:]).abs().min() > 1e-6  # and every later one does


def test_a_prefix_does_not_depend_on_the_length_of_the_window():
    made = critic()
    states, actions = torch.randn(4, 5).double(), torch.randn(4, 8, 3).double()
    torch.testing.assert_close(made(states, actions[:, :3]), made(states, actions)[:, :, :3])


def test_critics_are_independent():
    made = critic()
    states, actions = torch.randn(4, 5).double(), torch.randn(4, 8, 3).double()
    values = made(states, actions)
    assert values.shape == (2, 4, 8)
    values[0].sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad[0].abs().max() > 0, name
        assert parameter.grad[1].abs().max() == 0, name


@pytest.mark.parametrize("where", ["step_in_state", "step_in_actions"])
def test_the_step_index_is_an_input_where_asked_for(where):
    made = critic(**{where: True}, episode_length=100)
    states, actions = torch.randn(4, 5).double(), torch.randn(4, 8, 3).double()
    early, late = torch.zeros(4, dtype=torch.int64), torch.full((4,), 50)
    assert (made(states, actions, early) - made(states, actions, late)).abs().min() > 1e-6
    without = critic()
    torch.testing.assert_close(without(states, actions, early), without(states, actions, late))


def test_every_action_sees_the_index_of_its_own_step(monkeypatch):
    seen = []
    append = tsac.agent.critic.append_step
    monkeypatch.setattr(tsac.agent.critic, "append_step", lambda *a: (seen.append(a[1]), append(*a))[1])
    critic(step_in_actions=True, step_in_state=True, episode_length=100)(
        torch.randn(2, 5).double(), torch.randn(2, 3, 3).double(), torch.tensor([0, 40])
    )
    assert [steps.tolist() for steps in seen] == [[[0, 1, 2], [40, 41, 42]], [0, 40]]


def test_initial_weights_are_those_of_the_published_critic():
    torch.manual_seed(0)
    made = PrefixCritic(50, 20, width=128, heads=4, layers=2)
    stds = {name: parameter.std().item() for name, parameter in made.named_parameters()}
    for name, std in stds.items():
        if "norm" in name:
            assert std == 0
        elif name.endswith(("attention_out.weight", "mlp_out.weight")):
            assert std == pytest.approx(0.01, rel=0.03), name
        else:
            assert std == pytest.approx(0.02, rel=0.1), name


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="multiple of its number of heads"):
        PrefixCritic(5, 3, width=10, heads=4)


def test_bf16_products_stay_close_to_single_precision():
    torch.manual_seed(0)
    exact = PrefixCritic(5, 3, width=64, max_length=8)
    rounded = PrefixCritic(5, 3, width=64, max_length=8, precision="bf16")
    rounded.load_state_dict(exact.state_dict())
    states, actions = torch.randn(64, 5), torch.randn(64, 8, 3)
    gradients = []
    for made in (exact, rounded):
        (made(states, actions) - 1.0).square().mean().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in made.parameters()]))
    with torch.no_grad():
        difference = (exact(states, actions) - rounded(states, actions)).abs().max()
    assert 0 < difference < 0.01 * exact(states, actions).std()
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.9999
