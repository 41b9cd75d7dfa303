"""Measures SciPy. One JSON request a line on stdin, one JSON answer a line on stdout."""

import json
import sys
import time

import numpy as np
from scipy import stats


def means(x, y, axis):
    return np.mean(x, axis=axis) - np.mean(y, axis=axis)


def medians(x, y, axis=-1):
    return np.median(y, axis=axis) - np.median(x, axis=axis)


def bootstrap(request):
    return stats.bootstrap((a, b), medians, n_resamples=request["draws"], batch=request["batch"], method="percentile",
                           confidence_level=request["level"], rng=rng).confidence_interval


def permutation(request):
    return [stats.permutation_test((a, b), means, vectorized=True, n_resamples=request["draws"],
                                   batch=request["batch"], rng=rng).pvalue]


rng = np.random.default_rng(1)
a = b = None
for line in sys.stdin:
    request = json.loads(line)
    if request.get("end"):
        break
    if request["kind"] == "samples":
        a, b = np.array(request["a"]), np.array(request["b"])
        answer = {"ns": 0.0, "answer": "1"}
    else:
        method = bootstrap if request["kind"] == "bootstrap" else permutation
        start = time.process_time_ns()
        found = method(request)
        spent = time.process_time_ns() - start
        near = all(abs(value - known) <= request["within"] for value, known in zip(found, request["expected"]))
        # In milliseconds, as the figures are.
        answer = {"ns": spent / 1e6, "answer": str(int(near))}
    print(json.dumps(answer), flush=True)
