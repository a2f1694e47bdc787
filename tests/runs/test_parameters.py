"""Sizes of the networks, against the paper's table of costs."""

import dataclasses

import pytest

from tsac.runs.agents import make_agent, save_agent
from tsac.runs.chapters import make_environments
from tsac.runs.parameters import parameter_lines
from tsac.runs.spec import preset_values, spec_from


@pytest.mark.parametrize(
    ("algorithm", "lines"),
    [
        ("tsac", ["4,057,358 parameters: actor 881,422, critic 3,175,936; and copies, 3,175,936", "3.3 million"]),
        ("sac", ["227,344 parameters: actor 76,814, critic 150,530; and copies, 150,530", "0.2 million"]),
        ("crossq", ["233,889 parameters: actor 78,977, critic 154,912", "10.0 million"]),
        ("gtrxl", ["316,239 parameters"]),
    ],
)
def test_counts_stand_beside_those_of_the_paper(algorithm, lines, tmp_path):
    spec = spec_from(preset_values("box-pushing-dense", "tsac/BoxPushingDense-v0", algorithm))
    if hasattr(spec.agent, "buffer_size"):
        spec = dataclasses.replace(spec, agent=dataclasses.replace(spec.agent, buffer_size=1000))
    _, env = make_environments(dataclasses.replace(spec, environments=1), 0)
    save_agent(tmp_path / "agent.safetensors", make_agent(spec, env), spec, 0, None)
    found = parameter_lines(tmp_path / "agent.safetensors", algorithm)
    assert len(found) == len(lines)
    for line, wanted in zip(found, lines, strict=True):
        assert wanted in line
