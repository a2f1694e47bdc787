"""Checkpoints: whole or not there, checked when they are read, as cheap with a full replay buffer as with an empty one.

A checkpoint is a small JSON file, a *manifest*, that names other files with their checksums: one with the state of the
agent, and the parts of the replay buffer, each written once, when its experience was new. The manifest is renamed into
place last. Two checkpoints are kept; what none of them names is deleted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tsac.agent import files

KEPT = 2
OURS = re.compile(r"\.?(\d+\.json|(state|replay)-[\d-]+\.safetensors)(\.\d+)?")


@dataclass(frozen=True)
class Part:
    """A file with a piece of the replay buffer."""

    file: str
    sha256: str
    written: int  # places of the buffer written when this piece was complete, counted as ``replay.written`` does


@dataclass(frozen=True)
class Manifest:
    step: int
    state: str
    sha256: str
    parts: list[Part]


@dataclass(frozen=True)
class Checkpoint:
    manifest: Manifest
    state: dict[str, Any]
    parts: list[dict[str, Any]]


def write(
    folder: Path, step: int, state: dict[str, Any], previous: Manifest | None, pieces: list[dict[str, Any]],
    written: int, capacity: int,
) -> Manifest:  # fmt: skip
    """
    :param previous: the checkpoint whose parts of the replay buffer still count
    :param pieces: what the buffer has taken up since
    :param written: places of the buffer written so far
    :param capacity: places that the buffer has
    """
    parts = [part for part in (previous.parts if previous else []) if part.written > written - capacity]
    for number, piece in enumerate(pieces):
        name = f"replay-{step:012d}-{number}.safetensors"
        parts.append(Part(name, _write(folder / name, piece), written))
    name = f"state-{step:012d}.safetensors"
    manifest = Manifest(step, name, _write(folder / name, state), parts)
    files.write_bytes(folder / f"{step:012d}.json", json.dumps(asdict(manifest)).encode())
    _clean(folder)
    return manifest


def _write(path: Path, content: dict[str, Any]) -> str:
    data = files.encode(content)
    files.write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def read_latest(folder: Path, tell: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; None where none was written.

    :param tell: is told of those that are not
    """
    manifests = _manifests(folder)
    for path in manifests:
        try:
            return _read(folder, path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            tell(f"The checkpoint {path.name} is damaged ({files.reason(error)}); trying the one before.")
    if manifests:
        raise files.FileError(f"No checkpoint in {folder} is whole, so the run cannot go on.")
    return None


def latest_step(folder: Path) -> int | None:
    """Without looking into the files."""
    manifests = _manifests(folder)
    return int(manifests[0].stem) if manifests else None


def _manifests(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted((path for path in folder.glob("*.json") if path.stem.isdigit()), reverse=True)


def _read_manifest(path: Path) -> Manifest:
    values = json.loads(path.read_text("utf-8"))
    manifest = Manifest(**{**values, "parts": [Part(**part) for part in values["parts"]]})
    if any(Path(name).name != name for name in [manifest.state, *(part.file for part in manifest.parts)]):
        raise ValueError("it names files outside its folder")
    return manifest


def _read(folder: Path, path: Path) -> Checkpoint:
    manifest = _read_manifest(path)
    state = _read_checked(folder / manifest.state, manifest.sha256)
    return Checkpoint(manifest, state, [_read_checked(folder / part.file, part.sha256) for part in manifest.parts])


def _read_checked(path: Path, sha256: str) -> dict[str, Any]:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read())
    if found.hexdigest() != sha256:
        raise ValueError(f"{path.name} is not as it was written")
    return files.read(path)


def _clean(folder: Path) -> None:
    kept = set()
    for path in _manifests(folder)[:KEPT]:
        try:
            manifest = _read_manifest(path)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # damaged by somebody else: it names nothing
        kept |= {path.name, manifest.state, *(part.file for part in manifest.parts)}
    for path in folder.iterdir():
        if path.name not in kept and OURS.fullmatch(path.name):
            path.unlink()
