"""Whatever stands in a file, a person gets one clear sentence or a run: never a traceback, never foreign code."""

import copy
import json
import os
import pickle
import random
import resource
import struct

import pytest
import yaml
from small import create, go, processes, small_spec

from tsac import cli, presets
from tsac.runs import training
from tsac.runs.evaluation import Episode

MUTATIONS = {"preset": 700, "run.json": 600, "policy": 700}
STRANGE = [
    None, -1, 0, 1, 3, 1e300, 2**70, -0.5, "", "x", "auto_", "../..", "!!python/object/apply:os.system [ls]", [], [1],
    {}, {"a": 1}, True, float("nan"), float("inf"), [1e-3, 1e-4], "Pendulum-v1", "sac", "relu",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "run"
    create(path, small_spec("tsac", steps=200, final_episodes=1))
    process = processes.Process(target=go, args=(str(path),))
    process.start()
    process.join()
    assert process.exitcode == 0
    return path


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """Sizes that no machine has are refused by the machine; nothing is trained."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, before[1]))

    def only_begin(folder, asked, progress, wandb=False, minutes=None):
        begun = training.Training(folder, asked, progress, wandb)
        begun.close()

    monkeypatch.setattr(training, "train", only_begin)
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def places(tree, path=()):
    """Where something stands in nested mappings and lists."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def mutated(tree, draw):
    tree = copy.deepcopy(tree)
    for _ in range(draw.choice([1, 1, 2, 4])):
        *above, last = draw.choice(list(places(tree)))
        parent = tree
        for key in above:
            parent = parent[key]
        change = draw.randrange(4)
        if change == 0 or isinstance(parent, list):
            parent[last] = draw.choice(STRANGE)
        elif change == 1:
            del parent[last]
        elif change == 2:
            parent[draw.choice(["x", f"{last}x", "$tensor", ""])] = parent.pop(last)
        else:
            parent[draw.choice(["steps", "gamma", "agent", "new"])] = draw.choice(STRANGE)
        if not tree:
            break
    return tree


def damaged(data, draw):
    data = bytearray(data)
    change = draw.randrange(3)
    if change == 0:
        return bytes(data[: draw.randrange(len(data))])
    for _ in range(draw.choice([1, 1, 5])):
        data[draw.randrange(min(len(data), draw.choice([20, 400, 10**9])))] = draw.randrange(256)
    return bytes(data) + (b"more" if change == 2 else b"")


def outcome(verb, words, capsys):
    """0 and a run, or 2 and one paragraph."""
    code = cli.run(verb, words)
    said = capsys.readouterr()
    assert code in (0, 2), said.err
    if code == 2:
        told = [line for line in said.err.splitlines() if " steps in " not in line]  # the title of a run that began
        assert len(told) == 1, said.err
        assert told[0].startswith("tsac: ")
        assert len(told[0]) < 1500
        assert "Traceback" not in said.err
    return code


def test_mutated_presets(tmp_path, capsys, monkeypatch):
    draw = random.Random(1)
    codes = []
    monkeypatch.chdir(tmp_path)
    for number in range(MUTATIONS["preset"]):
        name = draw.choice(presets.preset_names())
        values = presets.read_preset(name, scale=draw.choice(presets.SCALES))
        values.pop("suite")
        values = {"task": "Pendulum-v1", "device": "cpu", "algorithm": "tsac", **values}
        # small, so that a thousand of them can be made
        values["agent"] = {**values["agent"], "policy_kwargs": {"net_arch": [8], "critic_width": 8}}
        text = yaml.safe_dump(mutated(values, draw))
        if draw.random() < 0.3:
            text = damaged(text.encode(), draw).decode("utf-8", "replace")
        (tmp_path / "mutated.yaml").write_text(text)
        codes.append(outcome(cli.train, ["mutated.yaml", "--folder", f"run{number}"], capsys))
    assert {0, 2} == set(codes)


def test_mutated_run_json(finished, tmp_path, capsys):
    draw = random.Random(2)
    original = json.loads((finished / "run.json").read_text())
    original["spec"]["steps"] = 400  # there is something left to do
    folder = tmp_path / "run"
    folder.mkdir()
    os.symlink(finished / "checkpoint", folder / "checkpoint")
    codes = []
    for _ in range(MUTATIONS["run.json"]):
        data = json.dumps(mutated(original, draw)).encode()
        if draw.random() < 0.3:
            data = damaged(data, draw)
        (folder / "run.json").write_bytes(data)
        codes.append(outcome(draw.choice([cli.resume, cli.resume, cli.show]), [str(folder)], capsys))
    assert {0, 2} == set(codes)


def test_mutated_policies(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tsac.runs.commands.evaluate_file", lambda *arguments: [Episode(0, 1.0, 1, None)])
    draw = random.Random(3)
    data = (finished / "policy.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    inner = json.loads(header["__metadata__"]["tsac"])
    path = tmp_path / "policy.safetensors"
    codes = []
    for _ in range(MUTATIONS["policy"]):
        if draw.random() < 0.4:
            path.write_bytes(damaged(data, draw))
        else:
            changed = copy.deepcopy(header)
            if draw.random() < 0.3:
                changed = mutated(changed, draw)
            else:
                changed["__metadata__"]["tsac"] = json.dumps(mutated(inner, draw))
            encoded = json.dumps(changed).encode()
            path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data[8 + length :])
        codes.append(outcome(cli.evaluate, [str(path), "--processes", "1"], capsys))
    assert {0, 2} == set(codes)


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize("verb", [cli.evaluate, cli.export])
@pytest.mark.parametrize("kind", ["pickle", "old pickle", "torch", "zip of SB3"])
def test_a_pickle_offered_as_a_policy_is_refused_unread(verb, kind, tmp_path, capsys, monkeypatch):
    import torch
    from stable_baselines3 import SAC

    monkeypatch.chdir(tmp_path)
    path = tmp_path / "policy.safetensors"
    if kind == "zip of SB3":
        SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [4]}, buffer_size=1).save(path)
        path = next(file for file in tmp_path.iterdir())
    elif kind == "torch":
        torch.save(Malicious(), path)
    else:
        path.write_bytes(pickle.dumps(Malicious(), protocol=0 if kind == "old pickle" else 4))
    words = [str(path)] if verb is cli.evaluate else [str(path), "out.onnx"]
    assert cli.run(verb, words) == 2
    said = capsys.readouterr().err
    assert "pickle" in said or "damaged or no safetensors file" in said
    assert not (tmp_path / "executed").exists()


def test_yaml_that_wants_to_execute_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.yaml").write_text("task: !!python/object/apply:os.mkdir [executed]\n")
    assert cli.run(cli.train, ["evil.yaml"]) == 2
    assert "no YAML" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()
