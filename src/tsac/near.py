"""What to say to who has mistyped a word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """`` Did you mean ...?``, or what there is, where nothing is near."""
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" There {'is' if len(known) == 1 else 'are'} {', '.join(known)}." if 0 < len(known) <= 20 else ""
