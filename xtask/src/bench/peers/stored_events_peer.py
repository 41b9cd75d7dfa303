"""D2C p99 of a stored trace, by DuckDB 2.0.0 or Polars 2.1.0, one thread; and the size of the same table as they
write it with zstd."""

import json
import os
import sys
import time

os.environ["POLARS_MAX_THREADS"] = "1"
COLUMNS = ["t_ns", "cpu", "pid", "kind", "dev", "sector", "bytes", "rwbs"]


def duckdb_p99(path):
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    query = f"""
        SELECT quantile_disc(c.t_ns - d.t_ns, 0.99)
        FROM (SELECT t_ns, dev, sector FROM '{path}' WHERE kind = 'issue') d
        JOIN (SELECT t_ns, dev, sector FROM '{path}' WHERE kind = 'complete') c
        ON c.sector = d.sector AND c.dev = d.dev
    """
    start = time.process_time_ns()
    (p99,) = connection.execute(query).fetchone()
    return time.process_time_ns() - start, int(p99)


def polars_p99(path):
    import polars

    start = time.process_time_ns()
    rows = polars.scan_parquet(path)
    issued = rows.filter(polars.col("kind") == "issue").select("t_ns", "dev", "sector")
    done = rows.filter(polars.col("kind") == "complete").select("t_ns", "dev", "sector")
    joined = issued.join(done, on=["dev", "sector"], suffix="_done")
    # The row below 0.99 (n - 1) is the nearest rank if n is a multiple of 100.
    p99 = joined.select((polars.col("t_ns_done") - polars.col("t_ns")).quantile(0.99, "lower")).collect().item()
    return time.process_time_ns() - start, int(p99)


def duckdb_bytes(path):
    import duckdb

    out = path + ".peer"
    columns = ", ".join(COLUMNS)
    duckdb.sql(f"COPY (SELECT {columns} FROM '{path}') TO '{out}' (FORMAT parquet, COMPRESSION zstd)")
    size = os.path.getsize(out)
    os.remove(out)
    return size, 0


MODES = {"duckdb": duckdb_p99, "polars": polars_p99, "bytes": duckdb_bytes}
for line in sys.stdin:
    request = json.loads(line)
    if "end" in request:
        break
    cost, answer = MODES[request["mode"]](request["path"])
    print(json.dumps({"ns": cost / request["divide"], "answer": str(answer)}), flush=True)
