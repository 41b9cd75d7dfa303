"""Sweeps over any executor of `concurrent.futures`, or submitit's: tasks of a thousand points, a text and a number each.

A task that fails with its worker (killed, lost) is named in a warning and sent again, twice; then its points are without
a result, and the others go on. Results are the bytes of Parquet files, so that workers need no common folder.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from . import _native
from ._native import Swept

_AGAIN = 2
_AHEAD = 64


class Submits(Protocol):
    """An executor: `submit` yields a future, or a job with `done`, `result` and `cancel`."""

    def submit(self, fn: Any, /, *args: Any) -> Any: ...


def _ended(running: Iterable[Any]) -> Iterable[Any]:
    """Tasks that have ended, after half a second at most. Jobs that are no futures, as submitit's, are asked each."""
    jobs = list(running)
    if all(isinstance(job, Future) for job in jobs):
        return wait(jobs, timeout=0.5, return_when=FIRST_COMPLETED).done
    time.sleep(0.1)
    return [job for job in jobs if job.done()]


def _work(plan: str, task: int, times: int) -> bytes:
    # Without `times` a task that is sent again would be an equal call, which Dask answers with the first failure.
    del times
    return _native.sweep_task(plan, task)


def sweep(
    grid: Mapping[str, Any] | str | PathLike[str] | Iterable[Mapping[str, Any]],
    *,
    job: str | list[str] | None = None,
    metrics: list[str] | None = None,
    out: str | PathLike[str] | None = None,
    executor: Submits | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Swept:
    """Simulates a job at every point of a grid, or at the points that a sampler yields.

    `grid` is a mapping with the keys of `iowhy sweep`'s TOML, the path of such a file, or an iterable of points
    (`{"on": ..., "disk": ..., "options": {...}, "seed": ...}`), for which `job` is needed. With `out`, results are kept
    as Parquet files there, and a second call makes what is missing. `executor` is any of `concurrent.futures`, or one of
    submitit; without one, `threads` threads of this process work.
    """
    points: str | None = None
    if isinstance(grid, (str, PathLike)):
        plan = _native.sweep_plan_of_file(grid)
    else:
        if isinstance(grid, Mapping):
            words = dict(grid)
        else:
            points = json.dumps([dict(point) for point in grid])
            words = {"job": job, "on": []}
        if metrics is not None:
            words["metrics"] = metrics
        plan = _native.sweep_plan(json.dumps(words), points)
    folder = None if out is None else Path(out)
    if executor is None:
        return _native.sweep_local(plan, folder, threads or 0, progress)
    return _spread(plan, folder, executor, progress)


def _spread(
    plan: str, folder: Path | None, executor: Submits, progress: Callable[[int, int], object] | None
) -> Swept:
    wanted = _native.sweep_wanted(plan, folder)
    made: list[bytes] = []
    waiting = iter(wanted)
    running: dict[Any, tuple[int, int]] = {}
    ended = lost = 0

    def send(task: int, times: int) -> None:
        running[executor.submit(_work, plan, task, times)] = (task, times)

    try:
        for task in wanted[:_AHEAD]:
            send(next(waiting), 0)
        while running:
            for future in _ended(running):
                task, times = running.pop(future)
                try:
                    result = future.result()
                except _native.Error:
                    raise
                except Exception as error:
                    why = f"task {task}: {type(error).__name__}: {error}"
                    if times < _AGAIN:
                        warnings.warn(f"{why}; it is sent again", RuntimeWarning, stacklevel=3)
                        send(task, times + 1)
                        continue
                    if ended == lost:
                        # Nothing has worked so far: the mistake is not that of one task.
                        raise
                    lost += 1
                    result = _native.sweep_lost(plan, task, why)
                if folder is None:
                    made.append(result)
                else:
                    _native.sweep_keep(plan, folder, task, result)
                ended += 1
                if progress is not None:
                    progress(ended, len(wanted))
                following = next(waiting, None)
                if following is not None:
                    send(following, 0)
    finally:
        for future in running:
            future.cancel()
    return _native.sweep_gather(plan, folder, made, len(wanted))
