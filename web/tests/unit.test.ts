// Pure functions of the page: scales and clipping against plain loops, paths, hit testing, unpacking, number formats.

import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { sizeBins } from "../src/charts.tsx";
import * as format from "../src/format.ts";
import { firstView, hit, LANE_NAMES, prepare, stallsOf, windowEnds } from "../src/lanes.ts";
import { pieces } from "../src/maps.tsx";
import { stallsIn } from "../src/paint.ts";
import { bandPath, linePath, stepBand, stepPath } from "../src/path.ts";
import * as scale from "../src/scale.ts";
import { unpack } from "../src/unpack.ts";
import { cause } from "../src/verdict.tsx";
import { HOSTILE, hostile, random, sample } from "./sample.ts";

const one = ((value: number) => value) as scale.Scale;

describe("scales", () => {
  it("invert", () => {
    for (const of of [scale.linear(3, 19, 40, 900), scale.logarithmic(1e3, 1e9, 40, 900)]) {
      for (const px of [40, 100, 555.5, 900]) expect(of(of.invert(px))).toBeCloseTo(px, 6);
    }
    expect(scale.linear(0, 10, 0, 100)(2.5)).toBe(25);
    expect(scale.logarithmic(1, 100, 0, 2)(10)).toBeCloseTo(1, 12);
  });
  it("have round ticks within the range", () => {
    expect(scale.ticks(0, 10, 5)).toEqual([0, 2, 4, 6, 8, 10]);
    expect(scale.ticks(-1, 1, 4)).toEqual([-1, -0.5, 0, 0.5, 1]);
    expect(scale.ticks(5, 5, 4)).toEqual([5]);
    expect(scale.logTicks(1e3, 1e6)).toEqual([1e3, 1e4, 1e5, 1e6]);
    expect(scale.logTicks(900, 6000)).toEqual([1000, 2000, 5000]);
  });
});

describe("views", () => {
  const whole = { from: 0, to: 1000 };
  it("stay within the whole", () => {
    expect(scale.panned({ from: 0, to: 100 }, -50, whole)).toEqual({ from: 0, to: 100 });
    expect(scale.panned({ from: 850, to: 950 }, 500, whole)).toEqual({ from: 900, to: 1000 });
    expect(scale.zoomed({ from: 400, to: 600 }, 100, 500, whole, 1)).toEqual(whole);
    expect(scale.zoomed({ from: 400, to: 600 }, 0.5, 500, whole, 1)).toEqual({ from: 450, to: 550 });
    const least = scale.zoomed({ from: 400, to: 600 }, 1e-9, 450, whole, 10);
    expect(least.to - least.from).toBeCloseTo(10, 9);
  });
  it("keep the point they zoom around", () => {
    const rand = random(4);
    for (let k = 0; k < 200; k++) {
      const view = { from: 300 + rand() * 50, to: 500 + rand() * 50 };
      const around = view.from + rand() * (view.to - view.from);
      const next = scale.zoomed(view, 0.3 + rand() * 0.6, around, whole, 1);
      const share = (of: scale.View) => (around - of.from) / (of.to - of.from);
      expect(share(next)).toBeCloseTo(share(view), 9);
    }
  });
});

describe("clipping", () => {
  it("finds everything that a plain loop finds", () => {
    const rand = random(9);
    for (let round = 0; round < 100; round++) {
      const n = Math.floor(rand() * 60);
      const start = Array.from({ length: n }, () => rand() * 100).sort((x, y) => x - y);
      const end = start.map((of) => of + rand() * (rand() < 0.1 ? 80 : 5));
      const view = { from: rand() * 100, to: 0 };
      view.to = view.from + rand() * 20;
      const [first, last] = scale.inView(start, scale.runningMax(end), view);
      for (let i = 0; i < n; i++) {
        const seen = end[i] >= view.from && start[i] < view.to;
        if (seen) expect(i >= first && i < last).toBe(true);
      }
      if (first < last) expect(end[first] >= view.from).toBe(true);
    }
  });
  it("puts no two items of a row on each other while there are rows", () => {
    const { row, used } = scale.rows([0, 1, 2, 10, 11], [5, 3, 9, 12, 12], 4);
    expect([...row]).toEqual([0, 1, 2, 0, 1]);
    expect(used).toBe(3);
  });
  it("unites and subtracts intervals", () => {
    const rand = random(2);
    for (let round = 0; round < 100; round++) {
      const some = () =>
        Array.from({ length: Math.floor(rand() * 8) }, () => {
          const from = Math.floor(rand() * 60);
          return [from, from + Math.floor(rand() * 12)] as const;
        });
      const [a, b] = [some(), some()];
      const got = scale.minus(scale.union(a), scale.union(b));
      const holds = (of: readonly (readonly [number, number])[], at: number) =>
        of.some(([from, to]) => from <= at && at < to);
      for (let at = 0; at < 80; at++) expect(holds(got, at + 0.5)).toBe(holds(a, at + 0.5) && !holds(b, at + 0.5));
    }
  });
});

describe("paths", () => {
  it("are steps for distributions", () => {
    expect(stepPath([1, 3], [0.5, 1], one, one, 5)).toBe("M1 0H1V0.5H3V1H5");
    expect(stepPath([], [], one, one)).toBe("");
    expect(stepBand([1, 3], [0, 1], [2, 4], one, one, 5)).toBe("M1 2H3V4H5V1H3V0H1Z");
  });
  it("leave out what does not exist", () => {
    expect(linePath([1, 2, 3, 4], [1, null, 3, 4], one, one)).toBe("M1 1M3 3L4 4");
    expect(bandPath([1, 2, 3], [0, null, 0], [1, 1, 2], one, one)).toBe("M1 1L3 2L3 0L1 0Z");
  });
});

describe("lanes", () => {
  const report = sample({ calls: 12 });
  const sides = report.sides.map((side) => prepare(side.timeline));
  it("hold every item once and in order", () => {
    const busy = prepare(sample({ kind: "busy", calls: 500 }).sides[0].timeline);
    for (const name of LANE_NAMES) {
      const lane = busy.lanes[name];
      for (let k = 1; k < lane.start.length; k++) expect(lane.start[k]).toBeGreaterThanOrEqual(lane.start[k - 1]);
      expect(new Set(lane.id).size).toBe(lane.id.length);
    }
    expect(busy.lanes.device.id.length).toBe(500);
  });
  it("hit the item under the pointer, as a plain loop does", () => {
    const lane = sides[1].lanes.device;
    for (let k = 0; k < lane.start.length; k++) {
      expect(hit(lane, (lane.start[k] + lane.end[k]) / 2, lane.row[k], 0)).toBe(k);
    }
    expect(hit(lane, lane.maxEnd[lane.maxEnd.length - 1] + 1e6, 0, 10)).toBe(-1);
  });
  it("link a call with what it led to", () => {
    const of = sides[1].ofCall(3);
    const { timeline } = sides[1];
    for (const [name, call] of [
      ["windows", timeline.windows.call],
      ["plug", timeline.plugs.call],
      ["pages", timeline.pages.call],
      ["device", timeline.requests.call],
    ] as const) {
      expect(of[name]).toEqual(call.flatMap((one, id) => (one === 3 ? [id] : [])));
    }
  });
  it("end windows when their last page arrives", () => {
    const ends = windowEnds(sides[0].timeline);
    expect([...ends]).toEqual(sides[0].timeline.requests.c);
  });
  it("find stalls where requests wait and the device idles", () => {
    const { timeline } = sample({ calls: 2 }).sides[1];
    const stalls = stallsOf(timeline);
    expect(stalls.length).toBe(timeline.requests.q.length);
    stalls.forEach(([from, to], i) => {
      expect(from).toBe(timeline.requests.q[i]);
      expect(to).toBe(timeline.requests.d[i]);
    });
    timeline.requests.d = timeline.requests.q.slice();
    expect(stallsOf(timeline)).toEqual([]);
  });
  it("show the stalls of B and none such in A at first sight", () => {
    const whole = { from: 0, to: Math.max(...report.sides.map((side) => side.timeline.elapsed_ns)) };
    const view = firstView(sides, whole);
    const [a, b] = sides.map((side) => stallsIn(side, view));
    expect(b.count).toBeGreaterThanOrEqual(3);
    // At 1,200 px each of them is some px wide.
    expect((b.ns / b.count / (view.to - view.from)) * 1200).toBeGreaterThan(4);
    expect(a.ns).toBeLessThan(b.ns / 20);
  });
});

describe("unpacking", () => {
  const block = (json: string) => gzipSync(Buffer.from(json)).toString("base64");
  it("gives back what was packed", async () => {
    const json = JSON.stringify(hostile());
    const got = await unpack(`\n${block(json)}\n`);
    expect(got?.json).toBe(json);
    expect(got?.report.title).toBe(HOSTILE[2]);
  });
  it("knows an empty block from a broken one", async () => {
    expect(await unpack("  \n")).toBeNull();
    await expect(unpack("AAAA")).rejects.toThrow();
    await expect(unpack(block('{"schema":"other/1"}'))).rejects.toThrow(/other\/1/);
    await expect(unpack(block("{"))).rejects.toThrow();
  });
});

describe("formats", () => {
  it("are those of the terminal", () => {
    const table: [string, string][] = [
      [format.time(4_261_889.2), "4.26 ms"],
      [format.time(15_197), "15.2 µs"],
      [format.time(0.01), "0 s"],
      [format.time(1e9), "1.00 s"],
      [format.time(999_960), "1000 µs"],
      [format.instant(2_000_000), "2 ms"],
      [format.instant(1_250), "1.25 µs"],
      [format.size(131_072), "128 KiB"],
      [format.size(512), "512 B"],
      [format.change(570.69), "+570.7 %"],
      [format.change(-3), "−3.0 %"],
      [format.quantity(0.99988, "share"), "100.0 %"],
      [format.quantity(null, "ns"), "none"],
      [format.quantity(3.908, "ratio"), "3.91"],
      [format.sure(0.9), "almost certain"],
      [format.sure(0.8), "likely"],
      [format.sure(0.1), "possible"],
      [format.short("x".repeat(10_000), 5), "xxxx…"],
      [format.short("abc", 5), "abc"],
    ];
    for (const [got, expected] of table) expect(got).toBe(expected);
  });
  it("bin sizes: few as they are, many by powers of two, shares summing to one", () => {
    expect(sizeBins([{ bytes: [4096, 8192], count: [1, 3] }]).map((bin) => bin.share[0])).toEqual([0.25, 0.75]);
    const bytes = Array.from({ length: 40 }, (_, i) => (i + 1) * 4096);
    const bins = sizeBins([{ bytes, count: bytes.map(() => 2) }]);
    expect(bins.length).toBe(6);
    expect(bins.reduce((sum, bin) => sum + bin.share[0], 0)).toBeCloseTo(1, 12);
  });
  it("join strips of a file that went through the same", () => {
    expect(pieces([1, 1, 2, 4, 4], [null, null, null, "x", "y"])).toEqual([
      { from: 0, to: 2, state: 1, by: null },
      { from: 2, to: 3, state: 2, by: null },
      { from: 3, to: 4, state: 4, by: "x" },
      { from: 4, to: 5, state: 4, by: "y" },
    ]);
  });
  it("do not say twice what to do", () => {
    const first = sample().explanation?.findings[0];
    expect(cause(`Why: Because. To do: ${first?.change} It is not alone: x as well.`, first)).toBe(
      "Because. It is not alone: x as well.",
    );
    expect(cause("Why: Because.", undefined)).toBe("Because.");
  });
});

describe("sources", () => {
  it("never hand markup to the browser", () => {
    const folder = new URL("../src/", import.meta.url);
    for (const name of readdirSync(folder)) {
      const text = readFileSync(new URL(name, folder), "utf8");
      expect(text, name).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(/i);
    }
  });
});
