"""A limit of read-ahead, with and without: compared and explained."""

import iowhy

JOB = "paralleldd size=4m readers=3 files=multi bs=64k"
PLACES = ["sim:linux-6.18", "sim:linux-6.18,read_ahead_kb=16"]


def main() -> None:
    runs = iowhy.run(JOB, on=PLACES, disk="sata-2014", repeat=5)
    print(runs.text)
    print(iowhy.compare(runs, metrics=["elapsed_s"]).verdict)
    answer = iowhy.explain(*PLACES, job=JOB, disk="sata-2014")
    print(answer.verdict, [finding["rule"] for finding in answer["findings"]])


if __name__ == "__main__":
    main()
