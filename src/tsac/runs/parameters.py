"""How many numbers an agent learns, beside those that the paper's table of costs gives (Box-Pushing, dense)."""

from __future__ import annotations

from pathlib import Path

from tsac.agent import files

COPIES = ("critic_target", "actor_target")  # of networks that are counted already

# Algorithm: millions in the table, and why that of the preset box-pushing-dense is another, where it is.
PAPER: dict[str, tuple[float, str]] = {
    "tsac": (3.3, "3.2 of them the critics'; the rest fits an actor of 256, 256, the published one has 512 four times"),
    "sac": (0.2, "copies for targets left out"),
    "crossq": (10.0, "fits critics of 2048, 2048; the paper's own column for this task has 256, 256"),
}


def parameter_lines(path: Path, algorithm: str) -> list[str]:
    """Counts of the agent in a file, as lines to print."""
    parameters = files.read(path)["state"]["parameters"].get("policy", {})
    counts: dict[str, int] = {}
    for name, value in parameters.items():
        network = name.split(".")[0]
        counts[network] = counts.get(network, 0) + value.numel()
    learned = {name: count for name, count in counts.items() if name not in COPIES}
    copied = sum(counts.values()) - sum(learned.values())
    parts = ", ".join(f"{name} {count:,}" for name, count in learned.items())
    lines = [f"{sum(learned.values()):,} parameters: {parts}" + (f"; and copies, {copied:,}" if copied else "")]
    if algorithm in PAPER:
        millions, why = PAPER[algorithm]
        lines.append(f"The paper's {algorithm} for Box-Pushing has {millions} million ({why}).")
    return lines
