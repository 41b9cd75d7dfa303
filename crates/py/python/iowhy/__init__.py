"""Tells why storage I/O got slower: run, compare, explain, sweep.

Functions have the names of the command's verbs, take the same words, and raise `Error` with the same messages.
"""

from ._native import (
    Answer,
    Batch,
    Error,
    Problem,
    Runs,
    Store,
    Swept,
    Table,
    Trace,
    Waiting,
    __version__,
    bisect,
    compare,
    explain,
    incident,
    incidents,
    models,
    run,
    why,
)
from ._sweep import sweep

__all__ = [
    "Answer",
    "Batch",
    "Error",
    "Problem",
    "Runs",
    "Store",
    "Swept",
    "Table",
    "Trace",
    "Waiting",
    "__version__",
    "bar",
    "bisect",
    "compare",
    "disks",
    "elevators",
    "engines",
    "explain",
    "incident",
    "incidents",
    "kernels",
    "models",
    "rules",
    "run",
    "sweep",
    "why",
]


def _names(kind: str) -> tuple[str, ...]:
    return tuple(str(model["name"]) for model in models(kind))


def kernels() -> tuple[str, ...]:
    """Names of the kernels, as behind `on="sim:"`."""
    return _names("kernel")


def disks() -> tuple[str, ...]:
    """Names of the modelled devices, as `disk=` takes them."""
    return _names("device")


def elevators() -> tuple[str, ...]:
    """Names of the elevators, as behind `elevator=`."""
    return _names("elevator")


def rules() -> tuple[str, ...]:
    """Names of the rules that explanations ask."""
    return _names("rule")


def engines() -> tuple[str, ...]:
    """Names of the engines of jobs on the running kernel."""
    return _names("engine")


class bar:
    """Makes `progress=` of a bar of tqdm: `iowhy.run(..., progress=iowhy.bar(tqdm()))`."""

    def __init__(self, tqdm: object) -> None:
        self._bar: object = tqdm

    def __call__(self, done: int, of: int) -> None:
        shown = self._bar
        setattr(shown, "total", of or None)
        setattr(shown, "n", done)
        getattr(shown, "refresh")()
