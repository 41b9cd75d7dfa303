"""Frozen answers of diptest 0.12 for `stats::dip`, and the table of quantiles of the uniform distribution.

    python xtask/oracles/dip.py           answers only
    python xtask/oracles/dip.py --table   also simulates the table that dip.rs has, which takes minutes

NumPy 2.2. Writes crates/stats/tests/vectors/dip.json.
"""
import json
import math
import multiprocessing
import pathlib
import sys

import diptest
import numpy as np

OUT = pathlib.Path(__file__).parents[2] / "crates/stats/tests/vectors/dip.json"
LEVELS = [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995,
          0.9999]
SIZES = [4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 40, 60, 100, 200, 500, 1000, 3000, 10000]


def row(size):
    draws = 500_000 if size <= 1000 else 100_000 if size <= 3000 else 50_000
    rng = np.random.default_rng(size)
    dips = np.empty(draws)
    for nr in range(draws):
        dips[nr] = diptest.dipstat(np.sort(rng.random(size)), sort_x=False)
    return [round(q, 5) for q in (np.quantile(dips, LEVELS) * math.sqrt(size)).tolist()]


def statistics():
    rng = np.random.default_rng(1)
    shapes = [
        ("uniform", lambda n: rng.random(n)),
        ("normal", lambda n: rng.normal(size=n)),
        ("lognormal", lambda n: rng.lognormal(size=n)),
        ("t2", lambda n: rng.standard_t(2, n)),
        ("two modes", lambda n: np.where(rng.random(n) < 0.3, 1.2, 1.9) * rng.normal(1, 0.02, n)),
        ("three modes", lambda n: rng.integers(0, 3, n) + rng.normal(0, 0.1, n)),
        ("rounded", lambda n: np.round(rng.normal(size=n), 1)),
        ("few levels", lambda n: rng.integers(0, 4, n).astype(float)),
        ("rounded modes", lambda n: np.round(rng.integers(0, 2, n) * 3 + rng.normal(size=n))),
        ("large", lambda n: 1e9 + rng.normal(size=n)),
    ]
    cases = []
    for name, draw in shapes:
        for size in [2, 3, 4, 5, 6, 7, 9, 12, 17, 25, 40, 64, 150, 400]:
            values = np.sort([float(f"{v:.6g}") if name != "large" else float(round(v, 4)) for v in draw(size)])
            dip, p = diptest.diptest(values, sort_x=False) if size >= 4 else (diptest.dipstat(values), 1.0)
            cases.append({"name": f"{name} {size}", "values": values.tolist(), "dip": dip, "p": p})
    return cases


def p_values():
    """diptest's own interpolated p-values over sizes and dips."""
    rng = np.random.default_rng(2)
    rows = []
    for size in [4, 7, 11, 23, 40, 77, 150, 350, 900, 2500, 9000, 40000]:
        for share in [0, 0.05, 0.15, 0.3, 0.5, 1.0]:
            values = np.sort(rng.random(size) + share * (rng.random(size) < 0.5))
            dip, p = diptest.diptest(values, sort_x=False)
            rows.append([size, dip, p])
    return rows


if __name__ == "__main__":
    old = json.loads(OUT.read_text()) if OUT.exists() else {}
    table = old.get("table")
    if "--table" in sys.argv:
        with multiprocessing.Pool(2) as pool:
            table = {"levels": LEVELS, "sizes": SIZES, "rows": pool.map(row, SIZES[::-1], 1)[::-1]}
    new = {"table": table, "statistics": statistics(), "p_values": p_values()}
    OUT.write_text(json.dumps(new, separators=(",", ":")) + "\n")
