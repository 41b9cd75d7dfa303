"""Frozen answers of SciPy 1.16 (NumPy 2.2) for `stats::drift`: kendalltau against time, theilslopes.

Writes crates/stats/tests/vectors/drift.json.
"""
import json
import pathlib

import numpy as np
from scipy.stats import kendalltau, theilslopes

OUT = pathlib.Path(__file__).parents[2] / "crates/stats/tests/vectors/drift.json"
rng = np.random.default_rng(1)
cases = []
for size in [3, 4, 5, 7, 10, 15, 20, 33, 50, 51, 80, 200]:
    time = np.arange(size)
    for name, values in [
        ("level", rng.normal(size=size)),
        ("rising", rng.normal(size=size) + time * 3 / size),
        ("falling", -np.sort(rng.normal(size=size))),
        ("rounded", np.round(rng.normal(size=size) + time * 2 / size)),
        ("tied", rng.integers(0, 2, size).astype(float)),
    ]:
        values = [float(f"{v:.6g}") for v in values]
        if len(set(values)) == 1:
            values[0] += 1.0
        tied = len(set(values)) < size
        p = kendalltau(time, values, method="asymptotic" if tied or size > 50 else "exact").pvalue
        cases.append({"name": f"{name} {size}", "values": values, "p": float(p),
                      "slope": float(theilslopes(values, time).slope)})
OUT.write_text(json.dumps(cases, separators=(",", ":")) + "\n")
