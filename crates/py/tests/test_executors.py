"""Sweeps on executors of others: a real cluster of Dask, lost workers, tasks that nobody survives."""

import os
import pathlib
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import iowhy
import polars
import pytest
from packages import needed

GRID = {
    "job": "fio --name=r --rw=randread --bs=${bs} --size=256k --number_ios=8",
    "on": ["sim:linux-6.18", "sim:linux-4.4"],
    "disk": ["sata-2014", "nvme"],
    "options": {"bs": ["4k", "16k"]},
    "seeds": 50,
    "per_task": 20,
}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two workers, each a process. The scheduler gives up a task with its first worker, so that sweeps have to mend it."""
    dask, distributed = needed("dask", "distributed")
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
        with cluster, distributed.Client(cluster) as client:
            yield client


@pytest.fixture(scope="module")
def local() -> polars.DataFrame:
    return polars.DataFrame(iowhy.sweep(GRID))


def test_a_cluster_of_dask_makes_the_same(client: Any, local: polars.DataFrame) -> None:
    assert len(set(client.run(os.getpid).values()) - {os.getpid()}) == 2
    spread = polars.DataFrame(iowhy.sweep(GRID, executor=client.get_executor()))
    assert spread.height == 400 and spread["event_hash"].null_count() == 0
    assert spread.equals(local)


class Job:
    """As submitit has them: no future."""

    def __init__(self, future: "Future[Any]") -> None:
        self.done, self.result, self.cancel = future.done, future.result, future.cancel


class Jobs(ThreadPoolExecutor):
    def submit(self, work: Any, /, *words: Any) -> Any:  # type: ignore[override]
        return Job(super().submit(work, *words))


def test_jobs_that_are_no_futures_are_waited_for(local: polars.DataFrame) -> None:
    with Jobs(2) as executor:
        assert polars.DataFrame(iowhy.sweep(GRID, executor=executor)).equals(local)


def test_a_killed_worker_loses_nothing(client: Any, tmp_path: pathlib.Path) -> None:
    # Of a second or more, so that the worker dies amid a task.
    grid = {**GRID, "job": "dd if=big bs=${bs} count=20000", "seeds": 3, "per_task": 3}
    expected = polars.DataFrame(iowhy.sweep(grid))
    killed: list[int] = []

    def kill(done: int, of: int) -> None:
        if not killed:
            killed.append(min(client.run(os.getpid).values()))
            os.kill(killed[0], signal.SIGKILL)

    with pytest.warns(RuntimeWarning, match=r"task \d+: KilledWorker: .*; it is sent again"):
        swept = iowhy.sweep(grid, out=tmp_path / "swept", executor=client.get_executor(), progress=kill)
    assert killed and not swept.failed and swept.made == 8
    assert polars.DataFrame(swept).equals(expected)


def die() -> bytes:
    raise ConnectionError("the worker is gone")


class Deadly(ThreadPoolExecutor):
    """No worker survives these tasks."""

    def __init__(self, tasks: range) -> None:
        super().__init__(2)
        self.tasks = tasks
        self.sent: list[int] = []

    def submit(self, work: Any, plan: Any, task: Any, times: Any) -> "Future[Any]":  # type: ignore[override]
        self.sent.append(task)
        return super().submit(die) if task in self.tasks else super().submit(work, plan, task, times)


def test_points_of_a_deadly_task_are_named_and_the_rest_is_kept(local: polars.DataFrame, tmp_path: pathlib.Path) -> None:
    with Deadly(range(19, 20)) as executor, pytest.warns(RuntimeWarning, match="task 19: ConnectionError"):
        swept = iowhy.sweep(GRID, out=tmp_path / "swept", executor=executor)
    assert executor.sent.count(19) == 3
    assert [point["nr"] for point in swept.failed] == list(range(380, 400))
    assert all("ConnectionError: the worker is gone" in point["error"] for point in swept.failed)
    assert polars.DataFrame(swept)[:380].equals(local[:380])
    again = iowhy.sweep(GRID, out=tmp_path / "swept")
    assert again.made == 1 and polars.DataFrame(again).equals(local)


def test_a_mistake_that_is_not_of_one_task_ends_the_sweep() -> None:
    with Deadly(range(20)) as executor, pytest.warns(RuntimeWarning), pytest.raises(ConnectionError):
        iowhy.sweep(GRID, executor=executor)
    assert len(executor.sent) < 60


def test_mistakes_come_whole_from_another_process() -> None:
    import pickle

    with pytest.raises(iowhy.Error) as caught:
        iowhy.run("dd if=big", "sim:linux-6.81")
    copy = pickle.loads(pickle.dumps(caught.value))
    problem = copy.problems[0]
    assert str(copy) == str(caught.value) and problem.nearest == caught.value.problems[0].nearest != []
    assert (problem.severity, problem.span[0]) == ("error", "sim:linux-6.81")
