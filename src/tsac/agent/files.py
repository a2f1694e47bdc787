"""Files that can be trusted: arrays as safetensors, everything else as JSON in the header. Loading executes nothing.

``write`` takes any nesting of dictionaries, lists, tuples, numbers, texts, arrays, tensors, spaces and linear
schedules; ``read`` gives it back.
"""

from __future__ import annotations

import json
import math
import os
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule
from torch import Tensor, nn

SUFFIX = ".safetensors"
HEADER = "tsac"


class FileError(ValueError):
    """A file that cannot be read, in a sentence."""


class NotStorableError(TypeError):
    """A value that only code could bring back."""


def reason(error: BaseException) -> str:
    """What a library says, in one line that a person reads to its end."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, KeyError):
        text = f"{text} is missing"
    return text if len(text) <= 300 else text[:297] + "..."


def write(path: str | Path, content: dict[str, Any]) -> None:
    write_bytes(path, encode(content))


def encode(content: dict[str, Any]) -> bytes:
    """The bytes of a file."""
    tensors: dict[str, Tensor] = {}
    header = json.dumps(_pack(content, "", tensors))
    return bytes(save(tensors, metadata={HEADER: header}))


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write in one piece: the file is there whole, on the disk, or not at all."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)  # the new name, too, has to reach the disk
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    path = Path(path)
    _refuse_others(path)
    try:
        with safe_open(str(path), framework="pt", device=str(device)) as file:
            header = (file.metadata() or {}).get(HEADER)
            # Copies, since a file's memory is aligned otherwise, and products then round otherwise: a resumed run would
            # not be the uninterrupted one.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dictionary
    except (SafetensorError, RuntimeError, OSError, ValueError) as error:
        raise FileError(f"{path} is damaged or no safetensors file: {reason(error)}") from error
    if header is None:
        raise FileError(f"{path} is a safetensors file of something else: it lacks the header {HEADER!r}.")
    try:
        content = _unpack(json.loads(header), tensors)
    except FileError:
        raise
    except Exception as error:  # whatever a header may hold that we have not written
        raise FileError(f"{path} has a header that cannot be understood: {reason(error)}") from error
    if not isinstance(content, dict):
        raise FileError(f"{path} has a header that cannot be understood.")
    return content


def find(path: str | Path) -> Path:
    """The file that is meant, with or without its ending."""
    path = Path(path)
    for candidate in (path, path.with_name(path.name + SUFFIX), path.with_name(path.name + ".zip")):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"There is no file {path}, with or without the ending {SUFFIX}.")


def _refuse_others(path: Path) -> None:
    with path.open("rb") as file:
        first = file.read(9)
    if first[:2] == b"PK":
        raise FileError(
            f"{path} is a zip file, as Stable-Baselines3 and torch.save write them: it may contain pickles, whose "
            "loading can execute code, so it is refused unread."
        )
    if first[:1] == b"\x80" and first[8:] != b"{":
        raise FileError(f"{path} is a pickle, whose loading can execute code, so it is refused unread.")


# ------------------------------------------------------------------------------------------ values as JSON and tensors


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    def inner(values: Any) -> list[Any]:
        return [_pack(item, f"{name}/{number}", tensors) for number, item in enumerate(values)]

    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {"$tensor": name}
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise NotStorableError(f"{name}: an array of {value.dtype} cannot be stored")
        tensors[name] = torch.from_numpy(np.array(value, copy=True))
        return {"$array": name}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _pack(item, f"{name}/{key}".lstrip("/"), tensors) for key, item in value.items()}
        return {"$items": [[key, _pack(item, f"{name}/{key}", tensors)] for key, item in value.items()]}
    if isinstance(value, deque):
        return {"$deque": inner(value), "maxlen": value.maxlen}
    if isinstance(value, tuple):
        return {"$tuple": inner(value)}
    if isinstance(value, list):
        return inner(value)
    if isinstance(value, spaces.Space):
        return {"$space": type(value).__name__, "with": _pack(_space_arguments(value), name, tensors)}
    if isinstance(value, FloatSchedule):
        return _pack(value.value_schedule, name, tensors)
    if isinstance(value, ConstantSchedule):
        return _pack(value.val, name, tensors)
    if isinstance(value, LinearSchedule):
        return {"$linear": [value.start, value.end, value.end_fraction]}
    if isinstance(value, type) and value.__module__.startswith("torch.nn.") and hasattr(nn, value.__name__):
        return {"$nn": value.__name__}
    if isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and hasattr(torch.optim, value.__name__):
        return {"$optim": value.__name__}
    raise NotStorableError(f"{name or 'value'}: {value!r} cannot be stored in a file that executes nothing")


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    kind = next((key for key in value if key.startswith("$")), None)
    if kind is None:
        return {key: _unpack(item, tensors) for key, item in value.items()}
    content = value[kind]
    if kind == "$float":
        return float(content)
    if kind == "$tensor":
        return tensors[content]
    if kind == "$array":
        return tensors[content].cpu().numpy()
    if kind == "$items":
        return {key: _unpack(item, tensors) for key, item in content}
    if kind == "$deque":
        return deque(_unpack(content, tensors), maxlen=value["maxlen"])
    if kind == "$tuple":
        return tuple(_unpack(content, tensors))
    if kind == "$linear":
        return LinearSchedule(*(float(number) for number in content))
    if kind == "$space":
        return _space(content, _unpack(value["with"], tensors))
    if kind == "$nn":
        return _class(nn, content, nn.Module)
    if kind == "$optim":
        return _class(torch.optim, content, torch.optim.Optimizer)
    raise FileError(f"unknown kind of value {kind!r}")


def _class(module: Any, name: str, parent: type) -> type:
    found = getattr(module, name, None)
    if not (isinstance(found, type) and issubclass(found, parent)):
        raise FileError(f"{name!r} is no {parent.__name__}")
    return found


def _space_arguments(space: spaces.Space[Any]) -> dict[str, Any]:
    if isinstance(space, spaces.Box):
        return {"low": space.low, "high": space.high, "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        return {"n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"nvec": space.nvec}
    if isinstance(space, spaces.MultiBinary):
        return {"n": space.n if isinstance(space.n, int) else list(space.n)}
    if isinstance(space, spaces.Dict):
        return {"spaces": dict(space.spaces)}
    raise NotStorableError(f"the space {space} cannot be stored")


def _space(kind: str, arguments: dict[str, Any]) -> spaces.Space[Any]:
    if kind == "Box":
        return spaces.Box(arguments["low"], arguments["high"], dtype=np.dtype(arguments["dtype"]).type)
    kinds: dict[str, Any] = {
        "Discrete": spaces.Discrete,
        "MultiDiscrete": spaces.MultiDiscrete,
        "MultiBinary": spaces.MultiBinary,
        "Dict": spaces.Dict,
    }
    space: spaces.Space[Any] = kinds[kind](**arguments)
    return space
