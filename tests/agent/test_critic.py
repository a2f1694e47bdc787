"""The prefix critic: causal, independent critics, an input for the step index."""

import pytest
import torch

import tsac.agent.critic
from tsac.agent.critic import PrefixCritic, make_critic

CAUSAL = [
    {},
    {"body": "gru"},
    {"body": "lstm"},
    {"residual": False},
    {"residual": False, "causal": True, "attention": False},
]
LOOKING_AHEAD = [{"causal": False}, {"causal": False, "residual": False}, {"body": "mlp"}]


def critic(body="transformer", transformer=None, **options):
    torch.manual_seed(0)
    for name in ("heads", "residual", "causal", "attention"):
        if name in options:
            transformer = {**(transformer or {}), name: options.pop(name)}
    made = make_critic(5, 3, body, {"heads": 2, **(transformer or {})}, width=16, max_length=8, **options)
    for parameter in made.parameters():  # the small initial weights would hide a leak in rounding
        torch.nn.init.normal_(parameter, std=0.5)
    return made.double()


@pytest.mark.parametrize("options", CAUSAL)
def test_a_prefix_does_not_depend_on_later_actions(options):
    made = critic(**options)
    states, actions = torch.randn(4, 5).double(), torch.randn(4, 8, 3).double()
    values = made(states, actions)
    for i in range(8):
        changed = actions.clone()
        changed[:, i] += 1.0
        different = made(states, changed)
        torch.testing.assert_close(different[:, :, :i], values[:, :, :i], rtol=0, atol=0)
        until = i + 1 if options.get("attention") is False else 8  # without attention, none but its own
        assert (different[:, :, i:until] - values[:, :, i:until]).abs().min() > 1e-9  # and every later one does


@pytest.mark.parametrize("options", LOOKING_AHEAD)
def test_without_a_mask_and_in_an_mlp_the_first_value_depends_on_the_last_action(options):
    made = critic(**options)
    states, actions = torch.randn(4, 5).double(), torch.randn(4, 8, 3).double()
    changed = actions.clone()
    changed[:, -1] += 1.0
    assert (made(states, changed)[:, :, 0] - made(states, actions)[:, :, 0]).abs().min() > 1e-6


def test_without_attention_no_value_depends_on_the_state():
    made = critic(attention=False)
    actions = torch.randn(4, 8, 3).double()
    torch.testing.assert_close(made(torch.randn(4, 5).double(), actions), made(torch.zeros(4, 5).double(), actions))


@pytest.mark.parametrize("options", CAUSAL)
def test_a_prefix_does_not_depend_on_the_length_of_the_window(options):
    made = critic(**options)
    states, actions = torch.randn(4, 5).double(), torch.randn(4, 8, 3).double()
    torch.testing.assert_close(made(states, actions[:, :3]), made(states, actions)[:, :, :3])


@pytest.mark.parametrize("options", [*CAUSAL, *LOOKING_AHEAD])
def test_critics_are_independent(options):
    made = critic(**options)
    states, actions = torch.randn(4, 5).double(), torch.randn(4, 8, 3).double()
    values = made(states, actions)
    assert values.shape == (2, 4, 8)
    values[0].sum().backward()
    for name, parameter in made.named_parameters():
        if options.get("attention") is False and name == "embed_state.weight":
            continue
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


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_recurrent_bodies_are_pytorchs_networks(kind):
    made = critic(body=kind)
    network = (torch.nn.GRU if kind == "gru" else torch.nn.LSTM)(16, 16, 2, batch_first=True).double()
    for parameter, stacked in zip(network.parameters(), made.body.weights, strict=True):
        parameter.data.copy_(stacked[1])
    tokens = torch.randn(2, 4, 9, 16).double()
    expected = torch.nn.functional.layer_norm(network(tokens[1])[0][:, 1:], (16,)) * made.body.norm.weight[1]
    torch.testing.assert_close(made.body(tokens)[1], expected)


def test_another_body_is_refused():
    with pytest.raises(ValueError, match="must be one of transformer, gru, lstm, mlp"):
        PrefixCritic(5, 3, body="cnn")
