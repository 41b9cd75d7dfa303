"""The module against the command line's contracts: values, errors, Arrow, progress, Ctrl-C."""

import importlib.util
import json
import os
import pathlib
import signal
import threading
import time
from typing import Any

import iowhy
import polars
import pyarrow
import pytest

ROOT = pathlib.Path(__file__).parents[3]
JOB = "fio --name=r --rw=randread --bs=4k --size=1m --number_ios=64"


def test_a_job_may_be_a_path_its_text_a_line_or_words() -> None:
    path = ROOT / "jobs" / "direct-writers-2.fio"
    ways = [path, str(path), path.read_text(), [str(path)]]
    hashes = {iowhy.run(job, "sim:linux-4.4").event_hashes[0] for job in ways}
    assert len(hashes) == 1 and None not in hashes
    assert iowhy.run(JOB, "sim:linux-4.4").event_hashes == iowhy.run(JOB.split(), "sim:linux-4.4").event_hashes


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: iowhy.run(JOB, "sim:linux-6.81"), ["unknown kernel `linux-6.81`", "nearest: linux-6.1"]),
        (lambda: iowhy.run(JOB, "sim:linux-6.18,elevator=cfk", "florpy"), ["cfk", "florpy"]),
        (lambda: iowhy.run("[j]\nrw=randraed\n", "sim:linux-6.18"), ["job.fio:2:", "randraed"]),
        (lambda: iowhy.models("kernle"), ["unknown kind `kernle`", "nearest: kernel"]),
        (lambda: iowhy.incident("2004-randm"), ["nearest: 2004-random-read-split"]),
        (lambda: iowhy.compare([1.0] * 9), ["a base and a candidate"]),
        (lambda: iowhy.bisect("sim:linux-6.18", "sim:x", JOB), ["unknown kernel"]),
        (lambda: iowhy.explain("sim:linux-6.18", "sim:linux-4.4", job="[j]\nrw=read\n"), ["not its text"]),
        (lambda: iowhy.why("/nowhere/at-all"), ["cannot read the trace"]),
        (lambda: iowhy.sweep({"job": JOB, "on": "sim:linux-6.81", "disk": ["nvmee"]}), ["linux-6.81", "nvmee"]),
    ],
)
def test_mistakes_have_the_words_of_the_command_line(call: object, words: list[str]) -> None:
    with pytest.raises(iowhy.Error) as caught:
        call()  # type: ignore[operator]
    for word in words:
        assert word in str(caught.value)
    assert caught.value.problems[0].severity == "error" and caught.value.problems[0].message in str(caught.value)


def test_rows_and_events_are_arrow() -> None:
    runs = iowhy.run(JOB, ["sim:linux-6.18", "sim:linux-4.4"], "sata-2014", repeat=3, seed=5)
    rows = pyarrow.table(runs.rows)
    assert rows.num_rows == len(runs) == 6 and sorted(set(rows["seed"].to_pylist())) == [5, 6, 7]
    assert rows["event_hash"].to_pylist() == runs.event_hashes
    assert polars.DataFrame(runs)["elapsed_s"].to_list() == [runs.metrics(nr)["elapsed_s"] for nr in range(6)]
    events = runs.events(0)
    assert pyarrow.table(events).equals(polars.DataFrame(events).to_arrow().cast(pyarrow.table(events).schema))
    assert len(events) == runs.data["runs"][0]["events"]
    assert pyarrow.record_batch(runs.rows.batches[0]).schema.names == runs.rows.column_names
    assert len(polars.DataFrame(iowhy.run("dd if=big bs=4k count=30000", "sim:linux-4.4", "nvme").events())) > 1 << 16
    with pytest.raises(IndexError):
        runs.events(6)


def test_verdicts_are_those_of_the_verbs() -> None:
    slow, fast = "sim:linux-6.18,read_ahead_kb=16", "sim:linux-6.18"
    job = "paralleldd size=4m readers=3 files=multi bs=64k"
    runs = iowhy.run(job, [fast, slow], "sata-2014", repeat=5)
    answer = iowhy.compare(runs, metrics=["elapsed_s"])
    assert answer.verdict == answer["verdict"] == "regression" and "regression" in answer._repr_html_()
    assert iowhy.compare([1.0, 1.1, 0.9] * 5, [1.0, 1.1, 0.9] * 5, metrics=["p99_ns"]).verdict in ("same", "inconclusive")
    why = iowhy.explain(fast, slow, job=job, disk="sata-2014", runs=2)
    assert why.verdict == "regression" and why["findings"]
    found = iowhy.bisect(fast, slow, job, disk="sata-2014")
    assert found.verdict == "found" and "read_ahead_kb" in found.text


def test_tables_are_those_of_the_models() -> None:
    assert "linux-6.18" in iowhy.kernels() and "sata-2014" in iowhy.disks() and "kyber" in iowhy.elevators()
    assert iowhy.rules() and iowhy.engines()
    assert iowhy.models("kernel", "linux-6.18")[0]["origin"]


def test_a_store_keeps_runs(tmp_path: pathlib.Path) -> None:
    store = iowhy.Store(tmp_path / "store")
    for seed, label in ((1, "base"), (9, "new")):
        iowhy.run(JOB, "sim:linux-6.18", repeat=3, seed=seed, label=label, store=store.path)
    assert len(store) == 6 and store.tag("base", "good") == 3
    assert {run["label"] for run in store.runs("good")} == {"base"}
    assert polars.DataFrame(store).filter(polars.col("metric") == "elapsed_s").height == 6
    assert iowhy.compare("base", "new", store=store.path)["metrics"]


def test_a_trace_is_read_and_explained(tmp_path: pathlib.Path) -> None:
    lines = [
        f"  8,0    0 {3 * nr + at:8} {nr / 1000 + at / 10000:14.9f}  100  {kind}   R {8 * nr} + 8 [dd]"
        for nr in range(20)
        for at, kind in enumerate("QDC")
    ]
    (tmp_path / "dd.txt").write_text("\n".join(lines) + "\n")
    trace = iowhy.Trace(tmp_path / "dd.txt")
    assert len(trace) == len(trace.rows()) == polars.DataFrame(trace).height > 0
    assert trace.stat()["schema"] == "iowhy.trace/1" and iowhy.why(trace).text


def test_progress_is_told_and_may_stop_the_work() -> None:
    told: list[tuple[int, int]] = []
    iowhy.run(JOB, "sim:linux-6.18", repeat=4, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (4, 4)

    def stop(done: int, of: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError):
        iowhy.run(JOB, "sim:linux-6.18", repeat=400, progress=stop)


def test_control_c_stops_a_long_run_and_other_threads_go_on() -> None:
    ticks = 0
    ended = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not ended.is_set():
            ticks += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    # Jobs of a shell in the background ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            iowhy.run("dd if=big bs=4k count=200000", "sim:linux-6.18", repeat=1000)
    finally:
        ended.set()
        other.join()
        signal.signal(signal.SIGINT, before)
    assert ticks > 20


class Twice:
    """Reads twice what is asked for."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def miss(self, page: int, requested: int, file_pages: int) -> tuple[int, int]:
        return page, min(2 * requested, self.limit)

    def marker(self, page: int, requested: int, file_pages: int) -> None:
        return None


def test_a_policy_of_python_decides_what_is_read() -> None:
    job = "dd if=big bs=4k count=256"
    place = "sim:linux-4.4"
    mine = iowhy.run(job, place, "sata-2014", readahead=Twice)
    none = iowhy.run(job, place + ",readahead=off", "sata-2014")
    assert mine.event_hashes == iowhy.run(job, place, "sata-2014", readahead=Twice).event_hashes
    assert mine.metrics()["elapsed_s"] < none.metrics()["elapsed_s"]
    windows = polars.DataFrame(mine.events()).filter(polars.col("kind") == "window")
    assert windows.height == 128 and windows["count"].unique().to_list() == [2]
    with pytest.raises(AttributeError):
        iowhy.run(job, place, readahead=lambda limit: object())


def test_a_fork_has_threads_of_its_own() -> None:
    expected = iowhy.run(JOB, "sim:linux-4.4").event_hashes
    child = os.fork()
    if child == 0:
        os._exit(0 if iowhy.run(JOB, "sim:linux-4.4").event_hashes == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


class Sweeping:
    """The nearest request in front of the head; `waits` lets the device wait before each, once."""

    waits = False

    def __init__(self) -> None:
        self.asked: set[int] = set()

    def next(self, waiting: list[iowhy.Waiting], head: int, now: int) -> int | None:
        assert all(one.arrived <= now and one.sectors == 8 and not one.write for one in waiting)
        if self.waits and head not in self.asked:
            self.asked.add(head)
            return None
        return min(range(len(waiting)), key=lambda at: (waiting[at].sector < head, waiting[at].sector))


class Patient(Sweeping):
    waits = True


def test_an_elevator_of_python_decides_what_goes_next() -> None:
    job = "fio --name=r --rw=randread --bs=4k --size=100g --number_ios=200 --ioengine=libaio --iodepth=16 --direct=1"
    # A drive without a queue of its own.
    disk = "sata-2014,queue_depth=1"
    for kernel in ("sim:linux-6.18,nr_requests=64", "sim:linux-4.4"):
        sweeping = iowhy.run(job, kernel, disk, elevator=Sweeping)
        first, sorted_by_kernel = (iowhy.run(job, f"{kernel},elevator={of}", disk) for of in ("noop", "deadline"))
        seconds = [runs.metrics()["elapsed_s"] for runs in (sweeping, first, sorted_by_kernel)]
        assert seconds[0] < 0.85 * seconds[1] and abs(seconds[0] / seconds[2] - 1) < 0.1
        assert sweeping.event_hashes == iowhy.run(job, kernel, disk, elevator=Sweeping).event_hashes
        # After a millisecond, or with the next request, it is asked again: no longer, and of more requests.
        patient = iowhy.run(job, kernel, disk, elevator=Patient).metrics()["elapsed_s"]
        assert patient != seconds[0] and abs(patient / seconds[0] - 1) < 0.2
    with pytest.raises(IndexError, match="next: 99, but 1 requests wait"):
        iowhy.run("dd if=big bs=4k count=9", "sim:linux-6.18", elevator=Outside)


class Outside:
    def next(self, waiting: list[iowhy.Waiting], head: int, now: int) -> int:
        return 99


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"crates/py/examples/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example("first_steps").main()
    assert "regression" in capsys.readouterr().out


def test_a_regression_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    search = example("regressions")
    monkeypatch.setattr(search, "KERNELS", ["sim:linux-6.18", "sim:linux-6.18,read_ahead_kb=0"])
    ratio, disk, options = search.main(jobs=12)[0]
    assert ratio > 2 and options["rw"] == "read" and options["direct"] == "0"
    assert {name for name, value in options.items() if value != search.CHOICES[name][0]} <= {"direct", "bs", "size", "jobs"}


GRID = {
    "job": "fio --name=r --rw=randread --bs=${bs} --size=256k --number_ios=8",
    "on": ["sim:linux-6.18", "sim:linux-4.4"],
    "disk": ["sata-2014", "nvme"],
    "options": {"bs": ["4k", "16k"]},
    "seeds": 5,
    "per_task": 6,
}


def test_a_sweep_is_the_same_on_every_executor(tmp_path: pathlib.Path) -> None:
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    from multiprocessing import get_context

    local = polars.DataFrame(iowhy.sweep(GRID))
    assert local.height == 40 and local["event_hash"].null_count() == 0
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(2, get_context("spawn")) as processes:
        for executor, out in ((threads, None), (processes, tmp_path / "swept")):
            assert polars.DataFrame(iowhy.sweep(GRID, executor=executor, out=out)).equals(local)
    for file in sorted((tmp_path / "swept").glob("task-*.parquet"))[:3]:
        file.unlink()
    again = iowhy.sweep(GRID, out=tmp_path / "swept")
    assert again.made == 3 and polars.DataFrame(again).equals(local)
    points = [{"on": "sim:linux-6.18", "disk": "nvme", "options": {"bs": "4k"}, "seed": seed} for seed in (7, 8)]
    drawn = iowhy.sweep(points, job=GRID["job"])
    assert len(drawn) == 2 and not drawn.failed
    assert json.loads(drawn.plan)["points"][1]["seed"] == 8
