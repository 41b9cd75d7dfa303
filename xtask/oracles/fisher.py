"""Frozen answers of SciPy 1.16 (NumPy 2.2) for `stats::fisher`: two-sided p of two-by-two tables.

Writes crates/stats/tests/vectors/fisher.json.
"""
import json
import pathlib

import numpy as np
from scipy.stats import fisher_exact

OUT = pathlib.Path(__file__).parents[2] / "crates/stats/tests/vectors/fisher.json"
rng = np.random.default_rng(3)
tables = [[3, 1, 1, 3], [0, 10, 10, 0], [0, 5, 0, 5], [5, 0, 3, 0], [1, 0, 0, 1], [12, 28, 2, 38], [40, 0, 31, 9],
          [100, 900, 130, 870], [5000, 5000, 4800, 5200], [2, 3, 6, 4], [9000, 1000, 1000, 9000], [0, 0, 3, 4]]
tables += [rng.integers(0, top, 4).tolist() for top in [4, 8, 15, 40, 100, 1000] for _ in range(12)]
rows = [[*table, float(fisher_exact([table[:2], table[2:]])[1])] for table in tables]
OUT.write_text(json.dumps(rows, separators=(",", ":")) + "\n")
