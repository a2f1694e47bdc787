"""Every preset is the paper's, value by value, and makes an agent."""

import pytest

from tsac import TSAC
from tsac.presets import READINGS, agent_arguments, preset_names, read_preset

# Rows of the paper's four tables, columns T-SAC; where two values stand, (published configuration, printed table).
TABLES = {
    "mujoco": {
        "number of samples": (4, 20), "discount": 0.99, "epochs": 12, "epochs critic": 60, "rate": 3e-4,
        "rate critic": 3e-4, "batch": 256, "buffer": (1_000_000 * 20, 100_000 * 20), "actor starts": (20_000, 10_000),
        "polyak": 1.0, "hidden": [256, 256], "activation": "ReLU", "heads": (4, 64), "layers": 2,
    },
    "metaworld": {
        "number of samples": (4, 125), "discount": 0.99, "epochs": 20 * 5, "epochs critic": 100 * 5, "rate": 2.5e-4,
        "rate critic": 2.5e-5, "batch": 512, "buffer": 5000 * 125, "actor starts": 200 * 500,
        "polyak": 5e-3, "hidden": [128, 128], "activation": "LeakyReLU", "heads": (4, 32), "layers": 2,
    },
    "box-pushing-dense": {
        "number of samples": (4, 100), "discount": (0.98, 0.99), "epochs": 20, "epochs critic": 100, "rate": 2.5e-4,
        "rate critic": (3e-5, 2.5e-5), "batch": 256, "buffer": 20_000 * 100, "actor starts": 5000 * 400,
        "polyak": 5e-3, "hidden": [512] * 4, "activation": "ReLU", "heads": (4, 64), "layers": 2,
    },
    "box-pushing-sparse": {
        "number of samples": (4, 100), "discount": 1.0, "epochs": 20, "epochs critic": 100, "rate": 2.5e-4,
        "rate critic": 3e-4, "batch": 256, "buffer": 20_000 * 100, "actor starts": (3000 * 400, 2000 * 400),
        "polyak": (1.0, 5e-3), "hidden": ([256] * 2, [512] * 4), "activation": "LeakyReLU", "heads": (4, 64),
        "layers": 2,
    },
}  # fmt: skip
TABLES["mujoco-soft"] = {**TABLES["mujoco"], "polyak": 5e-3}
PAIRS = {"number of samples", "heads"}  # rows whose value is a pair by itself


def row(preset):
    agent = preset["agent"]
    networks = agent["policy_kwargs"]

    def start(rate):
        return rate[0] if isinstance(rate, list) else rate

    hidden = networks["net_arch"]
    return {
        "number of samples": (preset["environments"], agent["segment_length"]),
        "discount": agent["gamma"],
        "epochs": agent["rounds"] * agent["actor_updates"],
        "epochs critic": agent["rounds"] * agent["critic_updates"],
        "rate": start(agent["learning_rate"]),
        "rate critic": start(agent["critic_learning_rate"]),
        "batch": agent["batch_size"],
        "buffer": agent["buffer_size"],
        "actor starts": agent["actor_starts"],
        "polyak": agent["tau"],
        "hidden": hidden["mean"] if isinstance(hidden, dict) else hidden,
        "activation": networks["activation_fn"],
        "heads": (networks["critic_heads"], networks["critic_width"] // networks["critic_heads"]),
        "layers": networks["critic_layers"],
    }


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", sorted(TABLES))
def test_presets_equal_the_papers_tables(name, reading):
    for quantity, value in row(read_preset(name, reading)).items():
        expected = TABLES[name][quantity]
        if isinstance(expected, tuple) and quantity not in PAIRS:
            expected = expected[READINGS.index(reading)]
        assert value == expected, quantity


def test_every_preset_is_compared():
    assert sorted(TABLES) == preset_names()


@pytest.mark.parametrize("name", sorted(TABLES))
def test_presets_make_agents(name):
    model = TSAC.from_preset(name, "Pendulum-v1", buffer_size=4_000, device="cpu", policy_kwargs={"critic_width": 32})
    preset = read_preset(name)
    assert model.n_envs == 4
    assert model.gradient_steps == preset["agent"]["rounds"]
    assert model.critic.embed_state.weight.shape[1] == 32
    assert model.temperature().item() == pytest.approx(0.0 if name.startswith("box") else 0.0067, rel=1e-2)
    assert (model.critic_target is model.critic) == (preset["agent"]["tau"] == 1.0)


def test_a_misspelt_preset_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'mujoco'"):
        read_preset("mujocoo")
    with pytest.raises(ValueError, match="reading must be one of"):
        read_preset("mujoco", "printed")


def test_learning_rates_fall_to_one_percent_for_box_pushing():
    schedule = agent_arguments(read_preset("box-pushing-dense"))["critic_learning_rate"]
    assert schedule(1.0) == pytest.approx(3e-5)
    assert schedule(0.5) == pytest.approx(3e-5 * 0.505)
    assert schedule(0.0) == pytest.approx(3e-7)
