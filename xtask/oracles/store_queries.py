"""Runs the queries of docs/STORE.md, as they stand there, on a store, and compares their answers with what
`iowhy store list --json` says and with the Parquet files as pyarrow reads them.

Usage: store_queries.py IOWHY STORE [DOCUMENT]
Written for duckdb 2.0, pandas 3.1, polars 2.1, pyarrow 26; the versions that ran are printed.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet


def queries(document):
    """The fenced blocks whose info string is `python NAME`."""
    found = re.findall(r"^```python (\w+)\n(.*?)^```", document.read_text(), re.M | re.S)
    assert [name for name, _ in found] == ["duckdb", "pandas", "polars"], found
    return dict(found)


def answer(code, store):
    names = {"STORE": str(store)}
    exec(compile(code, "docs/STORE.md", "exec"), names)
    return names["result"]


def close(a, b):
    return abs(a - b) <= 1e-12 * max(abs(a), abs(b))


def main():
    iowhy, store = sys.argv[1], pathlib.Path(sys.argv[2])
    here = pathlib.Path(__file__).resolve().parent
    document = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else here / "../../docs/STORE.md"
    code = queries(document)
    listed = subprocess.run(
        [iowhy, "store", "list", "--store", store, "--json"], check=True, capture_output=True, text=True
    )
    runs = [run for run in json.loads(listed.stdout)["runs"] if not run["design"]["warm_up"]]
    assert runs, "the store has no runs that count"
    tables = {}
    for run in runs:
        for file in run["files"]:
            table = pyarrow.parquet.read_table(store / file["path"]).to_pylist()
            assert len(table) == file["rows"], file
            tables[run["run_id"], file["kind"]] = table
    samples = {
        run["run_id"]: [row for row in tables[run["run_id"], "samples"] if row["source"] != "interval"] for run in runs
    }

    rows = answer(code["duckdb"], store)
    labels = sorted({run["label"] for run in runs})
    assert [row[0] for row in rows] == labels, rows
    for label, median, slow_share in rows:
        own = [run for run in runs if run["label"] == label]
        assert close(median, statistics.median(run["metrics"]["elapsed_s"] for run in own)), label
        calls = [row for run in own for row in samples[run["run_id"]]]
        slow = sum(row["weight"] for row in calls if row["latency_ns"] > 1_000_000)
        assert close(slow_share, slow / sum(row["weight"] for row in calls)), label
    print(f"duckdb {duckdb.__version__}: {len(rows)} labels agree")

    frame = answer(code["pandas"], store)
    assert sorted(frame.index) == sorted(run["run_id"] for run in runs)
    cells = 0
    for run in runs:
        for metric, value in run["metrics"].items():
            found = frame.loc[run["run_id"], metric]
            assert pandas.isna(found) if value is None else found == value, (run["run_id"], metric)
            cells += 1
    print(f"pandas {pandas.__version__}: {cells} metrics of {len(runs)} runs agree")

    found = answer(code["polars"], store)
    assert sorted(found) == sorted(samples)
    for run_id, kinds in found.items():
        for kind in kinds:
            own = [row for row in samples[run_id] if row["op"] == kind["op"]]
            assert kind["calls"] == sum(row["weight"] for row in own), run_id
            assert kind["slowest_ns"] == max(row["latency_ns"] for row in own), run_id
        assert {kind["op"] for kind in kinds} == {row["op"] for row in samples[run_id]}, run_id
    print(f"polars {polars.__version__}: calls of {len(found)} runs agree (pyarrow {pyarrow.__version__})")


if __name__ == "__main__":
    main()
