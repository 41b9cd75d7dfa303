"""Longest D2C of a stored trace, by DuckDB 2.0.0 or Polars 2.1.0, one thread; and the size of the same table as they
write it with zstd."""

import json
import os
import sys
import time

os.environ["POLARS_MAX_THREADS"] = "1"
COLUMNS = ["t_ns", "cpu", "pid", "kind", "dev", "sector", "bytes", "rwbs"]


def duckdb_longest(path):
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    query = f"""
        SELECT max(c.t_ns - d.t_ns)
        FROM (SELECT t_ns, dev, sector FROM '{path}' WHERE kind = 'issue') d
        JOIN (SELECT t_ns, dev, sector FROM '{path}' WHERE kind = 'complete') c
        ON c.sector = d.sector AND c.dev = d.dev
    """
    start = time.process_time_ns()
    (longest,) = connection.execute(query).fetchone()
    return time.process_time_ns() - start, int(longest)


def polars_longest(path):
    import polars

    start = time.process_time_ns()
    rows = polars.scan_parquet(path)
    issued = rows.filter(polars.col("kind") == "issue").select("t_ns", "dev", "sector")
    done = rows.filter(polars.col("kind") == "complete").select("t_ns", "dev", "sector")
    joined = issued.join(done, on=["dev", "sector"], suffix="_done")
    longest = joined.select((polars.col("t_ns_done") - polars.col("t_ns")).max()).collect().item()
    return time.process_time_ns() - start, int(longest)


def duckdb_bytes(path):
    import duckdb

    out = path + ".peer"
    columns = ", ".join(COLUMNS)
    duckdb.sql(f"COPY (SELECT {columns} FROM '{path}') TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
    size = os.path.getsize(out)
    os.remove(out)
    return size, 0


MODES = {"duckdb": duckdb_longest, "polars": polars_longest, "bytes": duckdb_bytes}
for line in sys.stdin:
    request = json.loads(line)
    if "end" in request:
        break
    cost, answer = MODES[request["mode"]](request["path"])
    print(json.dumps({"ns": cost / request["divide"], "answer": str(answer)}), flush=True)
