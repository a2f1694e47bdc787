"""The constructor arguments of an algorithm as data: a dataclass with checked types, made from its signature."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import Env
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecEnv

from tsac.baselines import find_algorithm
from tsac.near import nearest

# Decided by the run, or nothing that a line of YAML could say.
LEFT_OUT = ("policy", "env", "seed", "device", "verbose", "tensorboard_log", "optimize_memory_usage")
Schedule = tuple[float, float]  # linear, from the first value to the second at the end of the run
Mapping = dict[str, Any]
CALLABLE = typing.get_origin(Callable[[float], float])  # how SB3 annotates a schedule


class SpecError(ValueError):
    """A specification that cannot be run, in a sentence."""


@functools.cache
def settings_type(algorithm: str) -> type:
    """A dataclass with a field for every argument of the algorithm that can be written down."""
    entry = find_algorithm(algorithm)
    constructor = entry.load().__init__
    hints = typing.get_type_hints(constructor, localns={"VecEnv": VecEnv, "Env": Env})
    fields: list[tuple[str, Any, Any]] = []
    for name, parameter in list(inspect.signature(constructor).parameters.items())[1:]:
        if name in LEFT_OUT or name in entry.fixed or name.startswith("_"):
            continue
        if name == "policy_kwargs":
            fields.append((name, Mapping, dataclasses.field(default_factory=dict)))
            continue
        hint = int if name == "train_freq" else _written(hints[name])  # an iteration has a fixed number of steps
        if hint is not None:
            fields.append((name, hint, dataclasses.field(default=parameter.default)))
    return dataclasses.make_dataclass(f"{algorithm}Settings", fields, frozen=True, kw_only=True)


def _written(hint: Any) -> Any:
    """The type of what a person writes for an argument, None where nothing can be written."""
    parts = typing.get_args(hint) if _is_union(hint) else (hint,)
    written: list[Any] = []
    for part in parts:
        origin = typing.get_origin(part)
        if part is NormalActionNoise or part is ActionNoise:
            written.append(float)
        elif origin is CALLABLE:
            written.append(Schedule)
        elif part in (int, float, str, bool, types.NoneType) or origin in (tuple, Literal):
            written.append(part)
    if float in written and int in written:
        written.remove(int)
    if not [part for part in written if part is not types.NoneType]:
        return None
    return typing.Union[tuple(written)]  # noqa: UP007 - from a list


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


# ------------------------------------------------------------------------------------------ from a mapping, checked


def from_mapping(kind: type, values: Any, where: str = "") -> Any:
    """An instance of a dataclass from what YAML or JSON gave, or a ``SpecError``."""
    if not isinstance(values, dict):
        raise SpecError(f"{where or 'The specification'} must be a mapping of keys to values; got {_shown(values)}.")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints = typing.get_type_hints(kind)
    prefix = f"{where}." if where else ""
    for key in values:
        if key not in fields:
            raise SpecError(f"There is no setting {prefix}{key}.{nearest(str(key), fields)}")
    given = {key: checked(hints[key], value, prefix + key) for key, value in values.items()}
    for name, field in fields.items():
        if name not in given and field.default is field.default_factory is dataclasses.MISSING:
            raise SpecError(f"The setting {prefix}{name} is missing.")
    return kind(**given)


def checked(hint: Any, value: Any, where: str) -> Any:
    """The value as the type asks for it, or a ``SpecError``."""
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return value if isinstance(value, hint) else from_mapping(hint, value, where)
    for part in typing.get_args(hint) if _is_union(hint) else (hint,):
        try:
            return _of_type(part, value)
        except ValueError:
            continue
    raise SpecError(f"{where} must be {described(hint)}; got {_shown(value)}.")


def _of_type(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is Literal:
        if value in typing.get_args(hint) and not isinstance(value, bool):
            return value
    elif origin is tuple:
        parts = typing.get_args(hint)
        if isinstance(value, list | tuple) and len(value) == len(parts):
            return tuple(_of_type(part, item) for part, item in zip(parts, value, strict=True))
    elif origin is dict:
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return value
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf"):
            return float(value)
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
            return value
    elif hint is Any or isinstance(value, hint):
        return value
    raise ValueError


def described(hint: Any) -> str:
    if _is_union(hint):
        return " or ".join(described(part) for part in typing.get_args(hint))
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(repr(part) for part in parts)
    if origin is tuple:
        return f"a list of {len(parts)} numbers"
    if origin is dict:
        return "a mapping"
    words = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
        types.NoneType: "nothing (null)",
    }
    return words.get(hint, str(hint))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ------------------------------------------------------------------------------------------ to constructor arguments


def constructor_arguments(algorithm: str, settings: Any, action_dim: int) -> dict[str, Any]:
    """What to call the algorithm's class with."""
    entry = find_algorithm(algorithm)
    kind = entry.load()
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if field.name == "action_noise" and value is not None:
            value = NormalActionNoise(_filled(action_dim, 0.0), _filled(action_dim, value))
        elif isinstance(value, tuple) and Schedule in typing.get_args(field.type):
            value = LinearSchedule(value[0], value[1], end_fraction=1.0)
        elif field.name == "policy_kwargs":
            value = _policy_arguments(kind, value)
        arguments[field.name] = value
    return {**arguments, **entry.fixed}


def _filled(count: int, value: float) -> Any:
    return np.full(count, value)


def _policy_arguments(kind: type[BaseAlgorithm], written: dict[str, Any]) -> dict[str, Any]:
    signature = list(inspect.signature(kind.policy_aliases["MlpPolicy"].__init__).parameters)
    known = [name for name in signature if name not in ("self", "observation_space", "action_space", "lr_schedule")]
    arguments: dict[str, Any] = {}
    for name, value in written.items():
        if name not in known:
            raise SpecError(f"There is no setting agent.policy_kwargs.{name}.{nearest(name, known)}")
        if name == "activation_fn":
            value = _class(torch.nn, value, torch.nn.Module, f"agent.policy_kwargs.{name}")
        if name == "optimizer_class":
            value = _class(torch.optim, value, torch.optim.Optimizer, f"agent.policy_kwargs.{name}")
        arguments[name] = value
    return arguments


def _class(module: Any, name: Any, parent: type, where: str) -> type:
    found = getattr(module, name, None) if isinstance(name, str) else None
    if not (isinstance(found, type) and issubclass(found, parent)):
        names = [
            n for n in dir(module) if isinstance(getattr(module, n), type) and issubclass(getattr(module, n), parent)
        ]
        raise SpecError(f"{where}: torch has no {_shown(name)}.{nearest(str(name), names)}")
    return found
