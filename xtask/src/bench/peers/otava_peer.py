"""Measures Apache Otava. One JSON request a line on stdin, one JSON answer a line on stdout."""

import json
import sys
import time
import warnings

from otava.analysis import compute_change_points, compute_change_points_orig

warnings.simplefilter("ignore")

for line in sys.stdin:
    request = json.loads(line)
    if request.get("end"):
        break
    with open(request["series"]) as file:
        # A list: of an array Otava would search every window in the whole series.
        series = json.load(file)
    start = time.process_time_ns()
    if request["mode"] == "original":
        points, _ = compute_change_points_orig(series, max_pvalue=request["p"], seed=1)
    else:
        points, _ = compute_change_points(series, window_len=request["window"], max_pvalue=request["p"])
    spent = time.process_time_ns() - start
    answer = 0
    for point in points:
        answer = (answer * 1_000_003 + int(point.index)) % (1 << 64)
    print(json.dumps({"ns": spent / 1e6, "answer": str(answer)}), flush=True)
