"""Answers of Apache Otava 0.8.0 (NumPy 2, SciPy 1.16) for change points.

Writes crates/stats/tests/vectors/change_points.json:

    python xtask/oracles/otava.py

Otava takes lists: of a NumPy array it would search every window in the whole series. Its random orders are not ours, so
of the permutation test only indexes and statistics are kept, and only of series where ten seeds agree on the indexes.
The tigerbeetle series is the one of Otava's own tests, from Nyrkioe's demonstration.
"""

import json
import math
import pathlib
import random
import sys
import warnings

# This file has the name of the package.
sys.path.pop(0)

from otava.analysis import compute_change_points, compute_change_points_orig

warnings.simplefilter("ignore")

TIGERBEETLE = [
    26705, 26475, 26641, 26806, 26835, 26911, 26564, 26812, 26874, 26682, 15672, 26745, 26460, 26977, 26851, 23412,
    23547, 23674, 23519, 23670, 23662, 23462, 23750, 23717, 23524, 23588, 23687, 23793, 23937, 23715, 23570, 23730,
    23690, 23699, 23670, 23860, 23988, 23652, 23681, 23798, 23728, 23604, 23523, 23412, 23685, 23773, 23771, 23718,
    23409, 23739, 23674, 23597, 23682, 23680, 23711, 23660, 23990, 23938, 23742, 23703, 23536, 24363, 24414, 24483,
    24509, 24944, 24235, 24560, 24236, 24667, 24730, 28346, 28437, 28436, 28057, 28217, 28456, 28427, 28398, 28250,
    28331, 28222, 28726, 28578, 28345, 28274, 28514, 28590, 28449, 28305, 28411, 28788, 28404, 28821, 28580, 27483,
    26805, 27487, 27124, 26898, 27295, 26951, 27312, 27660, 27154, 27050, 26989, 27193, 27503, 27326, 27375, 27513,
    27057, 27421, 27574, 27609, 27123, 27824, 27644, 27394, 27836, 27949, 27702, 27457, 27272, 28207, 27802, 27516,
    27586, 28005, 27768, 28543, 28237, 27915, 28437, 28342, 27733, 28296, 28524, 28687, 28258, 28611, 29360, 28590,
    29641, 28965, 29474, 29256, 28611, 28205, 28539, 27962, 28398, 28509, 28240, 28592, 28102, 28461, 28578, 28669,
    28507, 28535, 28226, 28536, 28561, 28087, 27953, 28398, 28007, 28518, 28337, 28242, 28607, 28545, 28514, 28377,
    28010, 28412, 28633, 28576, 28195, 28637, 28724, 28466, 28287, 28719, 28425, 28860, 28842, 28604, 28327, 28216,
    28946, 28918, 29287, 28725, 29148, 29541, 29137, 29628, 29087, 28612, 29154, 29108, 28884, 29234, 28695, 28969,
    28809, 28695, 28634, 28916, 29852, 29389, 29757, 29531, 29363, 29251, 29552, 29561, 29046, 29795, 29022, 29395,
    28921, 29739, 29257, 29455, 29376, 29528, 28909, 29492, 28984, 29621, 29026, 29457, 29102, 29114, 28924, 29162,
    29259, 29554, 29616, 29211, 29367, 29460, 28836, 29645, 29586, 28848, 29324, 28969, 29150, 29243, 29081, 29312,
    28923, 29272, 29117, 29072, 29529, 29737, 29652, 29612, 29856, 29012, 30402, 29969, 29309, 29439, 29285, 29421,
    29023, 28772, 29692, 29416, 29267, 29542, 29904, 30045, 29739, 29945, 29141, 29163, 29765, 29197, 29441, 28910,
    29504, 29614, 29643, 29506, 29420, 29672, 29432, 29784, 29888, 29309, 29247, 29816, 29254, 29813, 29451, 29382,
    29618, 28558, 29845, 29499, 29283, 29184, 29246, 28790, 29952, 29145, 29415, 30437, 29227, 29605, 29859, 29156,
    29807, 29406, 29734, 29861, 29140, 29983, 29832, 29919, 29896, 29991, 29266, 29001, 29459, 29548, 29310, 29042,
    29303, 29894, 29091, 29018, 29537, 29614, 29180, 29736, 29500, 29218, 29581, 28906, 28542, 29306, 28987, 29878,
    28865, 30272, 29707, 29662, 29815, 30492, 29347, 30096, 29054, 30238, 28813, 31895, 28915,
]

# Window, p, magnitude.
PARAMETERS = [(50, 0.001, 0.0), (30, 0.01, 0.05), (30, 0.01, 0.0), (30, 0.1, 0.01), (30, 0.2, 0.0), (10, 0.05, 0.0)]


def steps(seed, levels, deviation, digits=3):
    """Normal noise around levels, each (level, count)."""
    rng = random.Random(seed)
    return [round(rng.gauss(level, deviation), digits) for level, count in levels for _ in range(count)]


def series():
    rng = random.Random(7)
    yield "one step up", steps(1, [(100, 30), (110, 30)], 2)
    yield "one step down", steps(2, [(100, 45), (92, 15)], 2)
    yield "two steps", steps(3, [(100, 40), (110, 40), (95, 40)], 2)
    yield "a bump", steps(4, [(100, 40), (110, 20), (100, 40)], 2)
    yield "four steps", steps(5, [(10, 60), (14, 60), (9, 60), (12, 60), (16, 60)], 1)
    yield "small steps", steps(6, [(100, 60), (102, 60), (101, 60)], 1)
    yield "noise", steps(7, [(100, 80)], 5)
    yield "constant", [5.0] * 40
    yield "constant that rounds", [0.1] * 33
    yield "constant steps", [1.0] * 20 + [2.0] * 20 + [1.0] * 20
    yield "constant steps that round", [0.1] * 30 + [0.3] * 30
    yield "whole numbers with ties", [float(rng.randint(0, 3) + (4 if i >= 50 else 0)) for i in range(100)]
    yield "one spike", steps(8, [(50, 30), (500, 1), (50, 30)], 1)
    yield "two spikes", steps(9, [(50, 20), (90, 1), (50, 20), (90, 1), (50, 20)], 1)
    yield "heavy tail", [round(math.exp(rng.gauss(0, 1.2)) * (3 if i >= 60 else 1), 4) for i in range(120)]
    yield "around zero", steps(10, [(-1, 40), (1, 40)], 0.5)
    yield "a slope", [round(100 + 0.2 * i + rng.gauss(0, 1), 3) for i in range(120)]
    yield "two values", [1.0, 9.0]
    yield "three values", [1.0, 1.5, 9.0]
    yield "short", [1.0, 1.1, 0.9, 5.0, 5.1, 4.9]
    yield "tiny numbers", [value * 2.0**-40 for value in steps(11, [(100, 30), (120, 30)], 2)]
    yield "tigerbeetle", [float(value) for value in TIGERBEETLE]


def point(found):
    stats = found.stats
    return [int(found.index), float(found.qhat), float(stats.pvalue), float(stats.mean_1), float(stats.mean_2)]


def main():
    out = []
    for name, values in series():
        windows = []
        for window, max_p, magnitude in PARAMETERS:
            points, _ = compute_change_points(list(values), window, max_p, magnitude)
            points = [point(found) for found in points]
            windows.append({"window": window, "max_p": max_p, "magnitude": magnitude, "points": points})
        original = None
        if 2 < len(values) <= 300 or name == "two values":
            runs = []
            for seed in range(10):
                points, _ = compute_change_points_orig(list(values), max_pvalue=0.05, seed=seed)
                runs.append([[int(p.index), float(p.qhat)] for p in points])
            if all([p[0] for p in run] == [p[0] for p in runs[0]] for run in runs):
                original = runs[0]
        out.append({"name": name, "values": values, "windowed": windows, "e_divisive": original})
    target = pathlib.Path(__file__).parents[2] / "crates/stats/tests/vectors/change_points.json"
    lines = ",\n".join(json.dumps(entry) for entry in out)
    target.write_text(f"[\n{lines}\n]\n")


main()
