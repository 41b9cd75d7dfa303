"""What Python costs: calls, tables, sweeps. Needs the wheel, polars and distributed; prints a table for docs/BENCH.md.

python bench.py [--points 100000] [--events 10000000]
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Executor

import dask
import distributed
import iowhy
import polars

OPTIONS = {"bs": ["4k", "16k"], "rw": ["read", "randread"]}
DISKS = ["sata-2014", "nvme", "ide-2004", "ssd-sata-2011", "virtio"]


def resident() -> int:
    """Memory of this process, bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def took(work: Callable[[], object], times: int) -> float:
    """Median seconds."""
    seconds = []
    for _ in range(times):
        from_ = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - from_)
    return statistics.median(seconds)


def calls() -> None:
    # A run of one call: what the command line would do in the same process is inside.
    job = ["fio", "--name=r", "--size=4k", "--bs=4k", "--rw=read"]
    run = took(lambda: iowhy.run(job, "sim:linux-6.18"), 2000)
    point = {"on": ["sim:linux-6.18"], "job": " ".join(job), "seeds": 1000}
    inside = took(lambda: iowhy.sweep(point, threads=1), 5) / 1000
    print(f"| a run of one call of 4 KiB | {1e6 * run:.0f} us, {1e6 * inside:.0f} us of it in a sweep's loop |")
    runs = iowhy.run(job, "sim:linux-6.18")
    print(f"| a property of an answer | {1e6 * took(lambda: runs.event_hashes, 2000):.1f} us |")
    numbers = [1.0, 2.0, 3.0, 4.0]
    print(f"| a comparison of 4 and 4 numbers, 1 draw | {1e6 * took(lambda: iowhy.compare(numbers, numbers, draws=1), 500):.0f} us |")


def tables(events: int) -> None:
    each = iowhy.run("dd if=big bs=64k count=1000", "sim:linux-6.18", "nvme")
    per_call = len(each.events()) / 1000
    runs = iowhy.run(f"dd if=big bs=64k count={int(events / per_call)}", "sim:linux-6.18", "nvme")
    table = runs.events()
    before, from_ = resident(), time.perf_counter()
    frame = polars.DataFrame(table)
    seconds, grown = time.perf_counter() - from_, resident() - before
    print(f"| {len(table):,} events to polars | {seconds:.3f} s, {100 * grown / table.nbytes:+.1f} % of {table.nbytes / 1e9:.2f} GB |")
    assert frame.height == len(table)


def sweeps(points: int) -> None:
    kernels = [f"sim:{name}" for name in iowhy.kernels()[-8:]]
    seeds = points // (len(kernels) * len(DISKS) * 4)
    grid = {
        "job": "fio --name=r --rw=${rw} --bs=${bs} --size=1m --number_ios=16",
        "on": kernels,
        "disk": DISKS,
        "options": OPTIONS,
        "seeds": seeds,
    }

    def swept(executor: Executor | None) -> tuple[float, polars.DataFrame]:
        from_ = time.perf_counter()
        rows = polars.DataFrame(iowhy.sweep(grid, executor=executor))
        return time.perf_counter() - from_, rows

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
        with cluster, distributed.Client(cluster) as client:
            local, rows = swept(None)
            dask_took, others = swept(client.get_executor())
    same = rows["event_hash"].equals(others["event_hash"])
    print(f"| {rows.height:,} configurations, local pool | {local:.0f} s |")
    print(f"| the same, two workers of Dask | {dask_took:.0f} s, {100 * (dask_took / local - 1):+.0f} %, hashes {'equal' if same else 'DIFFER'} |")


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--points", type=int, default=100_000)
    words.add_argument("--events", type=int, default=10_000_000)
    asked = words.parse_args()
    print("| what | |\n| --- | --- |")
    calls()
    tables(asked.events)
    sweeps(asked.points)


if __name__ == "__main__":
    main()
