"""Frozen answers of SciPy, NumPy and benchstat for the rank methods, effects and adjustments of crates/lab/src/stats.

SciPy 1.16.3, NumPy 2.2, Python 3.11 and benchstat of golang.org/x/perf 20260908. From the root,
    python xtask/oracles/scipy_ranks.py path/to/benchstat
writes crates/stats/tests/vectors/ranks.json. Samples are whole multiples of 1/64 or 1/4096, so that the JSON is short and
exact. `klotz` counts all ways to deal the pooled values out; it is the definition of the exact test with ties, which
SciPy has only by permutation.
"""
import csv
import io
import itertools
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
from scipy import special, stats

OUT = pathlib.Path(__file__).parents[2] / "crates/stats/tests/vectors/ranks.json"
warnings.simplefilter("ignore")
rng = np.random.default_rng(20251)


def fine(x, steps=64):
    return [float(v) for v in np.round(np.asarray(x) * steps) / steps]


def distinct(n, m, shift):
    """Two samples without a tie between any two values."""
    while True:
        pool = fine(np.concatenate([rng.normal(100, 9, n), rng.normal(100 + shift, 9, m)]), 4096)
        if len(set(pool)) == n + m:
            return pool[:n], pool[n:]


def coarse(n, m, shift, step):
    def draw(k, s):
        return [float(v) for v in np.round(rng.normal(s, 2, k) / step) * step]
    while True:
        a, b = draw(n, 10), draw(m, 10 + shift)
        if len(set(a + b)) > 1:
            return a, b


def klotz(a, b):
    """Twice the smaller tail of U of b over all ways to deal the values out, at most 1."""
    pool = stats.rankdata(a + b) * 2
    sums = [sum(c) for c in itertools.combinations([int(r) for r in pool], len(b))]
    seen = int(sum(pool[len(a):]))
    low = sum(s <= seen for s in sums)
    high = sum(s >= seen for s in sums)
    return min(1.0, 2 * min(low, high) / len(sums))


def holm(p):
    n, order, most, out = len(p), np.argsort(p, kind="stable"), 0.0, [0.0] * len(p)
    for i, row in enumerate(order):
        most = min(1.0, max(most, (n - i) * p[row]))
        out[row] = most
    return out


def hedges(a, b):
    v = len(a) + len(b) - 2
    pooled = math.sqrt((np.var(a, ddof=1) * (len(a) - 1) + np.var(b, ddof=1) * (len(b) - 1)) / v)
    j = math.exp(special.gammaln(v / 2) - special.gammaln((v - 1) / 2)) / math.sqrt(v / 2)
    return float((np.mean(b) - np.mean(a)) / pooled * j)


def mann_whitney(a, b, method, continuity=True):
    r = stats.mannwhitneyu(b, a, method=method, use_continuity=continuity)
    return [float(r.statistic), float(r.pvalue)]


def pair(a, b, exact):
    ks = stats.ks_2samp(a, b, method="auto")
    ad = stats.anderson_ksamp([a, b])
    row = {
        "a": a, "b": b,
        "asymptotic": mann_whitney(a, b, "asymptotic"),
        "uncorrected": mann_whitney(a, b, "asymptotic", False),
        "ks": [float(ks.statistic), float(ks.pvalue)],
        "ad": [float(ad.statistic), float(ad.pvalue)],
        "hedges": hedges(a, b),
    }
    if exact:
        row["exact"] = mann_whitney(a, b, "exact")
    return row


pairs = [pair(*distinct(n, m, s), True) for n, m, s in [
    (2, 3, 0), (3, 3, 40), (5, 5, 5), (5, 9, 8), (7, 7, 12), (10, 10, 0), (10, 10, 9), (12, 30, 4), (20, 20, 6),
    (40, 37, 5), (50, 50, 0), (50, 50, 4), (50, 50, 15), (3, 200, 20), (8, 300, 6)]]
pairs += [pair(*distinct(n, m, s), False) for n, m, s in [(60, 51, 2), (150, 120, 3), (200, 200, 20)]]
pairs += [pair(*coarse(n, m, s, step), False) for n, m, s, step in [
    (4, 4, 1, 1), (6, 9, 2, 2), (10, 10, 1, 1), (25, 25, 1, 0.5), (30, 30, 1, 1), (45, 80, 0.5, 4), (200, 150, 0.3, 2)]]

klotz_rows = []
for n, m, s, step in [(1, 2, 1, 2), (2, 2, 1, 2), (3, 4, 1, 1), (5, 5, 2, 1), (6, 4, 2, 2), (4, 7, 3, 2), (8, 8, 2, 1),
                      (8, 8, 1, 4), (7, 9, 2, 0.5), (9, 9, 2, 1), (10, 8, 2, 2), (3, 15, 3, 2)]:
    a, b = coarse(n, m, s, step)
    klotz_rows.append({"a": a, "b": b, "p": klotz(a, b)})
# Here the distribution is not symmetric, and benchstat has 1.333 and 0.
for a, b in [([2.0], [1.0, 1.0]), ([3.0, 3, 3, 5], [1.0, 1, 1, 1, 1, 2, 2])]:
    klotz_rows.append({"a": a, "b": b, "p": klotz(a, b)})

# benchstat prints three digits; equal sizes make its exact p with ties the right one.
bench = [coarse(n, n, s, step) for n, s, step in [(5, 2, 1), (10, 1, 1), (10, 3, 2), (15, 1, 1), (20, 1, 1), (20, 1, 2),
                                                  (25, 1, 0.5), (25, 1, 2), (26, 1, 1), (40, 1, 1)]]
bench += [distinct(n, m, s) for n, m, s in [(4, 4, 10), (10, 10, 5), (20, 12, 5), (50, 50, 3), (51, 50, 3),
                                                (60, 60, 3)]]
with tempfile.TemporaryDirectory() as where:
    for side, name in enumerate("ab"):
        with open(os.path.join(where, name), "w") as file:
            for i, both in enumerate(bench):
                file.writelines(f"BenchmarkRow{i} 1 {v!r} B/op\n" for v in both[side])
    printed = subprocess.run([sys.argv[1], "-format", "csv", "a", "b"], cwd=where, check=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
p_of = {row[0]: float(row[6].split()[0][2:]) for row in csv.reader(io.StringIO(printed)) if row and row[0][:3] == "Row"}
assert len(p_of) == len(bench), printed
benchstat = [{"a": a, "b": b, "p": p_of[f"Row{i}"]} for i, (a, b) in enumerate(bench)]

k_sample = []
for sizes, shift, step in [((5, 6, 7), 1, 0), ((10, 10, 10, 10), 0.8, 0), ((20, 5, 12), 1, 1),
                           ((30, 40, 50, 20, 10), 0.2, 0), ((9, 9, 9), 3, 0), ((15, 25), 0.9, 2)]:
    samples = [rng.normal(10 + i * shift, 2, n) for i, n in enumerate(sizes)]
    samples = [fine(s) if step == 0 else [float(v) for v in np.round(s / step) * step] for s in samples]
    r = stats.anderson_ksamp(samples)
    k_sample.append({"samples": samples, "statistic": float(r.statistic), "p": float(r.pvalue)})

# The tail of Kolmogorov's distribution of one sample.
kolmogorov = [[n, d, float(stats.kstwo.sf(d, n))] for n, ds in [
    (1, (0.4, 0.6, 0.9)), (2, (0.2, 0.3, 0.5, 0.8)), (5, (0.1, 0.15, 0.3, 0.45, 0.6, 0.9)),
    (20, (0.04, 0.08, 0.1, 0.2, 0.3, 0.4, 0.7)), (100, (0.008, 0.03, 0.06, 0.1, 0.15, 0.19, 0.25, 0.5)),
    (140, (0.05, 0.1, 0.16)), (141, (0.03, 0.05, 0.1, 0.12, 0.13, 0.2)), (1000, (0.01, 0.02, 0.03, 0.04, 0.05, 0.1)),
    (5000, (0.004, 0.008, 0.015, 0.02, 0.022, 0.04)),
    (100_000, (0.002, 0.004, 0.0046, 0.0048, 0.01)),
    (1_000_000, (0.0008, 0.0012, 0.0014))] for d in ds]

adjust = []
for n in (1, 2, 5, 20, 60):
    p = [float(v) for v in np.round(rng.uniform(0, 1, n) ** 3, 4)]
    adjust.append({"p": p, "bh": [float(v) for v in stats.false_discovery_control(p)], "holm": holm(p)})

student = [[z, df, float(2 * stats.t.sf(z, df))] for z in (0.1, 1.0, 2.5, 6.0) for df in (1.0, 3.7, 20.0, 400.0, 1e6)]

answers = {"pairs": pairs, "klotz": klotz_rows, "benchstat": benchstat, "k_sample": k_sample, "kolmogorov": kolmogorov,
           "adjust": adjust, "student": student}
OUT.write_text(json.dumps(answers, separators=(",", ":")) + "\n")
