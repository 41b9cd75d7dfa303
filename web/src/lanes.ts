// The lanes of one side, prepared once: sorted columns, rows for overlapping items, and the consequences of each call. Drawing
// and hit testing then touch only items in view.

import { at, type Timeline } from "./data.ts";
import { inView, minus, rows, runningMax, type Steps, steps, union, type View } from "./scale.ts";

export const OPS = ["read", "write", "fsync", "fdatasync", "trim"] as const;
export const DIRS = ["read", "write"] as const;
export const PAGE_KINDS = ["added", "hit", "missed", "removed"] as const;
export const STATES = ["untouched", "hit or used", "missed", "read ahead, never used", "put there by others"] as const;

export type LaneName = "calls" | "pages" | "windows" | "plug" | "queue" | "device";
export const LANE_NAMES: readonly LaneName[] = ["calls", "pages", "windows", "plug", "queue", "device"];
export const LANE_TITLES: Record<LaneName, string> = {
  calls: "application calls",
  pages: "page cache",
  windows: "read-ahead windows",
  plug: "plug",
  queue: "elevator queue",
  device: "device",
};

/** Items of a lane, sorted by start. `id` is the index into the columns of the report. */
export interface Lane {
  name: LaneName;
  start: Float64Array;
  end: Float64Array;
  maxEnd: Float64Array;
  id: Uint32Array;
  row: Uint8Array;
  rows: number;
  call: Int32Array;
  /** Where more are in progress at once than there are rows: how many, instead of each. */
  depth: Steps | null;
  /** Items of the second kind: writes. */
  second: (id: number) => boolean;
}

/** Rows of a lane in which each item is drawn. */
const ROWS: Record<LaneName, number> = { calls: 4, pages: 4, windows: 3, plug: 2, queue: 8, device: 8 };
/** Rows of unfolded threads. */
const THREADS = 64;

export interface Side {
  timeline: Timeline;
  lanes: Record<LaneName, Lane>;
  /** When the last page of a window had arrived, or the time of the window if no request is known. */
  windowEnd: Float64Array;
  /** Threads, in the order in which they first call. */
  threads: number;
  /** Times in which requests were held in a plug or queue while the device had nothing to do. */
  stalls: [number, number][];
  /** Items of each call, by lane. */
  ofCall: (call: number) => Record<LaneName, number[]>;
}

function lane(
  name: LaneName,
  start: number[],
  end: number[],
  call: number[],
  keep: (i: number) => boolean,
  second: (i: number) => boolean = () => false,
  fixed?: { rows: number; of: (i: number) => number },
): Lane {
  const ids: number[] = [];
  for (let i = 0; i < start.length; i++) if (keep(i)) ids.push(i);
  ids.sort((x, y) => at(start, x) - at(start, y) || x - y);
  const starts = Float64Array.from(ids, (i) => at(start, i));
  const ends = Float64Array.from(ids, (i) => Math.max(at(start, i), at(end, i)));
  const packed = fixed ? { row: Uint8Array.from(ids, fixed.of), used: fixed.rows } : rows(starts, ends, ROWS[name]);
  // Windows and plugs are few at once; those of calls, queue and device may be any number.
  const counted = fixed ? null : steps(starts, ends, (k) => second(at(ids, k)));
  return {
    name,
    start: starts,
    end: ends,
    maxEnd: runningMax(ends),
    id: Uint32Array.from(ids),
    row: packed.row,
    rows: packed.used,
    call: Int32Array.from(ids, (i) => call[i] ?? -1),
    depth: counted && counted.most > ROWS[name] ? counted : null,
    second,
  };
}

/** For each window, when the last request that carries its pages was completed. */
export function windowEnds(timeline: Timeline): Float64Array {
  const { windows, requests } = timeline;
  const ends = Float64Array.from(windows.at);
  const order = Array.from(requests.q.keys()).filter((i) => at(requests.first, i) >= 0 && at(requests.c, i) >= 0);
  // Requests by file and page: those of a window lie together, however many others are in between in time.
  order.sort((x, y) => at(requests.file, x) - at(requests.file, y) || at(requests.first, x) - at(requests.first, y));
  const longest = order.reduce((most, i) => Math.max(most, at(requests.nr, i)), 0);
  for (let w = 0; w < windows.at.length; w++) {
    const [file, first, when] = [at(windows.file, w), at(windows.first, w), at(windows.at, w)];
    const stop = first + at(windows.nr, w);
    let [low, high] = [0, order.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const r = at(order, middle);
      const before = at(requests.file, r) - file || at(requests.first, r) - (first - longest);
      if (before < 0) low = middle + 1;
      else high = middle;
    }
    for (let k = low; k < order.length; k++) {
      const r = at(order, k);
      if (at(requests.file, r) !== file || at(requests.first, r) >= stop) break;
      if (at(requests.first, r) + at(requests.nr, r) <= first || at(requests.q, r) < when) continue;
      // The same pages may be read once more, much later, and for another call.
      if (at(requests.call, r) >= 0 && at(windows.call, w) >= 0 && at(requests.call, r) !== at(windows.call, w))
        continue;
      ends[w] = Math.max(at(ends, w), at(requests.c, r));
    }
  }
  return ends;
}

/** Device idle while a request waits to get there. */
export function stallsOf(timeline: Timeline): [number, number][] {
  const { q, d, c } = timeline.requests;
  const held: [number, number][] = [];
  const busy: [number, number][] = [];
  for (let i = 0; i < q.length; i++) {
    const [queued, issued, done] = [at(q, i), at(d, i), at(c, i)];
    if (queued >= 0 && issued >= 0) held.push([queued, issued]);
    if (issued >= 0 && done >= 0) busy.push([issued, done]);
  }
  return minus(union(held), union(busy));
}

/** `unfolded`: each thread has a row, however many there are. */
export function prepare(timeline: Timeline, unfolded = false): Side {
  const { calls, pages, windows, plugs, requests } = timeline;
  const windowEnd = windowEnds(timeline);
  const inserted = requests.i.map((when, i) => (when >= 0 ? when : at(requests.g, i)));
  const threads = new Map<number, number>();
  for (const thread of calls.thread) if (!threads.has(thread)) threads.set(thread, threads.size);
  const all = () => true;
  const writes = (i: number) => requests.dir[i] === 1;
  const byThread = threads.size <= (unfolded ? THREADS : ROWS.calls);
  const threadOf = (i: number) => Math.min(threads.get(at(calls.thread, i)) ?? 0, THREADS - 1);
  const lanes: Record<LaneName, Lane> = {
    calls: lane(
      "calls",
      calls.start,
      calls.end,
      Array.from(calls.start.keys()),
      all,
      (i) => calls.op[i] === 1,
      byThread ? { rows: Math.max(1, threads.size), of: threadOf } : undefined,
    ),
    // Rows from above: hit, missed, added, removed.
    pages: lane("pages", pages.at, pages.at, pages.call, all, undefined, {
      rows: ROWS.pages,
      of: (i) => [2, 0, 1, 3][at(pages.kind, i)] ?? 3,
    }),
    windows: lane("windows", windows.at, Array.from(windowEnd), windows.call, all),
    plug: lane("plug", plugs.start, plugs.end, plugs.call, all),
    queue: lane(
      "queue",
      inserted,
      requests.d,
      requests.call,
      (i) => at(inserted, i) >= 0 && at(requests.d, i) > at(inserted, i),
      writes,
    ),
    device: lane(
      "device",
      requests.d,
      requests.c,
      requests.call,
      (i) => at(requests.d, i) >= 0 && at(requests.c, i) >= 0,
      writes,
    ),
  };
  const byCall = new Map<number, Record<LaneName, number[]>>();
  const empty = (): Record<LaneName, number[]> => ({
    calls: [],
    pages: [],
    windows: [],
    plug: [],
    queue: [],
    device: [],
  });
  for (const name of LANE_NAMES) {
    const of = lanes[name];
    for (let k = 0; k < of.call.length; k++) {
      const call = at(of.call, k);
      if (call < 0) continue;
      let known = byCall.get(call);
      if (!known) {
        known = empty();
        byCall.set(call, known);
      }
      known[name].push(at(of.id, k));
    }
  }
  const stalls = stallsOf(timeline);
  return { timeline, lanes, windowEnd, threads: threads.size, stalls, ofCall: (call) => byCall.get(call) ?? empty() };
}

/** The item of a lane at a time and row, with some slack for thin ones; the position in the lane, or -1. */
export function hit(of: Lane, when: number, row: number, slack: number): number {
  const [first, last] = inView(of.start, of.maxEnd, { from: when - slack, to: when + slack });
  let best = -1;
  let distance = Number.POSITIVE_INFINITY;
  for (let k = first; k < last; k++) {
    // Where depth is drawn, an item has no row of its own.
    if (!of.depth && of.row[k] !== row) continue;
    const [start, end] = [at(of.start, k), at(of.end, k)];
    const away = Math.max(start - when, when - end, 0);
    if (away > slack) continue;
    // Of several, the nearest; of those, the shortest.
    const rank = away + (end - start) * 1e-6;
    if (rank < distance) {
      best = k;
      distance = rank;
    }
  }
  return best;
}

/** The first view: the typical call of each side from its own zero, and a little more. Where no call stands for a side, the
 *  first windows (or calls) of every side. */
export function firstView(sides: readonly Side[], whole: View): View {
  const longest = Math.max(0, ...sides.map(({ timeline: { course } }) => course.typical?.took_ns ?? 0));
  if (longest > 0) return { from: -0.02 * longest, to: 1.06 * longest };
  let to = whole.from;
  for (const side of sides) {
    const marks = side.lanes.windows.end.length > 0 ? side.lanes.windows : side.lanes.calls;
    const last = marks.end.length > 0 ? marks : side.lanes.device;
    if (last.end.length > 0) to = Math.max(to, at(last.end, Math.min(19, last.end.length - 1)));
  }
  return { from: whole.from, to: Math.min(Math.max(to * 1.02, whole.from + 1000), whole.to) };
}
