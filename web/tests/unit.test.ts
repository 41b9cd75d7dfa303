// Pure functions of the page: scales and clipping against plain loops, paths, hit testing, unpacking, number formats.

import { readdirSync, readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { aligned, found, viewOf, wholeOf } from "../src/align.ts";
import { inkOn } from "../src/canvas.tsx";
import { type Axis, fitted, textWidth } from "../src/chart.tsx";
import { moment, sizeBins } from "../src/charts.tsx";
import { at, type Explanation, type Made } from "../src/data.ts";
import * as format from "../src/format.ts";
import { firstView, hit, LANE_NAMES, prepare, stallsOf, windowEnds } from "../src/lanes.ts";
import * as link from "../src/link.ts";
import { pieces, windowsIn } from "../src/maps.tsx";
import { LANES_OF } from "../src/matrix.tsx";
import { layout, paintStalls, paintStarved, stallsIn } from "../src/paint.ts";
import { bandPath, linePath, stepBand, stepPath } from "../src/path.ts";
import { coverage, gapsOf, halved, layerFor, layers } from "../src/pyramid.ts";
import * as scale from "../src/scale.ts";
import { flame } from "../src/stacks.tsx";
import { unpack } from "../src/unpack.ts";
import * as verdict from "../src/verdict.tsx";
import { contrast, deltaE, lab } from "./colour.ts";
import { gaps, HOSTILE, hostile, random, sample } from "./sample.ts";

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
    expect(scale.logTicks(1e3, 1e6, 8)).toEqual([1e3, 1e4, 1e5, 1e6]);
    expect(scale.logTicks(900, 6000, 8)).toEqual([1000, 2000, 3000, 5000]);
    // Far less than a decade still has ticks, where the data are.
    expect(scale.logTicks(3e5, 5.2e5, 8)).toEqual([3e5, 3.5e5, 4e5, 4.5e5, 5e5]);
    expect(scale.logTicks(4.05e6, 4.35e6, 8).length).toBeGreaterThanOrEqual(2);
    expect(scale.logTicks(1, 1e12, 5).length).toBeLessThanOrEqual(5);
  });
  it("have labels that neither touch nor say the same twice", () => {
    const rand = random(7);
    for (let round = 0; round < 300; round++) {
      const log = rand() < 0.5;
      const from = 10 ** (rand() * 9);
      const to = from * (1 + 10 ** (rand() * 6 - 2));
      const width = 120 + rand() * 700;
      const text = [format.instant, format.time, format.rateTick, (of: number) => format.short(String(of), 4)][
        Math.floor(rand() * 4)
      ] as (of: number) => string;
      const axis: Axis = { from, to, log, text, title: "" };
      const x = (log ? scale.logarithmic : scale.linear)(from, to, 0, width);
      const shown = fitted(axis, x, width, textWidth);
      expect(shown.length).toBeGreaterThan(0);
      shown.slice(1).forEach((value, i) => {
        const before = at(shown, i);
        expect(text(value)).not.toBe(text(before));
        expect(x(value) - x(before)).toBeGreaterThanOrEqual((textWidth(text(value)) + textWidth(text(before))) / 2);
      });
    }
    // Three equal dates are one.
    const days = ["2026-11-22T10:00:00", "2026-11-22T11:30:00", "2026-11-22T12:00:00"];
    expect(days.map((_, i) => moment(days, i))).toEqual(["10:00:00", "11:30:00", "12:00:00"]);
    expect(moment(["2026-11-21T10:00:00", "2026-11-22T10:00:00"], 1)).toBe("2026-11-22");
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
        const seen = at(end, i) >= view.from && at(start, i) < view.to;
        if (seen) expect(i >= first && i < last).toBe(true);
      }
      if (first < last) expect(at(end, first) >= view.from).toBe(true);
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
  const [one_, two_] = [at(sides, 0), at(sides, 1)];
  it("hold every item once and in order", () => {
    const busy = prepare(at(sample({ kind: "busy", calls: 500 }).sides, 0).timeline);
    for (const name of LANE_NAMES) {
      const lane = busy.lanes[name];
      for (let k = 1; k < lane.start.length; k++) expect(lane.start[k]).toBeGreaterThanOrEqual(at(lane.start, k - 1));
      expect(new Set(lane.id).size).toBe(lane.id.length);
    }
    expect(busy.lanes.device.id.length).toBe(500);
  });
  it("hit the item under the pointer, as a plain loop does", () => {
    const lane = two_.lanes.device;
    for (let k = 0; k < lane.start.length; k++) {
      expect(hit(lane, (at(lane.start, k) + at(lane.end, k)) / 2, at(lane.row, k), 0)).toBe(k);
    }
    expect(hit(lane, at(lane.maxEnd, lane.maxEnd.length - 1) + 1e6, 0, 10)).toBe(-1);
  });
  it("link a call with what it led to", () => {
    const of = two_.ofCall(3);
    const { timeline } = two_;
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
    const ends = windowEnds(one_.timeline);
    expect([...ends]).toEqual(one_.timeline.requests.c);
  });
  it("find stalls where requests wait and the device idles", () => {
    const { timeline } = at(sample({ calls: 2 }).sides, 1);
    const stalls = stallsOf(timeline);
    expect(stalls.length).toBe(timeline.requests.q.length);
    stalls.forEach(([from, to], i) => {
      expect(from).toBe(timeline.requests.q[i]);
      expect(to).toBe(timeline.requests.d[i]);
    });
    timeline.requests.d = timeline.requests.q.slice();
    expect(stallsOf(timeline)).toEqual([]);
  });
  it("show the typical call of each side from its own zero at first", () => {
    const { origin } = aligned(sides, "typical", 1, 0);
    const view = firstView(sides, wholeOf(report, origin));
    const [a, b] = sides.map((side, nr) => {
      const own = viewOf(view, at(origin, nr));
      const { typical } = side.timeline.course;
      expect(typical && typical.start_ns >= own.from && typical.start_ns + typical.took_ns <= own.to).toBe(true);
      return stallsIn(side, own);
    }) as [{ count: number; ns: number }, { count: number; ns: number }];
    expect(b.count).toBeGreaterThanOrEqual(3);
    // At 1,200 px each of them is some px wide.
    expect((b.ns / b.count / (view.to - view.from)) * 1200).toBeGreaterThan(4);
    expect(a.ns).toBeLessThan(b.ns / 20);
  });
  it("draw depth where there are more items than rows", () => {
    const { timeline } = at(sample({ calls: 2 }).sides, 0);
    const n = 320;
    const many = (of: (i: number) => number) => Array.from({ length: n }, (_, i) => of(i));
    for (const column of Object.keys(timeline.requests) as (keyof typeof timeline.requests)[])
      timeline.requests[column] = many(() => 0);
    // 32 at once, each 32 long.
    Object.assign(timeline.requests, {
      q: many((i) => i),
      d: many((i) => i),
      c: many((i) => i + 32),
      dir: many((i) => i % 2),
    });
    const { device } = prepare(timeline).lanes;
    expect(device.depth?.most).toBe(32);
    const middle = scale.lowerBound(device.depth?.at ?? [], 100.5) - 1;
    expect([device.depth?.first[middle], device.depth?.second[middle]]).toEqual([16, 16]);
    // Few are drawn one by one.
    timeline.requests.c = many((i) => i + 4);
    const few = prepare(timeline).lanes.device;
    expect(few.depth).toBeNull();
    for (let k = 0; k < n; k++)
      for (let j = k + 1; j < Math.min(n, k + 4); j++) expect(few.row[j]).not.toBe(few.row[k]);
  });
  it("fold threads beyond four, and unfold them", () => {
    const { timeline } = at(sample({ kind: "busy", calls: 200 }).sides, 0);
    timeline.calls.thread = timeline.calls.thread.map((_, i) => i % 16);
    const [folded, unfolded] = [prepare(timeline), prepare(timeline, true)];
    expect([folded.threads, folded.lanes.calls.depth !== null]).toEqual([16, true]);
    expect([unfolded.lanes.calls.rows, unfolded.lanes.calls.depth]).toEqual([16, null]);
    expect(layout([unfolded]).height).toBeGreaterThan(layout([folded]).height);
  });
  it("leave out lanes that are empty on all sides", () => {
    const { timeline } = at(sample({ calls: 2 }).sides, 0);
    timeline.plugs = { start: [], end: [], call: [], cause: [], nr: [] };
    const lanes = layout([prepare(timeline)]).places.map((place) => place.lane);
    expect(lanes).not.toContain("plug");
    expect(lanes).toContain("device");
  });
});

describe("the pyramid", () => {
  const { report } = gaps();
  const sides = report.sides.map((side) => prepare(side.timeline));
  const { timeline } = at(sides, 1);
  it("joins neighbours by what they are", () => {
    const [base] = layers(timeline.pyramid);
    if (!base) throw new Error("no layer");
    const up = halved(base);
    expect(up.bin_ns).toBe(2 * base.bin_ns);
    const two = (name: keyof typeof up.columns, i: number) => [
      at(base.columns[name], 2 * i),
      at(base.columns[name], 2 * i + 1),
    ];
    for (let i = 0; i < up.columns.starved.length; i++) {
      expect(up.columns["device.most"][i]).toBe(Math.max(...two("device.most", i)));
      expect(up.columns["device.least"][i]).toBe(Math.min(...two("device.least", i)));
      expect(up.columns["pages.hit"][i]).toBe(two("pages.hit", i).reduce((x, y) => x + y, 0));
      expect(up.columns["device.share"][i]).toBeCloseTo(two("device.share", i).reduce((x, y) => x + y, 0) / 2, 3);
    }
    // The layer whose bins are about a pixel, and the topmost for whatever is farther away.
    expect(layerFor(timeline.pyramid, 0)).toBe(base);
    expect(layerFor(timeline.pyramid, base.bin_ns)?.bin_ns).toBe(2 * base.bin_ns);
    expect(layerFor(timeline.pyramid, 1e18)).toBe(layers(timeline.pyramid).at(-1));
  });
  it("is what remains where there is no detail, and that is said", () => {
    const end = timeline.elapsed_ns;
    const twentieths = gapsOf(timeline).map((gap) => gap.map((at) => Math.min(20, Math.round((at / end) * 20))));
    expect(twentieths).toEqual([
      [2, 9],
      [11, 20],
      [20, 20],
    ]);
    expect(coverage(timeline, { from: 0, to: end * 0.05 })).toEqual({ unknown: 0, outside: 0 });
    expect(coverage(timeline, { from: end * 0.05, to: end * 0.15 }).unknown).toBeCloseTo(0.5, 2);
    expect(coverage(timeline, { from: -end, to: end }).outside).toBeCloseTo(0.5, 5);
    expect(coverage(timeline, { from: 1.5 * end, to: 2 * end })).toEqual({ unknown: 0, outside: 1 });
  });
  it("has every number that is drawn", () => {
    for (const side of sides) {
      for (const column of Object.values(layers(side.timeline.pyramid)[0]?.columns ?? {})) {
        expect(column.length).toBe(side.timeline.pyramid.starved.length);
        expect(column.every(Number.isFinite)).toBe(true);
      }
    }
  });
});

describe("findings", () => {
  it("lead to a call in which their layer does something", () => {
    const sides = sample().sides.map((side) => prepare(side.timeline));
    for (const layer of ["plug", "read-ahead", "device", "CPU"]) {
      const lanes = LANES_OF[layer] ?? [];
      const row = link.example(at(sides, 1), lanes);
      const of = at(sides, 1).ofCall(row);
      expect(lanes.some((lane) => of[lane].length > 0)).toBe(true);
    }
    expect(
      link.example(prepare({ ...at(sides, 0).timeline, course: { ...at(sides, 0).timeline.course, typical: null } }), [
        "plug",
      ]),
    ).toBeGreaterThan(0);
  });
});

describe("windows", () => {
  it("in view are of the file that has most of them, within their pages", () => {
    const side = prepare(at(sample().sides, 1).timeline);
    const { windows } = side.timeline;
    const own = { from: 0, to: side.timeline.elapsed_ns / 4 };
    const { file, ids, low, high } = windowsIn(side, own);
    const expected = windows.at.flatMap((when, w) => (when <= own.to && at(side.windowEnd, w) >= 0 ? [w] : []));
    expect([file, ids]).toEqual([0, expected]);
    for (const w of ids) {
      expect(at(windows.first, w)).toBeGreaterThanOrEqual(low);
      expect(at(windows.first, w) + at(windows.nr, w)).toBeLessThanOrEqual(high);
    }
    expect(windowsIn(side, { from: -9, to: -8 }).ids).toEqual([]);
  });
});

describe("stalls", () => {
  /** Area of the red in a picture. */
  function painted(paint: (context: CanvasRenderingContext2D) => void): number {
    let area = 0;
    const context = {
      fillStyle: "",
      measureText: () => ({ width: 1e9 }),
      fillText: () => {},
      fillRect(this: { fillStyle: string }, _x: number, _y: number, width: number, height: number) {
        if (this.fillStyle === "stall-soft" || this.fillStyle === "narrow") area += width * height;
      },
    };
    paint(context as unknown as CanvasRenderingContext2D);
    return area;
  }
  // Wide ones are filled in stall-soft, narrow ones in stall; the line below a wide one does not count.
  const colour = (name: string) => (name === "stall" ? "narrow" : name);

  it("are as wide as they are, however far away", () => {
    const { timeline } = at(sample({ calls: 40 }).sides, 1);
    const side = prepare(timeline);
    const whole = { from: 0, to: timeline.elapsed_ns };
    const share = side.stalls.reduce((sum, [from, to]) => sum + to - from, 0) / timeline.elapsed_ns;
    const { places } = layout([side]);
    const [plug, device] = [places.find((of) => of.lane === "plug"), places.find((of) => of.lane === "device")];
    const tall = (device?.top ?? 0) + (device?.height ?? 0) - (plug?.top ?? 0);
    for (const width of [200, 1000, 3000]) {
      const area = painted((context) => paintStalls(context, side, places, whole, width, colour, "none"));
      expect(area / (width * tall) / share).toBeGreaterThan(0.97);
      // The line at the foot of wide ones adds a little.
      expect(area / (width * tall) / share).toBeLessThan(1.1);
    }
    const starved = timeline.overview.starved.reduce((sum, of) => sum + of, 0) * timeline.overview.slice_ns;
    const x = scale.linear(0, timeline.elapsed_ns, 0, 1000);
    const area = painted((context) => paintStarved(context, side, 0, 20, x, colour));
    expect(area / (1000 * 20)).toBeCloseTo(starved / timeline.elapsed_ns, 3);
  });
});

describe("links", () => {
  it("lead to the moment that they were made of", () => {
    const table: link.Moment[] = [
      { view: { from: -5, to: 1000 }, by: "typical", origin: [12, 34], call: [1, 65] },
      { view: { from: 0, to: 2e9 }, by: "clock", origin: [0], call: null },
    ];
    for (const of of table) expect(link.read(link.written(of))).toEqual(of);
    for (const hash of ["", "#findings", "#t=3", "#t=5,1", "#t=a,b", "#find=x"]) expect(link.read(hash)).toBeNull();
    expect(link.read("#t=1,2&align=<b>&zero=x&call=Z.9")).toEqual({
      view: { from: 1, to: 2 },
      by: "clock",
      origin: [0, 0],
      call: null,
    });
  });
  it("are found by number, sector and name", () => {
    const sides = sample({ calls: 8 }).sides.map((side) => prepare(side.timeline));
    const { requests } = at(sides, 1).timeline;
    expect(found(sides, "call 3")).toEqual({ side: 1, row: 2, nr: 3 });
    expect(found(sides, " 8 ")?.nr).toBe(8);
    expect(found(sides, `sector ${at(requests.sector, 20) + 1}`)?.row).toBe(at(requests.call, 20));
    expect(found(sides, "TABLE")?.row).toBe(0);
    for (const words of ["", "9000", "sector 99999999", "nothing"]) expect(found(sides, words)).toBeNull();
  });
  it("align calls by number and by place in the file", () => {
    const sides = sample({ calls: 8 }).sides.map((side) => prepare(side.timeline));
    const start = (side: number, row: number) => at(at(sides, side).timeline.calls.start, row);
    for (const by of ["call", "offset"] as const) {
      expect(aligned(sides, by, 1, 5).origin).toEqual([start(0, 5), start(1, 5)]);
    }
    expect(aligned(sides, "clock", 1, 5).origin).toEqual([0, 0]);
    at(sides, 0).timeline.calls.offset.fill(7);
    expect(aligned(sides, "offset", 1, 5).note).toContain("A has no call at this offset");
  });
});

describe("the first screen", () => {
  const made = (of: Partial<Made>): Made => ({ ...(sample().explanation?.findings[0]?.counterfactual as Made), ...of });
  it("calls an experiment by what it says", () => {
    const table: [Partial<Made>, string][] = [
      [{ outcome: "confirmed" }, "Confirmed"],
      [{ outcome: "partly", gone_pct: 50 }, "Partly confirmed"],
      [{ outcome: "partly", gone_pct: 131 }, "Overshoots"],
      [{ outcome: "partly", gone_pct: 131, figures_moved: false }, "Partly confirmed"],
      [{ outcome: "refuted", gone_pct: -32 }, "Refuted"],
    ];
    for (const [of, word] of table) expect(verdict.outcome(made(of))).toBe(word);
  });
  it("has the interval of its own number, and not of another", () => {
    const of = sample().explanation as Explanation;
    expect(verdict.interval({ ...of, ci_low_pct: 1.25, ci_high_pct: 9.75 })).toBe("95 % interval [+1.3 %, +9.8 %]");
    expect(verdict.interval({ ...of, ci_low_pct: null, runs_a: 1, runs_b: 1 })).toBe("no interval from 1 and 1 runs");
  });
  it("has coefficients of variation in percent, as the data has them", () => {
    expect([verdict.spread(57.585), verdict.spread(1.2), verdict.spread(null)]).toEqual(["57.6 %", "1.20 %", "none"]);
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
      [format.signed(-0.01, (ns) => format.time(ns)), "0 s"],
      [format.signed(-1500, (ns) => format.time(ns)), "−1.50 µs"],
      [format.sizeTick(3 * 2 ** 29), "1.5 GiB"],
      [format.rateTick(1), "1 B/s"],
      [format.rateTick(250e6), "250 MB/s"],
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
    expect(bins.reduce((sum, bin) => sum + at(bin.share, 0), 0)).toBeCloseTo(1, 12);
  });
  it("join strips of a file that went through the same", () => {
    expect(pieces([1, 1, 2, 4, 4], [null, null, null, "x", "y"])).toEqual([
      { from: 0, to: 2, state: 1, by: null },
      { from: 2, to: 3, state: 2, by: null },
      { from: 3, to: 4, state: 4, by: "x" },
      { from: 4, to: 5, state: 4, by: "y" },
    ]);
  });
});

describe("colours", () => {
  const css = readFileSync(new URL("../src/style.css", import.meta.url), "utf8");
  const looks = [/:root \{([^}]*)\}/, /:root\[data-look="dark"\] \{([^}]*)\}/].map(
    (of) =>
      new Map(
        [...(of.exec(css)?.[1] ?? "").matchAll(/--([a-z-]+): (#[0-9a-f]{6});/g)].map((one) => [
          one[1] ?? "",
          one[2] ?? "",
        ]),
      ),
  );
  const of = (look: Map<string, string>, name: string) => {
    const found = look.get(name);
    if (!found) throw new Error(`no colour ${name}`);
    return found;
  };
  it("are told apart as far as published pairs are", () => {
    // Sharma, Wu and Dalal 2005, table 1.
    expect(deltaE([50, 2.6772, -79.7751], [50, 0, -82.7485])).toBeCloseTo(2.0425, 4);
    expect(deltaE([60.2574, -34.0099, 36.2677], [60.4626, -34.1751, 39.4387])).toBeCloseTo(1.2644, 4);
    expect(deltaE([2.0776, 0.0795, -1.135], [0.9033, -0.0636, -0.5514])).toBeCloseTo(0.9082, 4);
  });
  it("stay apart for colour-blind eyes", () => {
    const names = ["a", "b", "read", "write", "stall", "device"];
    for (const look of looks)
      for (const eyes of ["none", "protanopia", "deuteranopia"] as const)
        names.forEach((name, i) => {
          for (const other of names.slice(i + 1)) {
            const apart = deltaE(lab(of(look, name), eyes), lab(of(look, other), eyes));
            expect(apart, `${name} and ${other}, ${eyes}`).toBeGreaterThanOrEqual(15);
          }
        });
  });
  it("bear the text that is written on them", () => {
    for (const look of looks)
      for (const name of ["read", "write", "sync", "plug", "queue", "window"]) {
        const fill = of(look, name);
        expect(contrast(fill, inkOn(fill)), name).toBeGreaterThanOrEqual(4.5);
      }
  });
});

describe("flame graphs", () => {
  it("have each caller once, below what it calls", () => {
    const stack = (frames: string, ns: number) => ({ frames: frames.split(";"), ns, count: 1 });
    const frames = flame([stack("t;main;row;read", 50), stack("t;main;fsync", 30), stack("t;row", 20)]);
    expect(frames.map(({ name, from, ns, count, depth }) => [name, from, ns, count, depth])).toEqual([
      ["t", 0, 100, 3, 0],
      ["main", 0, 80, 2, 1],
      ["fsync", 0, 30, 1, 2],
      ["row", 30, 50, 1, 2],
      ["read", 30, 50, 1, 3],
      ["row", 80, 20, 1, 1],
    ]);
    expect(flame([])).toEqual([]);
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
