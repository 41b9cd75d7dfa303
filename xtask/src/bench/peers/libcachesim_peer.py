"""Measures libCacheSim's Python wheel. One JSON request a line on stdin, one JSON answer a line on stdout."""

import json
import sys
import time

import libcachesim

POLICIES = {"lru": libcachesim.LRU, "fifo": libcachesim.FIFO, "clock": libcachesim.Clock}
readers = {}

for line in sys.stdin:
    request = json.loads(line)
    if request.get("end"):
        break
    path = request["trace"]
    if path not in readers:
        readers[path] = libcachesim.TraceReader(
            path,
            libcachesim.TraceType.ORACLE_GENERAL_TRACE,
            libcachesim.ReaderInitParam(ignore_obj_size=True),
        )
    reader = readers[path]
    reader.reset()
    count = request["count"]
    cache = POLICIES[request["policy"]](request["capacity"], hashpower=request["hashpower"])
    start = time.process_time_ns()
    miss_ratio, _ = cache.process_trace(reader)
    spent = time.process_time_ns() - start
    print(json.dumps({"ns": spent / count, "answer": str(round(miss_ratio * count))}), flush=True)
