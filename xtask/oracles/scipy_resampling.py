"""Frozen answers of SciPy 1.16, benchstat (golang.org/x/perf 2026-09) and arch 8.0 for `stats::bootstrap`,
`stats::permutation` and `stats::harrell_davis`.

    python xtask/oracles/scipy_resampling.py [BENCHSTAT [PYTHON_WITH_ARCH]]

Without the programs their old answers are kept. NumPy 2.2. Writes crates/stats/tests/vectors/resampling.json.
"""
import csv
import io
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
from scipy import stats
from scipy.special import ndtri
from scipy.stats import _resampling
from scipy.stats.mstats import hdquantiles, hdquantiles_sd

OUT = pathlib.Path(__file__).parents[2] / "crates/stats/tests/vectors/resampling.json"
ARCH = """
import json, sys
from arch.bootstrap import optimal_block_length
print(json.dumps([float(optimal_block_length(run)["circular"].iloc[0]) for run in json.load(sys.stdin)]))
"""


def spread(n, step, scale=100.0):
    """Values that the tests make again: exponential, in an order that looks random."""
    return [-scale * math.log(1.0 - ((i + 1) * step) % 1.0) for i in range(n)]


def harrell_davis():
    cases = []
    for n in (2, 3, 10, 99, 1000, 10_000):
        values = np.sort(spread(n, 0.6180339887498949))
        for q in (0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999):
            value = float(hdquantiles(values, [q])[0])
            error = float(hdquantiles_sd(values, [q])[0])
            cases.append({"n": n, "q": q, "value": value, "standard_error": error})
    return cases


def quantile_differences():
    cases = []
    for n_a, n_b, q in ((25, 25, 0.5), (100, 100, 0.5), (101, 80, 0.5), (100, 60, 0.9), (1000, 1000, 0.99)):
        a, b = spread(n_a, 0.6180339887498949), spread(n_b, 0.7548776662466927, 110.0)

        def difference(x, y, axis=-1):
            return np.quantile(y, q, axis=axis) - np.quantile(x, q, axis=axis)

        result = stats.bootstrap((a, b), difference, n_resamples=49_999, batch=500, method="percentile",
                                 confidence_level=0.95, rng=np.random.default_rng(n_a + n_b))
        drawn = np.sort(result.bootstrap_distribution)
        # Between the values that were drawn: ties and rounding do not matter there.
        distinct = np.unique(np.round(drawn, 6))
        middles = (distinct[1:] + distinct[:-1]) / 2
        at = np.unique(middles[np.linspace(0, len(middles) - 1, 400).astype(int)])
        at = np.unique(np.concatenate([at, np.quantile(middles, np.linspace(0, 1, 50)),
                                       np.quantile(drawn, np.linspace(0.005, 0.995, 199)) + 1e-7]))
        share = np.searchsorted(drawn, at, side="right") / len(drawn)
        cases.append({"n_a": n_a, "n_b": n_b, "q": q, "at": np.round(at, 9).tolist(),
                      "share": np.round(share, 5).tolist(),
                      "interval": list(map(float, result.confidence_interval)),
                      "standard_error": float(result.standard_error)})
    return cases


def quantile_ranks():
    cases = []
    for n in (1, 5, 6, 8, 30, 100, 999, 100_000, 10_000_000):
        for q in (0.01, 0.5, 0.9, 0.99):
            for level in (0.9, 0.95, 0.99):
                tail = (1 - level) / 2
                law = stats.binom(n, q)
                low = int(law.ppf(tail))
                while low > 0 and law.cdf(low - 1) > tail:
                    low -= 1
                while law.cdf(low) <= tail:
                    low += 1
                high = int(law.isf(tail)) + 1
                while law.sf(high - 1) > tail:
                    high += 1
                while high > 0 and law.sf(high - 2) <= tail:
                    high -= 1
                cases.append([n, q, level, low, high])
    return cases


def permutations():
    def means(x, y, axis):
        return np.mean(x, axis=axis) - np.mean(y, axis=axis)

    rng = np.random.default_rng(5)
    pairs = [
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]),
        ([1.0, 1.0, 2.0, 2.0], [2.0, 2.0, 3.0]),
        ([5.0, 5.0, 5.0], [5.0, 5.0]),
        ([0.1, 0.2, 0.3, 0.1, 0.2], [0.3, 0.3, 0.2, 0.4]),
        ([7.5, 5.5], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        (np.round(rng.normal(100, 5, 8), 2).tolist(), np.round(rng.normal(106, 5, 8), 2).tolist()),
        (np.round(rng.gamma(2, 1e6, 10)).tolist(), np.round(rng.gamma(2, 1.5e6, 9)).tolist()),
        (np.round(rng.normal(1e9, 3, 4), 3).tolist(), np.round(rng.normal(1e9, 3, 14), 3).tolist()),
    ]
    exact = []
    for a, b in pairs:
        p = stats.permutation_test((a, b), means, vectorized=True, n_resamples=np.inf, batch=1000).pvalue
        exact.append({"a": a, "b": b, "p": float(p)})
    drawn = []
    for n_a, n_b, shift in ((50, 50, 80.0), (60, 20, 60.0), (20, 300, 20.0), (7, 400, 55.0), (500, 500, 14.0)):
        a = spread(n_a, 0.6180339887498949)
        b = [value + shift for value in spread(n_b, 0.7548776662466927)]
        p = stats.permutation_test((a, b), means, vectorized=True, n_resamples=199_999, batch=1000, rng=rng).pvalue
        drawn.append({"n_a": n_a, "n_b": n_b, "shift": shift, "p": float(p)})
    return {"exact": exact, "drawn": drawn}


def benchstat(program):
    cases = []
    for n in [*range(1, 42), 60, 99, 100, 250]:
        # One rank is one to two percent of the median, so that the percentage tells the ranks.
        values = [100.0 + 3.0 * i for i in range(n)]
        text = "".join(f"BenchmarkA 1 {value} ns/op\n" for value in values)
        for level in (0.9, 0.95, 0.99):
            path = pathlib.Path("benchstat-input.txt")
            path.write_text(text)
            out = subprocess.run([program, "-format", "csv", "-confidence", str(level), str(path)],
                                 check=True, capture_output=True, text=True).stdout
            path.unlink()
            row = next(row for row in csv.reader(io.StringIO(out)) if row and row[0] == "A")
            cases.append([n, level, float(row[1]), row[2]])
    return cases


def blocks(python):
    rng = np.random.default_rng(3)
    runs = []
    for n, phi in ((60, 0.5), (200, 0.0), (300, 0.7), (500, 0.9), (500, -0.4), (400, 0.97)):
        noise = rng.normal(size=n)
        run = np.zeros(n)
        for i in range(n):
            run[i] = phi * run[i - 1] + noise[i]
        runs.append(np.round(run, 3).tolist())
    lengths = json.loads(subprocess.run([python, "-c", ARCH], input=json.dumps(runs), check=True,
                                        capture_output=True, text=True).stdout)
    return [{"run": run, "length": length} for run, length in zip(runs, lengths)]


def main():
    old = json.loads(OUT.read_text()) if OUT.exists() else {}
    answers = {
        "harrell_davis": harrell_davis(),
        "quantile_differences": quantile_differences(),
        "quantile_ranks": quantile_ranks(),
        "permutations": permutations(),
        "benchstat": benchstat(sys.argv[1]) if len(sys.argv) > 1 else old["benchstat"],
        "blocks": blocks(sys.argv[2]) if len(sys.argv) > 2 else old["blocks"],
    }
    OUT.write_text(json.dumps(answers, separators=(",", ":")) + "\n")


main()
