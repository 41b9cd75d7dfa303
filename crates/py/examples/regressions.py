"""Regressions that nobody has reported: random jobs on two kernels, ranked by effect, and the largest ones made small."""

import random
import statistics
from collections.abc import Iterable, Iterator

import iowhy
import polars

KERNELS = ["sim:linux-6.12", "sim:linux-6.18"]
DISKS = ["sata-2014", "nvme"]
JOB = (
    "fio --name=r --rw=${rw} --bs=${bs} --size=${size} --numjobs=${jobs} --ioengine=libaio --iodepth=${depth}"
    " --iodepth_batch=${batch} --direct=${direct} --fsync=${fsync} --number_ios=400"
)
# The first value of each is the plainest.
CHOICES: dict[str, list[str]] = {
    "rw": ["read", "randread", "write", "randwrite", "randrw"],
    "bs": ["4k", "16k", "64k", "256k"],
    "size": ["8m", "64m"],
    "jobs": ["1", "2", "4"],
    "depth": ["1", "8", "32"],
    "batch": ["1", "8"],
    "direct": ["1", "0"],
    "fsync": ["0", "16"],
    "elevator": ["none", "mq-deadline", "kyber", "bfq"],
}

Options = dict[str, str]
Ranked = list[tuple[float, str, Options]]


def points(jobs: Iterable[tuple[str, Options]], seeds: int) -> Iterator[dict[str, object]]:
    for disk, options in jobs:
        for on in KERNELS:
            for seed in range(1, seeds + 1):
                place = f"{on},elevator={options['elevator']}"
                yield {"on": place, "disk": disk, "options": options, "seed": seed}


def ranked(jobs: list[tuple[str, Options]], seeds: int = 5) -> Ranked:
    """The jobs by how much longer the second kernel takes, median against median, the largest effect first."""
    swept = iowhy.sweep(points(jobs, seeds), job=JOB, metrics=["elapsed_s"])
    seconds: list[float] = polars.DataFrame(swept)["elapsed_s"].to_list()
    medians = [statistics.median(seconds[at : at + seeds]) for at in range(0, len(seconds), seeds)]
    ratios = [after / before for before, after in zip(medians[::2], medians[1::2])]
    found = [(ratio, disk, options) for ratio, (disk, options) in zip(ratios, jobs)]
    return sorted(found, key=lambda one: -one[0])


def minimised(ratio: float, disk: str, options: Options) -> tuple[float, Options]:
    """The job with every option plain that can be, while half of the effect remains."""
    least = 1 + (ratio - 1) / 2
    for name, (plain, *_) in CHOICES.items():
        simpler = {**options, name: plain}
        if simpler != options:
            now = ranked([(disk, simpler)])[0][0]
            if now >= least:
                ratio, options = now, simpler
    return ratio, options


def main(jobs: int = 300, seed: int = 1) -> Ranked:
    draw = random.Random(seed)
    drawn = [(draw.choice(DISKS), {name: draw.choice(of) for name, of in CHOICES.items()}) for _ in range(jobs)]
    found = []
    for ratio, disk, options in ranked(drawn)[:3]:
        small, plain = minimised(ratio, disk, options)
        words = " ".join(f"{name}={value}" for name, value in plain.items() if value != CHOICES[name][0])
        print(f"{small:.2f}x on {disk}: {words or 'the plainest job'}")
        found.append((small, disk, plain))
    return found


if __name__ == "__main__":
    main()
