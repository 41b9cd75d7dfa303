from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Protocol, final

__version__: str

_Path = str | PathLike[str]
_Job = _Path | Sequence[str]
_Progress = Callable[[int, int], object]
_Capsule = object

class Error(Exception):
    """Why something could not be done; str() has the words of the command line."""

    problems: list[Problem]

class Readahead(Protocol):
    """Read-ahead written in Python: answers are a first page and a number of pages, and the page to be marked."""

    def miss(self, page: int, requested: int, file_pages: int) -> tuple[int, int] | tuple[int, int, int] | None: ...
    def marker(self, page: int, requested: int, file_pages: int) -> tuple[int, int] | tuple[int, int, int] | None: ...

@final
class Waiting:
    """A waiting request."""

    @property
    def sector(self) -> int: ...
    @property
    def sectors(self) -> int: ...
    @property
    def write(self) -> bool: ...
    @property
    def sync(self) -> bool: ...
    @property
    def task(self) -> int: ...
    @property
    def arrived(self) -> int: ...

class Elevator(Protocol):
    """An elevator written in Python.

    `waiting` has the requests in the order in which they came (times in ns, sectors of 512 bytes), `head` is the sector
    behind the last one that left. The answer is a place in `waiting`, or None: let the device wait, a millisecond at most.
    """

    def next(self, waiting: list[Waiting], head: int, now: int) -> int | None: ...

@final
class Problem:
    """One mistake or warning."""

    def __new__(
        cls,
        severity: str,
        message: str,
        span: tuple[str, int, int] | None,
        nearest: list[str],
        help: str | None,
    ) -> Problem: ...
    @property
    def severity(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def span(self) -> tuple[str, int, int] | None: ...
    @property
    def nearest(self) -> list[str]: ...
    @property
    def help(self) -> str | None: ...

@final
class Table:
    """Rows and columns that pandas, polars, pyarrow and DuckDB take without a copy."""

    @property
    def column_names(self) -> list[str]: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> _Capsule: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> _Capsule: ...
    @property
    def batches(self) -> list[Batch]: ...

@final
class Batch:
    """A part of a table: one array of Arrow."""

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> _Capsule: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[_Capsule, _Capsule]: ...

@final
class Runs:
    """Runs of a job at one place or several."""

    @property
    def data(self) -> dict[str, Any]: ...
    @property
    def text(self) -> str: ...
    @property
    def labels(self) -> list[str]: ...
    @property
    def warnings(self) -> list[Problem]: ...
    @property
    def event_hashes(self) -> list[str | None]: ...
    @property
    def rows(self) -> Table: ...
    def metrics(self, run: int = 0) -> dict[str, float]: ...
    def events(self, run: int = 0) -> Table: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> _Capsule: ...
    def _repr_html_(self) -> str: ...

@final
class Answer:
    """What a verb answers: its words, its JSON, and the verdict in a word."""

    @property
    def verdict(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def data(self) -> dict[str, Any]: ...
    @property
    def warnings(self) -> list[Problem]: ...
    def __getitem__(self, key: str) -> Any: ...
    def _repr_html_(self) -> str: ...

@final
class Store:
    """Runs that are kept."""

    def __new__(cls, path: _Path | None = None) -> Store: ...
    @property
    def path(self) -> PathLike[str]: ...
    def runs(self, what: str | None = None) -> list[dict[str, Any]]: ...
    def rows(self, what: str | None = None) -> Table: ...
    def tag(self, what: str, tag: str, *, remove: bool = False) -> int: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> _Capsule: ...

@final
class Trace:
    """A recorded trace, in any known format."""

    def __new__(cls, path: _Path) -> Trace: ...
    @property
    def name(self) -> str: ...
    @property
    def kernel(self) -> str: ...
    @property
    def lost(self) -> int: ...
    @property
    def warnings(self) -> list[Problem]: ...
    def stat(self) -> dict[str, Any]: ...
    def rows(self) -> Table: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> _Capsule: ...
    def _repr_html_(self) -> str: ...

@final
class Swept:
    """Results of a sweep: a row for each point."""

    @property
    def plan(self) -> str: ...
    @property
    def hash(self) -> str: ...
    @property
    def made(self) -> int: ...
    @property
    def failed(self) -> list[dict[str, Any]]: ...
    @property
    def rows(self) -> Table: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> _Capsule: ...
    def _repr_html_(self) -> str: ...

def sweep_plan(grid: str, points: str | None = None) -> str: ...
def sweep_plan_of_file(path: _Path) -> str: ...
def sweep_task(plan: str, task: int) -> bytes: ...
def sweep_lost(plan: str, task: int, why: str) -> bytes: ...
def sweep_wanted(plan: str, folder: _Path | None) -> list[int]: ...
def sweep_keep(plan: str, folder: _Path, task: int, bytes: bytes) -> None: ...
def sweep_gather(plan: str, folder: _Path | None, sent: list[bytes], made: int) -> Swept: ...
def sweep_local(plan: str, folder: _Path | None, threads: int, progress: _Progress | None) -> Swept: ...
def run(
    job: _Job,
    on: str | Sequence[str],
    disk: str | Sequence[str] | None = None,
    *,
    repeat: int | None = None,
    seed: int | None = None,
    label: str | Sequence[str] | None = None,
    store: _Path | None = None,
    trace: bool = False,
    options: Sequence[str] = ...,
    readahead: Callable[[int], Readahead] | None = None,
    elevator: Callable[[], Elevator] | None = None,
    progress: _Progress | None = None,
) -> Runs:
    """Runs a job at places.

    `job` is the path of a job file, its text, a line of words, or a list of words. `on` and `disk` are the words of
    the command line. With a label or a store the runs are kept; with `trace`, all their events, too. `options` are
    further words of `iowhy run`. `progress(done, of)` is called on the way. `readahead(limit)` makes the policy of an
    opened file, whose limit is `limit` pages, in place of the kernel's; `elevator()` makes that of the queue. Both are
    slow.
    """

def compare(
    a: Runs | _Path | Sequence[float],
    b: Runs | _Path | Sequence[float] | None = None,
    *,
    metrics: Sequence[str] = ...,
    alpha: float = 0.01,
    margin_pct: float = 1.0,
    store: _Path | None = None,
    draws: int = 9_999,
    seed: int = 1,
) -> Answer:
    """Compares base and candidate: runs, names in the store, files of samples, or numbers.

    Runs at two places are both sides. `verdict` is `regression`, `improvement`, `same` or `inconclusive`. Of numbers,
    the first of `metrics` is the name, whose end has the unit and the better direction (`p99_ns`, `read_mib_s`).
    """

def explain(
    a: _Path,
    b: _Path | None = None,
    *,
    job: _Job | None = None,
    disk: str | None = None,
    runs: int | None = None,
    prove: bool = False,
    store: _Path | None = None,
    progress: _Progress | None = None,
) -> Answer:
    """Explains why `b` is slower than `a`.

    Sides are names in the store, files with traces, rows of incidents, or places with a `job`; an incident alone
    stands for its two rows.
    """

def why(recording: Trace | _Path, *, progress: _Progress | None = None) -> Answer:
    """Explains one recording alone: where its time goes, and what would help."""

def bisect(
    good: str,
    bad: str,
    job: _Job,
    *,
    disk: str | None = None,
    metric: str = "elapsed_s",
    error: float = 0.001,
    runs: int | None = None,
    progress: _Progress | None = None,
) -> Answer:
    """Finds the change between two simulated kernels that makes the job slow; `verdict` is `found` or `not found`."""

def incident(
    id: str,
    *,
    runs: int | None = None,
    threads: int | None = None,
    progress: _Progress | None = None,
) -> Answer:
    """Runs a published incident in the simulator; `verdict` is `held` if all its claims do."""

def incidents() -> list[str]:
    """Names of the incidents that can be run."""

def models(kind: str | None = None, name: str | None = None) -> list[dict[str, Any]]:
    """Models of a kind, or all, with sources and tunables."""
