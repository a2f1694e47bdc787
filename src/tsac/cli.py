"""The command line: one function per verb."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tsac.runs.folder import RunFolder

EXIT_ERROR, EXIT_INPUT, EXIT_INTERRUPTED = 1, 2, 75


def train(words: list[str]) -> None:
    """train a run: tsac train PRESET --task TASK"""
    from tsac.runs import arguments
    from tsac.runs.folder import RunFolder

    asked = arguments.parse_train(words)
    folder = RunFolder(asked.folder)
    folder.create(asked.spec)
    _go_on(folder, asked.verbose, asked.wandb, asked.minutes)


def resume(words: list[str]) -> None:
    """go on with a run that was interrupted"""
    from tsac.runs.arguments import positive
    from tsac.runs.folder import RunFolder

    parser = _parser("resume", resume)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--verbose", action="store_true", help="SB3's tables instead of a progress line")
    parser.add_argument("--wandb", action="store_true", help="log to Weights & Biases, too")
    parser.add_argument("--minutes", type=positive, help="stop after that time, to go on later")
    asked = parser.parse_args(words)
    _go_on(RunFolder(asked.folder), asked.verbose, asked.wandb, asked.minutes)


def _go_on(folder: RunFolder, verbose: bool, wandb: bool, minutes: float | None) -> None:
    from tsac.runs.progress import Progress
    from tsac.runs.training import is_finished
    from tsac.runs.training import train as train_run

    spec = folder.read_spec()
    if is_finished(folder, spec):
        print(f"{folder.path} is finished; `tsac show {folder.path}` tells what came out.")
        return
    title = f"{spec.algorithm} on {spec.task}, seed {spec.seed}"
    progress = Progress(title, spec.steps, verbose)
    progress.tell(f"{title}: {spec.steps:,} steps in {folder.path}")
    result = train_run(folder, spec, progress, wandb, minutes)
    print(f"{folder.path} is finished: {result or 'no evaluation was asked for'}.")


def evaluate(words: list[str]) -> None:
    """evaluate the policy of a run or in a file"""
    from tsac.runs import commands

    parser = _parser("eval", evaluate)
    parser.add_argument("source", type=Path, help="folder of a run, or a policy file")
    parser.add_argument("--episodes", type=int, default=152)
    parser.add_argument("--best", action="store_true", help="the best policy of a run, not the last")
    parser.add_argument("--task", help="another task than the one it was trained on")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--csv", type=Path, help="file for one row per episode")
    parser.add_argument("--video", type=Path, metavar="CLIP.mp4", help="film of the first episode")
    asked = parser.parse_args(words)
    commands.evaluate(asked.source, asked.episodes, asked.best, asked.task, asked.processes, asked.csv, asked.video)


def show(words: list[str]) -> None:
    """what a run is, how far it has come and how well it does"""
    from tsac.runs import commands

    parser = _parser("show", show)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--curve", type=Path, metavar="CURVE.png", help="draw the learning curve into a file")
    asked = parser.parse_args(words)
    commands.show(asked.folder, asked.curve)


def compare(words: list[str]) -> None:
    """put the curves of several runs side by side"""
    from tsac.studies.comparison import compare as compare_runs

    parser = _parser("compare", compare)
    parser.add_argument("folders", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--output", type=Path, required=True, help="folder for their records, a figure and a table")
    asked = parser.parse_args(words)
    print(compare_runs(asked.folders, asked.output), end="")


def export(words: list[str]) -> None:
    """write the deterministic policy as ONNX"""
    from tsac.runs import commands

    parser = _parser("export", export)
    parser.add_argument("source", type=Path, help="folder of a run, or a policy file")
    parser.add_argument("output", type=Path, metavar="POLICY.onnx")
    parser.add_argument("--best", action="store_true", help="the best policy of a run, not the last")
    asked = parser.parse_args(words)
    commands.export(asked.source, asked.output, asked.best)


def tasks(words: list[str]) -> None:
    """list the tasks, by suite"""
    from tsac import lists

    _parser("tasks", tasks).parse_args(words)
    lists.tasks()


def presets(words: list[str]) -> None:
    """list the presets, or print what one says"""
    from tsac import lists

    parser = _parser("presets", presets)
    parser.add_argument("name", nargs="?")
    lists.presets(parser.parse_args(words).name)


def algorithms(words: list[str]) -> None:
    """list the algorithms"""
    from tsac import lists

    _parser("algorithms", algorithms).parse_args(words)
    lists.algorithms()


VERBS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "show": show,
    "compare": compare,
    "export": export,
    "tasks": tasks,
    "presets": presets,
    "algorithms": algorithms,
}


def _parser(verb: str, function: Callable[[list[str]], None]) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"tsac {verb}", description=function.__doc__, allow_abbrev=False)


def usage() -> str:
    width = max(map(len, VERBS))
    lines = [f"  tsac {verb:<{width}}  {function.__doc__}" for verb, function in VERBS.items()]
    return "\n".join(["Transformer-based Soft Actor-Critic.", "", *lines, "", "tsac VERB --help tells more."])


def main() -> None:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        sys.exit(0 if words else EXIT_INPUT)
    if words[0] == "--version":
        from tsac import __version__

        print(f"tsac {__version__}")
        return
    if words[0] not in VERBS:
        from tsac.near import nearest

        _fail(f"There is no verb {words[0]!r}.{nearest(words[0], VERBS)}", EXIT_INPUT)
    with warnings.catch_warnings():
        # Of libraries, to developers: nothing that a person at the command line could act on.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        sys.exit(run(VERBS[words[0]], words[1:]))


def run(verb: Callable[[list[str]], None], words: list[str]) -> int:
    """Call a verb; what goes wrong becomes a sentence and an exit code."""
    try:
        verb(words)
    except KeyboardInterrupt:
        return _told("Interrupted.", EXIT_INTERRUPTED)
    except BrokenPipeError:  # whoever read has stopped reading, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _told(*_explained(error))
    return 0


def _explained(error: Exception) -> tuple[str, int]:
    """A sentence and an exit code."""
    from gymnasium.error import DependencyNotInstalled

    from tsac.runs.chapters import ResumeError
    from tsac.runs.folder import FolderError
    from tsac.runs.training import Interrupted
    from tsac.tasks import WorkerDiedError

    if isinstance(error, Interrupted):
        return f"Interrupted, and nothing is lost: go on with `tsac resume {error}`.", EXIT_INTERRUPTED
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "The disk is full. The last checkpoint is whole: make room, then `tsac resume`.", EXIT_ERROR
    if isinstance(error, FolderError | ValueError | ImportError | FileNotFoundError | DependencyNotInstalled):
        return str(error), EXIT_INPUT
    if isinstance(error, OSError | WorkerDiedError | ResumeError | FloatingPointError):
        return str(error), EXIT_ERROR
    # Ours to mend: keep what is needed for that, without burying the sentence under it.
    with tempfile.NamedTemporaryFile("w", prefix="tsac-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    return f"An unexpected {type(error).__name__}: {error} (the whole story: {file.name})", EXIT_ERROR


def _told(message: str, code: int) -> int:
    print(f"tsac: {message}", file=sys.stderr)
    return code


def _fail(message: str, code: int) -> None:
    sys.exit(_told(message, code))


if __name__ == "__main__":
    main()
