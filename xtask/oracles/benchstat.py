"""Tables of benchstat for constructed files: crates/compare/tests/vectors/benchstat.json.

Run with benchstat (golang.org/x/perf, v0.0.0-20260908) on the PATH, or named by IOWHY_BENCHSTAT:
    python3 xtask/oracles/benchstat.py > crates/compare/tests/vectors/benchstat.json
"""

import json
import os
import random
import subprocess
import tempfile

PROGRAM = os.environ.get("IOWHY_BENCHSTAT", "benchstat")
rng = random.Random(5)


def lines(name, n, *units):
    """n lines of a benchmark; units are (unit, median, spread, digits)."""
    text = ""
    for _ in range(n):
        text += f"Benchmark{name} \t {rng.randrange(1, 10**6)}"
        for unit, median, spread, digits in units:
            text += f"\t {median * rng.lognormvariate(0, spread):.{digits}g} {unit}"
        text += "\n"
    return text


def plain(factor, n=10, digits=6):
    text = "goos: linux\npkg: example/io\n"
    for name, ns in [("Read/bs=4k-8", 81234.0), ("Read/bs=1m-8", 2.31e6), ("Write/bs=4k-8", 455.0), ("Sync-8", 9.1e9)]:
        text += lines(name, n, ("ns/op", ns * factor, 0.03, digits), ("MB/s", 4096 / ns * 1e3 / factor, 0.03, digits),
                      ("allocs/op", 12, 0, 4))
    return text + "PASS\nok  \texample/io\t1.2s\n"


def counted(name, unit, values):
    return "".join(f"Benchmark{name} 1 {value} {unit}\n" for value in values)


CASES = {
    "plain": [plain(1.0), plain(1.07)],
    "no difference": [plain(1.0), plain(1.0)],
    "forty values without ties": [plain(1.0, 40, 12), plain(1.02, 40, 12)],
    "forty values with ties": [plain(1.0, 40, 2), plain(1.03, 40, 2)],
    "twenty-five with ties": [plain(1.0, 25, 2), plain(1.02, 25, 2)],
    "thirty-one": [plain(1.0, 31, 6), plain(1.02, 31, 6)],
    "sixty against seven": [plain(1.0, 60), plain(1.1, 7)],
    "one value": [plain(1.0, 1), plain(1.5, 1)],
    "three values": [plain(1.0, 3), plain(1.5, 3)],
    "four and five": [plain(1.0, 4), plain(1.5, 5)],
    "one file": [plain(1.0, 6)],
    "three files": [plain(1.0, 8), plain(1.1, 8), plain(0.7, 8)],
    "other benchmarks": [
        lines("A", 6, ("ns/op", 100, 0.01, 5)) + lines("B", 6, ("ns/op", 1e4, 0.01, 5)),
        lines("A", 6, ("ns/op", 100, 0.01, 5)) + lines("C", 6, ("ns/op", 1e5, 0.01, 5)),
    ],
    "another unit": [lines("A", 6, ("ns/op", 100, 0.01, 5)), lines("A", 6, ("MB/s", 100, 0.01, 5))],
    "constant": [counted("A", "ns/op", [5] * 8), counted("A", "ns/op", [5] * 8)],
    "constant and different": [counted("A", "ns/op", [5] * 8), counted("A", "ns/op", [6] * 8)],
    "exact": [
        "Unit text-bytes assume=exact\n" + counted("A", "text-bytes", [100] * 3) + counted("B", "text-bytes", [7, 8, 8]),
        counted("A", "text-bytes", [105] * 3) + counted("B", "text-bytes", [8, 8, 8]),
    ],
    "zeros": [
        counted("A", "x", [0] * 6) + counted("B", "x", [0] * 6) + counted("C", "x", [3, 4, 5, 6, 7, 8]),
        counted("A", "x", [0] * 6) + counted("B", "x", [9] * 6) + counted("C", "x", [0] * 6),
    ],
    "negative": [counted("A", "x", [-3, -4, -5, -6, -7, -8]), counted("A", "x", [3, 4, 5, 6, 7, 8])],
    "both signs": [counted("A", "x", [-3, -2, -1, 1, 2, 3, 4]), counted("A", "x", [-3, -2, -1, 1, 2, 3, 5])],
    "large and small": [
        counted("A", "x", [1e15, 2e15, 3e15, 4e15, 5e15, 6e15]) + counted("B", "x", [1e-12] * 3 + [2e-12] * 3)
        + counted("C", "x", [999.96] * 6) + counted("D", "B/s", [1020] * 6) + counted("E", "ns/op", [99.996] * 6),
        counted("A", "x", [1e3] * 6) + counted("B", "x", [3e-9] * 6)
        + counted("C", "x", [1000.1] * 6) + counted("D", "B/s", [1050000] * 6) + counted("E", "ns/op", [9.9996] * 6),
    ],
    "configurations": [
        "goos: linux\nfs: ext4\n" + counted("A", "ns/op", [5, 6, 7, 8, 9, 10]) + "fs: xfs\n"
        + counted("A", "ns/op", [7, 8, 9, 10, 11, 12]) + "fs:\n" + counted("A", "ns/op", [1, 2, 3, 4, 5, 6]),
        "goos: linux\nfs: xfs\n" + counted("A", "ns/op", [5, 6, 7, 8, 9, 10]) + "note: new\n"
        + counted("B", "ns/op", [7, 8, 9, 10, 11, 12]),
    ],
    "odd units": [
        lines("A", 6, ("p99-ns/op", 100, 0.01, 5), ("IOPS", 12345, 0.01, 6), ("ns/MB", 3, 0.1, 4), ("MB*ns", 3, 0.1, 4)),
        lines("A", 6, ("p99-ns/op", 150, 0.01, 5), ("IOPS", 22345, 0.01, 6), ("ns/MB", 3, 0.1, 4), ("MB*ns", 4, 0.1, 4)),
    ],
    "long heads": [
        counted("A", "ns/op", [5, 6, 7, 8, 9, 10]),
        counted("A", "a-very-long-unit-that-no-value-is-as-wide-as-and-longer-still/op", [5, 6, 7, 8, 9, 10]),
    ],
    "nothing": ["goos: linux\n", ""],
    "what go prints": [
        "BenchmarkA\nsome output\nBenchmarkA 10 5 ns/op\n--- BENCH: A\nUPPER: x\nkey:novalue\n",
        "=== RUN BenchmarkA\nBenchmarkA 10 6 ns/op 7 B/op\n",
    ],
}

found = []
for name, texts in CASES.items():
    with tempfile.TemporaryDirectory() as folder:
        labels = ["old.txt", "new.txt", "newer-still.txt"][: len(texts)]
        for label, text in zip(labels, texts):
            with open(os.path.join(folder, label), "w") as file:
                file.write(text)
        made = subprocess.run([PROGRAM, *labels], cwd=folder, capture_output=True, text=True, check=True)
        assert not made.stderr, made.stderr
        files = [{"label": label, "text": text} for label, text in zip(labels, texts)]
        found.append({"name": name, "files": files, "table": made.stdout})
print(json.dumps({"benchstat": "v0.0.0-20260908", "cases": found}, ensure_ascii=False, indent=0))
