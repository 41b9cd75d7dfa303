// Reports made from a seed, without iowhy: for tests of the page. `plugged` reads a file through windows; in B each window
// stays in the plug while the reader copies, so the device starves (the incident of 2012). `busy` has many items in every
// lane. `hostile` has strings that try to be more than text.

import { at, type Comparison, type Ecdf, type Report, type Shift, type Side, type Timeline } from "../src/data.ts";

export type Random = () => number;

/** Mulberry32. */
export function random(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

function emptyPyramid(): Timeline["pyramid"] {
  const level = () => ({ least: [], most: [], share: [] });
  return {
    bin_ns: 0,
    calls: level(),
    pages: { hit: [], missed: [], added: [], removed: [] },
    windows: { nr: [], pages: [] },
    plug: level(),
    queue: level(),
    device: level(),
    starved: [],
  };
}

/** The run in bins, counted from its rows. */
function pyramid(of: Timeline, end: number): Timeline["pyramid"] {
  const bins = 1024;
  const bin_ns = Math.ceil(end / bins);
  const zeros = () => new Array<number>(bins).fill(0);
  const bin = (at: number) => Math.max(0, Math.min(bins - 1, Math.floor(at / bin_ns)));
  const level = (start: number[], stop: number[]) => {
    const out = { least: zeros(), most: zeros(), share: zeros() };
    start.forEach((from, i) => {
      for (let b = bin(from); b <= bin(at(stop, i)); b++) {
        out.most[b] = at(out.most, b) + 1;
        const part = Math.min(at(stop, i), (b + 1) * bin_ns) - Math.max(from, b * bin_ns);
        out.share[b] = Math.min(1000, at(out.share, b) + Math.round((1000 * Math.max(0, part)) / bin_ns));
      }
    });
    return out;
  };
  const pages = [zeros(), zeros(), zeros(), zeros()] as const;
  of.pages.at.forEach((when, i) => {
    const column = at(pages, at(of.pages.kind, i));
    column[bin(when)] = at(column, bin(when)) + at(of.pages.nr, i);
  });
  const windows = { nr: zeros(), pages: zeros() };
  of.windows.at.forEach((when, i) => {
    windows.nr[bin(when)] = at(windows.nr, bin(when)) + 1;
    windows.pages[bin(when)] = Math.max(at(windows.pages, bin(when)), at(of.windows.nr, i));
  });
  const [added, hit, missed, removed] = pages;
  return {
    bin_ns,
    calls: level(of.calls.start, of.calls.end),
    pages: { hit, missed, added, removed },
    windows,
    plug: level(of.plugs.start, of.plugs.end),
    queue: level(of.requests.i, of.requests.d),
    device: level(of.requests.d, of.requests.c),
    starved: zeros(),
  };
}

function emptyTimeline(seed: number): Timeline {
  return {
    seed,
    elapsed_ns: 0,
    nr_events: 0,
    files: [],
    overview: {
      slice_ns: 1,
      depth_min: [],
      depth_max: [],
      read_bytes: [],
      write_bytes: [],
      calls: [],
      starved: [],
      done_bytes: [],
      done_calls: [],
    },
    pyramid: emptyPyramid(),
    stalls: { count: 0, ns: 0 },
    course: { calls: 0, points: { start: [], took: [] }, heat: null, typical: null, onset: null },
    detail: [],
    first_difference: null,
    calls: { nr: [], start: [], end: [], op: [], file: [], offset: [], bytes: [], thread: [] },
    pages: { at: [], call: [], kind: [], file: [], first: [], nr: [] },
    windows: {
      at: [],
      call: [],
      kind: [],
      file: [],
      first: [],
      nr: [],
      marker: [],
      used: [],
      unused: [],
      thrashed: [],
    },
    window_kinds: ["sync", "async", "mmap-around", "forced"],
    plugs: { start: [], end: [], call: [], cause: [], nr: [] },
    unplug_causes: ["explicit", "schedule"],
    requests: {
      q: [],
      g: [],
      i: [],
      d: [],
      c: [],
      call: [],
      dir: [],
      content: [],
      sector: [],
      sectors: [],
      bios: [],
      depth: [],
      file: [],
      first: [],
      nr: [],
    },
    contents: ["data", "journal", "metadata"],
    map: [],
  };
}

/** Sequential reads of `calls` MiB through windows of 32 pages. */
function sequential(seed: number, calls: number, plugged: boolean): Timeline {
  const of = emptyTimeline(seed);
  const rand = random(seed);
  const [perCall, perWindow] = [256, 32];
  of.files = [{ name: "data/table.ibd", bytes: calls * perCall * 4096 }];
  let now = 0;
  let deviceFree = 0;
  for (let call = 0; call < calls; call++) {
    const start = now;
    for (let w = 0; w < perCall / perWindow; w++) {
      const first = call * perCall + w * perWindow;
      const at = now;
      of.windows.at.push(at);
      of.windows.call.push(call);
      of.windows.kind.push(call + w === 0 ? 0 : 1);
      of.windows.file.push(0);
      of.windows.first.push(first);
      of.windows.nr.push(perWindow);
      of.windows.marker.push(first + perWindow / 2);
      of.windows.used.push(perWindow);
      of.windows.unused.push(0);
      of.windows.thrashed.push(0);
      of.pages.at.push(at, at + 400);
      of.pages.call.push(call, call);
      of.pages.kind.push(w === 0 ? 2 : 0, 0);
      of.pages.file.push(0, 0);
      of.pages.first.push(first, first);
      of.pages.nr.push(1, perWindow);
      const hold = plugged ? 280_000 + Math.floor(rand() * 60_000) : 4_000;
      of.plugs.start.push(at);
      of.plugs.end.push(at + hold);
      of.plugs.call.push(call);
      of.plugs.cause.push(plugged ? 1 : 0);
      of.plugs.nr.push(1);
      const d = Math.max(at + hold + 1_500, deviceFree);
      const service = 480_000 + Math.floor(rand() * 80_000);
      deviceFree = d + service;
      const r = of.requests;
      r.q.push(at + 900);
      r.g.push(at + 1_200);
      r.i.push(at + hold);
      r.d.push(d);
      r.c.push(deviceFree);
      r.call.push(call);
      r.dir.push(0);
      r.content.push(0);
      r.sector.push(2048 + first * 8);
      r.sectors.push(perWindow * 8);
      r.bios.push(1);
      r.depth.push(1);
      r.file.push(0);
      r.first.push(first);
      r.nr.push(perWindow);
      const copied = plugged ? deviceFree + 15_000 : at + service * 0.98 + 8_000;
      of.pages.at.push(copied - 7_000);
      of.pages.call.push(call);
      of.pages.kind.push(1);
      of.pages.file.push(0);
      of.pages.first.push(first);
      of.pages.nr.push(perWindow - (w === 0 ? 1 : 0));
      now = copied;
    }
    of.calls.nr.push(call + 1);
    of.calls.start.push(start);
    of.calls.end.push(now);
    of.calls.op.push(0);
    of.calls.file.push(0);
    of.calls.offset.push(call * perCall * 4096);
    of.calls.bytes.push(perCall * 4096);
    of.calls.thread.push(0);
    now += 15_000;
  }
  finish(of, Math.max(now, deviceFree));
  of.first_difference = 0;
  const strips = Math.min(2000, calls * 8);
  of.map = [
    {
      file: 0,
      strip_pages: Math.ceil((calls * perCall) / strips),
      state: Array.from({ length: strips }, (_, i) =>
        i % 8 === 0 ? 2 : plugged && i > strips * 0.92 ? 3 : !plugged && i > strips * 0.8 && i < strips * 0.84 ? 4 : 1,
      ),
      by: Array.from({ length: strips }, (_, i) =>
        !plugged && i > strips * 0.8 && i < strips * 0.84 && i % 8 !== 0 ? "another job (backup)" : null,
      ),
      resident: [0, 0.5, 1].map((part) => Array.from({ length: strips }, (_, i) => (i < strips * part ? 1000 : 0))),
    },
  ];
  return of;
}

/** Everything at random, sorted by time. */
function busy(seed: number, items: number): Timeline {
  const of = emptyTimeline(seed);
  const rand = random(seed);
  const span = items * 50_000;
  of.files = Array.from({ length: 3 }, (_, i) => ({ name: `file.${i}`, bytes: 2 ** 30 }));
  const times = () => Array.from({ length: items }, () => Math.floor(rand() * span)).sort((x, y) => x - y);
  const whole = (most: number) => Array.from({ length: items }, () => Math.floor(rand() * most));
  const after = (start: number[], most: number) => start.map((of) => of + 1 + Math.floor(rand() * most));
  const start = times();
  of.calls = {
    nr: start.map((_, i) => i + 1),
    start,
    end: after(start, 200_000),
    op: whole(3),
    file: whole(3),
    offset: whole(2 ** 18).map((of) => of * 4096),
    bytes: whole(64).map((of) => (of + 1) * 4096),
    thread: whole(4),
  };
  of.pages = {
    at: times(),
    call: whole(items),
    kind: whole(4),
    file: whole(3),
    first: whole(2 ** 18),
    nr: whole(32).map((of) => of + 1),
  };
  const nr = whole(64).map((of) => of + 4);
  const first = whole(2 ** 18);
  of.windows = {
    at: times(),
    call: whole(items),
    kind: whole(4),
    file: whole(3),
    first,
    nr,
    marker: first.map((page, i) => (i % 5 === 0 ? -1 : page + Math.floor(at(nr, i) / 2))),
    used: nr.map((of) => of - 3),
    unused: nr.map(() => 2),
    thrashed: nr.map(() => 1),
  };
  const plug = times();
  of.plugs = { start: plug, end: after(plug, 90_000), call: whole(items), cause: whole(2), nr: whole(16) };
  const q = times();
  const g = after(q, 2_000);
  const i = after(g, 40_000);
  const d = after(i, 60_000);
  of.requests = {
    q,
    g,
    i,
    d,
    c: after(d, 150_000),
    call: whole(items).map((of) => of - 1),
    dir: whole(2),
    content: whole(3),
    sector: whole(2 ** 21).map((of) => of * 8),
    sectors: whole(128).map((of) => (of + 1) * 8),
    bios: whole(8).map((of) => of + 1),
    depth: whole(32).map((of) => of + 1),
    file: whole(3),
    first: whole(2 ** 18),
    nr: whole(128).map((of) => of + 1),
  };
  finish(of, Math.max(span, ...of.requests.c, ...of.calls.end) + 1);
  of.first_difference = Math.floor(items / 3);
  of.map = of.files.map((_, file) => ({
    file,
    strip_pages: 132,
    state: Array.from({ length: 2000 }, () => Math.floor(rand() * 5)),
    by: Array.from({ length: 2000 }, () => null),
    resident: [0, 1, 2].map(() => Array.from({ length: 2000 }, () => Math.floor(rand() * 1001))),
  }));
  return of;
}

function finish(of: Timeline, end: number) {
  of.elapsed_ns = end;
  of.nr_events = of.calls.start.length * 2 + of.pages.at.length + of.windows.at.length + of.requests.q.length * 5;
  of.detail = [{ from_ns: 0, to_ns: end, why: "start" }];
  const slices = 200;
  const slice = Math.ceil(end / slices);
  const zeros = () => new Array<number>(slices).fill(0);
  of.overview = {
    slice_ns: slice,
    depth_min: zeros(),
    depth_max: zeros(),
    read_bytes: zeros(),
    write_bytes: zeros(),
    calls: zeros(),
    starved: zeros(),
    done_bytes: zeros(),
    done_calls: zeros(),
  };
  const add = (column: number[], i: number, by: number) => {
    column[i] = at(column, i) + by;
  };
  for (let r = 0; r < of.requests.q.length; r++) {
    const [q, d, c] = [at(of.requests.q, r), at(of.requests.d, r), at(of.requests.c, r)];
    for (let s = Math.floor(d / slice); s <= Math.min(slices - 1, Math.floor(c / slice)); s++)
      add(of.overview.depth_max, s, 1);
    const s = Math.min(slices - 1, Math.floor(c / slice));
    add(of.overview[of.requests.dir[r] === 0 ? "read_bytes" : "write_bytes"], s, at(of.requests.sectors, r) * 512);
    const held = Math.min(slices - 1, Math.floor(q / slice));
    const starved = Math.max(0, d - q - 20_000) / slice;
    of.overview.starved[held] = Math.min(1, at(of.overview.starved, held) + starved);
  }
  of.calls.start.forEach((start, i) => {
    add(of.overview.calls, Math.min(slices - 1, Math.floor(start / slice)), 1);
    const done = Math.min(slices - 1, Math.floor(at(of.calls.end, i) / slice));
    add(of.overview.done_calls, done, 1);
    add(of.overview.done_bytes, done, at(of.calls.bytes, i));
  });
  for (let i = 1; i < slices; i++) {
    for (const column of [of.overview.done_calls, of.overview.done_bytes]) add(column, i, at(column, i - 1));
  }
  const took = of.calls.start.map((start, i) => at(of.calls.end, i) - start);
  const row = Math.floor(took.length / 2);
  const mark = (row: number) => ({ nr: row + 1, row, start_ns: at(of.calls.start, row), took_ns: at(took, row) });
  of.course = {
    calls: took.length,
    points: { start: of.calls.start, took },
    heat: null,
    typical: took.length > 0 ? mark(row) : null,
    onset: null,
  };
  of.pyramid = pyramid(of, end);
  const held = of.requests.q.map((q, r) => at(of.requests.d, r) - q).filter((ns) => ns > 20_000);
  of.stalls = { count: held.length, ns: held.reduce((sum, ns) => sum + ns, 0) };
}

function ecdf(of: Timeline, op: Ecdf["op"]): Ecdf {
  const wanted = { read: 0, write: 1, sync: 2 }[op];
  const all = of.calls.start
    .map((start, i) => (of.calls.op[i] === wanted ? at(of.calls.end, i) - start : -1))
    .filter((ns) => ns >= 0);
  all.sort((x, y) => x - y);
  const step = Math.max(1, Math.floor(all.length / 100));
  const points = all.map((_, i) => i).filter((i) => i % step === 0 || i === all.length - 1);
  const eps = Math.sqrt(Math.log(2 / 0.05) / (2 * Math.max(1, all.length)));
  const share = points.map((i) => (i + 1) / all.length);
  return {
    op,
    n: all.length,
    ns: points.map((i) => at(all, i)),
    share,
    low: share.map((of) => Math.max(0, of - eps)),
    high: share.map((of) => Math.min(1, of + eps)),
  };
}

function shift(a: Ecdf, b: Ecdf): Shift {
  const value = (of: Ecdf, q: number) =>
    of.ns[
      Math.max(
        0,
        of.share.findIndex((share) => share >= q),
      )
    ] ?? 0;
  const quantile = Array.from({ length: 19 }, (_, i) => (i + 1) / 20);
  const shift_ns = quantile.map((q) => value(b, q) - value(a, q));
  return {
    op: a.op,
    quantile,
    shift_ns,
    low_ns: shift_ns.map((ns) => ns - Math.abs(ns) * 0.05 - 900),
    high_ns: shift_ns.map((ns) => ns + Math.abs(ns) * 0.05 + 900),
  };
}

function side(label: string, timeline: Timeline, kernel: string, rand: Random): Side {
  const per = timeline.elapsed_ns / Math.max(1, timeline.calls.start.length);
  const count = new Map<number, number>();
  for (const sectors of timeline.requests.sectors) count.set(sectors * 512, (count.get(sectors * 512) ?? 0) + 1);
  const bytes = [...count.keys()].sort((x, y) => x - y);
  return {
    label,
    simulated: true,
    command: `run jobs/stream.fio --kernel ${kernel} --seed ${timeline.seed}`,
    facts: [
      { key: "job", value: "jobs/stream.fio" },
      { key: "kernel", value: kernel },
      { key: "device", value: "hdd-7200" },
      { key: "elevator", value: "cfq" },
      { key: "read_ahead_kb", value: "128" },
    ],
    runs: Array.from({ length: 12 }, (_, i) => ({
      seed: i + 1,
      time_per_operation_ns: per * (1 + (rand() - 0.5) * 0.04),
      rate_bytes_per_s: 1e9 / per,
      operations: timeline.calls.start.length,
    })),
    modes: [],
    latency: (["read", "write", "sync"] as const).map((op) => ecdf(timeline, op)).filter((of) => of.n > 0),
    request_sizes: [{ dir: "read", bytes, count: bytes.map((of) => count.get(of) ?? 0) }],
    stacks: [
      { frames: ["reader", "main", "read_row", "read"], ns: Math.round(timeline.elapsed_ns / 2), count: 40 },
      { frames: ["reader", "main", "sync_log", "fsync"], ns: Math.round(timeline.elapsed_ns / 4), count: 5 },
    ],
    timeline,
  };
}

const change = { quantile_pct: 99, a: 1, b: 2, change_pct: 100, ci_low_pct: 90, ci_high_pct: 110 };

function comparison(a: string, b: string, before: number, after: number): Comparison {
  const pct = 100 * (after / before - 1);
  const group = (median: number) => ({
    n: 12,
    median,
    median_low: median * 0.98,
    median_high: median * 1.02,
    mean: median,
    cv: 1.2,
    min: median * 0.96,
    max: median * 1.03,
  });
  const row = (
    name: string,
    unit: string,
    better: "lower" | "higher",
    of: [number, number],
    change: number,
  ): Comparison["metrics"][number] => ({
    name,
    unit,
    better,
    a: group(of[0]),
    b: group(of[1]),
    change_pct: change,
    ci_low_pct: change - 2.1,
    ci_high_pct: change + 2.4,
    p: 0.00003,
    p_adjusted: 0.00006,
    verdict: "regression",
    because: "the 99 % interval excludes no change, and the adjusted p is below 0.01",
    modes_a: [{ centre: of[0], mean: of[0], min: of[0], max: of[0], count: 12, share_pct: 100 }],
    modes_b: [
      { centre: of[1], mean: of[1], min: of[1], max: of[1], count: 7, share_pct: 58.3 },
      { centre: of[1] * 1.1, mean: of[1], min: of[1], max: of[1], count: 5, share_pct: 41.7 },
    ],
    runs_needed: null,
    detectable_pct: 1.2,
    tails: [],
    effects: {},
    methods: [],
    warnings: [
      {
        kind: "modes",
        text: `${name} of B falls into 2 groups; their mean describes none`,
        next: "compare the shares of the modes",
      },
    ],
  });
  return {
    schema: "iowhy.compare/1",
    a,
    b,
    verdict: "regression",
    alpha: 0.01,
    margin_pct: 1,
    adjust: "bh",
    draws: 9999,
    seed: 1,
    metrics: [
      row("elapsed_s", "s", "lower", [before / 1e9, after / 1e9], pct),
      row("read_mib_s", "MiB/s", "higher", [1e9 / before, 1e9 / after], -pct / (1 + pct / 100)),
    ],
    warnings: [],
    calibration: [],
    latencies: [change],
    job_options: [],
  };
}

export interface Options {
  seed?: number;
  a?: string;
  b?: string;
  kind?: "plugged" | "busy";
  calls?: number;
}

export function sample({ seed = 1, a = "2.6.38", b = "2.6.39", kind = "plugged", calls = 40 }: Options = {}): Report {
  const rand = random(seed + 77);
  const timelines: [Timeline, Timeline] =
    kind === "busy"
      ? [busy(seed, calls), busy(seed + 1, calls)]
      : [sequential(seed, calls, false), sequential(seed, calls, true)];
  const sides: [Side, Side] = [side(a, timelines[0], "2.6.38", rand), side(b, timelines[1], "2.6.39", rand)];
  const [before, after] = timelines.map((of) => of.elapsed_ns / of.calls.start.length) as [number, number];
  const pct = 100 * (after / before - 1);
  const { calls: of, course } = timelines[1];
  if (kind === "plugged" && of.start.length > 3) {
    const took = (row: number) => at(of.end, row) - at(of.start, row);
    course.onset = {
      at: { nr: 4, row: 3, start_ns: at(of.start, 3), took_ns: took(3) },
      before_ns: took(0),
      after_ns: took(3),
    };
  }
  const compared = comparison(a, b, before, after);
  const layers = [
    ["application", 15_000, 15_000],
    ["CPU", 97_000, 140_000],
    ["read-ahead", 0, 0],
    ["plug", 0, (after - before) * 0.8],
    ["device", before - 112_000, before - 112_000 + (after - before) * 0.2 - 43_000],
  ] as const;
  const history = Array.from({ length: 30 }, (_, i) => (i < 18 ? before : after) * (1 + (rand() - 0.5) * 0.05) * 1e-9);
  return {
    schema: "iowhy.report/1",
    version: "0.0.0-sample",
    title: `${a} against ${b}`,
    headline: {
      verdict: "regression",
      sentence: `${b} is slower: an operation takes ${(before / 1e6).toFixed(2)} ms in ${a} and ${(after / 1e6).toFixed(2)} ms in ${b} (12 and 12 runs), +${pct.toFixed(1)} %.`,
      why: "The requests of a buffered read stay in the plug of the reading task, while the device has nothing to do. The plug lies around the whole call. Windows that are started ahead of the reader stay in it while the reader copies pages that are there; they leave when it sleeps.",
      first: {
        title: `Reading ${calls} MiB with dd takes ${(after / before).toFixed(1)}× as long: ${(timelines[1].elapsed_ns / 1e9).toFixed(2)} s, not ${(timelines[0].elapsed_ns / 1e9).toFixed(2)} s.`,
        factor: after / before,
        lines: [
          {
            name: "Cause",
            text: "Requests stay in the plug of the reading task (plug-around-read: 96 % of the difference, almost certain)",
          },
          { name: "Proof", text: "Confirmed: with plug.read = none the change is +0.4 %." },
          { name: "Assumed", text: "kernel and disk are models: no run was measured" },
          { name: "Only difference", text: `kernel: ${a.slice(0, 60)} in A, ${b.slice(0, 60)} in B` },
          { name: "What to do", text: "A kernel from 3.3 on, calls no larger than a window, or O_DIRECT." },
        ],
      },
    },
    explanation: {
      schema: "iowhy.explain/1",
      a,
      b,
      runs_a: 12,
      runs_b: 12,
      a_ns: before,
      b_ns: after,
      change_pct: pct,
      ci_low_pct: pct - 1.5,
      ci_high_pct: pct + 1.5,
      ci_level: 0.95,
      headline: { basis: "call", subject: "an operation" },
      only_difference: [],
      cannot_ask: [],
      commands: [null, null],
      verdict: "regression",
      because: "the sides differ by more than five standard errors",
      findings: [
        {
          rule: "plug-around-read",
          layer: "plug",
          claim:
            "reads are held in the plug of the task that asks for them until it sleeps (100 % of the plugs, against 0 %), and the device has nothing to do meanwhile",
          confidence: 0.97,
          certainty: 0.98,
          share_of_change_pct: 96,
          evidence: [
            { what: "plugs pulled because the task sleeps", a: 0, b: 0.9998, unit: "share" },
            { what: "time that reads are held, for each call", a: 0, b: 2_491_585.1, unit: "ns" },
            { what: "waits for each call", a: 1, b: 3.9, unit: "ratio" },
          ],
          why: "The plug lies around the whole call.",
          change: "A kernel from 3.3 on, calls no larger than a window, or O_DIRECT.",
          refute: "Without the plug around the call the difference stays.",
          since: "2.6.39 to 3.2.",
          counterfactual: {
            setting: "plug.read = none",
            side: b,
            change_pct_before: pct,
            ci_before_low_pct: pct - 1.1,
            ci_before_high_pct: pct + 1.1,
            change_pct_after: 0.4,
            ci_low_pct: -0.6,
            ci_high_pct: 1.3,
            gone_pct: 99.3,
            runs: 12,
            outcome: "confirmed",
            figures_moved: true,
            device_only: false,
          },
          advice: { set: "plug.read=none", predicted_change_pct: -38, measured_change_pct: -37.2 },
        },
      ],
      unexplained_pct: 4,
      layers: layers.map(([layer, x, y]) => ({ layer, a: x, b: y, delta: y - x, unit: "ns_per_operation" })),
      comparison: compared,
      warnings: [],
    },
    comparison: compared,
    matrix: {
      layers: layers.map(([layer]) => layer),
      rows: [
        {
          name: "plug-around-read",
          origin: "measured",
          finding: 0,
          ns: layers.map(([, x, y]) => (y - x) * 0.9),
          half_ns: layers.map(([, x, y]) => Math.abs(y - x) * 0.2),
          sum_ns: (after - before) * 0.9,
          sum_half_ns: (after - before) * 0.1,
        },
        {
          name: "the rest",
          origin: "rest",
          finding: null,
          ns: layers.map(([, x, y]) => (y - x) * 0.1),
          half_ns: layers.map(() => null),
          sum_ns: (after - before) * 0.1,
          sum_half_ns: null,
        },
      ],
      ns: layers.map(([, x, y]) => y - x),
      half_ns: layers.map(([, x, y]) => Math.abs(y - x) * 0.2),
      total_ns: after - before,
      total_half_ns: (after - before) * 0.1,
      level: 0.95,
      note: "",
      unit: "ns_per_operation",
    },
    sides,
    shift: sides[0].latency.flatMap((of) => {
      const other = sides[1].latency.find((one) => one.op === of.op);
      return other ? [shift(of, other)] : [];
    }),
    history: {
      series: [
        {
          name: "elapsed_s of jobs/stream.fio",
          unit: "s",
          at: history.map((_, i) => `2026-10-${String(i + 1).padStart(2, "0")}`),
          value: history,
          change_points: [{ index: 18, change_pct: pct, p: 0.001 }],
        },
      ],
    },
    differences: [{ key: "kernel", a: "2.6.38", b: "2.6.39" }],
    incident: {
      id: "2012-sample",
      title: "Reading is slower since 2.6.39",
      rows: [
        { id: "2.6.38", role: "calibration", published: 252, simulated: 249.8, unit: "MB/s" },
        { id: "2.6.39", role: "prediction", published: null, simulated: 36.7, unit: "MB/s" },
      ],
      claims: [
        { text: "2.6.39 is slower", held: true, required: true },
        { text: "by four fifths", held: false, required: false },
      ],
      assumptions: [{ what: "waking the disk costs 6 ms", source: "calibrated on 2.6.39" }],
      unexplained: "What held the reader up for the first time is not known.",
    },
  };
}

/** A timeline with these parts in detail, and no others. */
export function cut(of: Timeline, parts: readonly (readonly [number, number])[]): Timeline {
  const shown = (from: number, to: number) => parts.some(([start, end]) => from < end && to >= start);
  const rows = <T extends Record<string, number[]>>(columns: T, keep: (i: number) => boolean): T => {
    const length = Object.values(columns)[0]?.length ?? 0;
    const kept = Array.from({ length }, (_, i) => i).filter(keep);
    return Object.fromEntries(Object.entries(columns).map(([name, all]) => [name, kept.map((i) => at(all, i))])) as T;
  };
  const calls = rows(of.calls, (i) => shown(at(of.calls.start, i), at(of.calls.end, i)));
  // Of calls without gaps in their numbers.
  const rowOf = (row: number) => calls.nr.indexOf(row + 1);
  const linked = <T extends { call: number[] }>(columns: T): T => ({ ...columns, call: columns.call.map(rowOf) });
  const mark = <T extends { row: number | null } | null>(one: T): T =>
    one ? { ...one, row: rowOf(one.row ?? -1) } : one;
  const { typical, onset } = of.course;
  return {
    ...of,
    detail: parts.map(([from_ns, to_ns], nr) => ({ from_ns, to_ns, why: nr === 0 ? "start" : "typical" })),
    calls,
    pages: linked(rows(of.pages, (i) => shown(at(of.pages.at, i), at(of.pages.at, i)))),
    windows: linked(rows(of.windows, (i) => shown(at(of.windows.at, i), at(of.windows.at, i)))),
    plugs: linked(rows(of.plugs, (i) => shown(at(of.plugs.start, i), at(of.plugs.end, i)))),
    requests: linked(rows(of.requests, (i) => shown(at(of.requests.q, i), at(of.requests.c, i)))),
    course: {
      ...of.course,
      typical: mark(typical),
      onset: onset ? { ...onset, at: mark(onset.at) } : null,
    },
  };
}

/** A report of which a tenth at the begin and a tenth in the middle are kept in detail, and its whole timelines. */
export function gaps(): { report: Report; whole: Timeline[] } {
  const report = sample({ seed: 9, calls: 120 });
  const whole = report.sides.map((side) => side.timeline);
  for (const side of report.sides) {
    const { elapsed_ns: end } = side.timeline;
    side.timeline = cut(side.timeline, [
      [0, end * 0.1],
      [Math.floor(end * 0.45), Math.floor(end * 0.55)],
    ]);
  }
  return { report, whole };
}

/** Strings that a page must show as text. */
export const HOSTILE = [
  "<script>window.hacked = 1</script>",
  '"><img src=x onerror="window.hacked=1">\'`',
  "</script><script>window.hacked = 1</script><!--",
  "x".repeat(10_240),
  "\u202e\u05d0\u05d1\u05d2 right to left \u0645\u0631\u062d\u0628\u0627",
  "javascript:window.hacked=1",
] as const;

export function hostile(): Report {
  const report = sample({ seed: 5, a: HOSTILE[3], b: HOSTILE[0], calls: 6 });
  report.title = HOSTILE[2];
  report.headline.sentence = `${HOSTILE[1]} ${HOSTILE[4]}`;
  report.headline.why = HOSTILE[3];
  report.headline.first.title = `${HOSTILE[1]} ${HOSTILE[4]}`;
  for (const [nr, line] of report.headline.first.lines.entries()) line.text = HOSTILE[nr % 6] ?? "";
  report.differences.push({ key: HOSTILE[0], a: HOSTILE[4], b: HOSTILE[3] });
  report.sides.forEach((side, nr) => {
    side.facts.push({ key: HOSTILE[nr === 0 ? 0 : 1], value: HOSTILE[3] });
    side.command = HOSTILE[nr === 0 ? 5 : 4];
    for (const file of side.timeline.files) file.name = HOSTILE[nr === 0 ? 0 : 3];
    for (const map of side.timeline.map) map.by = map.by.map((_, i) => (i % 8 === 3 ? HOSTILE[1] : null));
    side.timeline.window_kinds = [HOSTILE[0], HOSTILE[3], "x", "y"];
  });
  const finding = report.explanation?.findings[0];
  if (finding) {
    finding.rule = HOSTILE[0];
    if (report.matrix) {
      at(report.matrix.rows, 0).name = HOSTILE[0];
      report.matrix.note = HOSTILE[4];
    }
    finding.claim = HOSTILE[2];
    at(finding.evidence, 0).what = HOSTILE[4];
    Object.assign(at(finding.evidence, 1), { unit: HOSTILE[3] });
  }
  report.explanation?.warnings.push(HOSTILE[0]);
  for (const row of report.comparison?.metrics ?? []) row.name = HOSTILE[1];
  for (const series of report.history?.series ?? []) {
    series.name = HOSTILE[0];
    series.unit = HOSTILE[3];
    series.at = series.at.map(() => HOSTILE[1]);
  }
  return report;
}
