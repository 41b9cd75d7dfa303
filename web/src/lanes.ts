// The lanes of one side, prepared once: sorted columns, rows for overlapping items, and the consequences of each call. Drawing
// and hit testing then touch only items in view.

import type { Timeline } from "./data.ts";
import { inView, minus, rows, runningMax, union, type View } from "./scale.ts";

export const OPS = ["read", "write", "fsync", "fdatasync"] as const;
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
}

export interface Side {
  timeline: Timeline;
  lanes: Record<LaneName, Lane>;
  /** When the last page of a window had arrived, or the time of the window if no request is known. */
  windowEnd: Float64Array;
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
  most: number,
  rowOf?: (i: number) => number,
): Lane {
  const ids: number[] = [];
  for (let i = 0; i < start.length; i++) if (keep(i)) ids.push(i);
  ids.sort((x, y) => start[x] - start[y] || x - y);
  const starts = Float64Array.from(ids, (i) => start[i]);
  const ends = Float64Array.from(ids, (i) => Math.max(start[i], end[i]));
  const packed = rowOf ? { row: Uint8Array.from(ids, rowOf), used: most } : rows(starts, ends, most);
  return {
    name,
    start: starts,
    end: ends,
    maxEnd: runningMax(ends),
    id: Uint32Array.from(ids),
    row: packed.row,
    rows: packed.used,
    call: Int32Array.from(ids, (i) => call[i] ?? -1),
  };
}

/** For each window, when the last request that carries its pages was completed. */
export function windowEnds(timeline: Timeline): Float64Array {
  const { windows, requests } = timeline;
  const ends = Float64Array.from(windows.at);
  const order = Array.from(requests.q.keys()).filter((i) => requests.first[i] >= 0 && requests.c[i] >= 0);
  order.sort((x, y) => requests.q[x] - requests.q[y]);
  const q = order.map((i) => requests.q[i]);
  for (let w = 0; w < windows.at.length; w++) {
    let low = 0;
    let high = q.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (q[middle] < windows.at[w]) low = middle + 1;
      else high = middle;
    }
    const stop = windows.first[w] + windows.nr[w];
    let missing = windows.nr[w];
    for (let k = low; k < q.length && k < low + 256 && missing > 0; k++) {
      const r = order[k];
      const from = Math.max(requests.first[r], windows.first[w]);
      const to = Math.min(requests.first[r] + requests.nr[r], stop);
      if (requests.file[r] !== windows.file[w] || to <= from) continue;
      missing -= to - from;
      ends[w] = Math.max(ends[w], requests.c[r]);
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
    if (q[i] >= 0 && d[i] >= 0) held.push([q[i], d[i]]);
    if (d[i] >= 0 && c[i] >= 0) busy.push([d[i], c[i]]);
  }
  return minus(union(held), union(busy));
}

export function prepare(timeline: Timeline): Side {
  const { calls, pages, windows, plugs, requests } = timeline;
  const windowEnd = windowEnds(timeline);
  const inserted = requests.i.map((at, i) => (at >= 0 ? at : requests.g[i]));
  const threads = new Map<number, number>();
  for (const thread of calls.thread) if (!threads.has(thread)) threads.set(thread, threads.size);
  const threadRows = Math.min(Math.max(threads.size, 1), 4);
  const all = () => true;
  const lanes: Record<LaneName, Lane> = {
    calls: lane("calls", calls.start, calls.end, Array.from(calls.start.keys()), all, threadRows, (i) =>
      Math.min(threads.get(calls.thread[i]) ?? 0, threadRows - 1),
    ),
    // Rows from above: hit, missed, added, removed.
    pages: lane("pages", pages.at, pages.at, pages.call, all, 4, (i) => [2, 0, 1, 3][pages.kind[i]] ?? 3),
    windows: lane("windows", windows.at, Array.from(windowEnd), windows.call, all, 3),
    plug: lane("plug", plugs.start, plugs.end, plugs.call, all, 2),
    queue: lane(
      "queue",
      inserted,
      requests.d,
      requests.call,
      (i) => inserted[i] >= 0 && requests.d[i] > inserted[i],
      4,
    ),
    device: lane("device", requests.d, requests.c, requests.call, (i) => requests.d[i] >= 0 && requests.c[i] >= 0, 4),
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
      if (of.call[k] < 0) continue;
      let known = byCall.get(of.call[k]);
      if (!known) {
        known = empty();
        byCall.set(of.call[k], known);
      }
      known[name].push(of.id[k]);
    }
  }
  return { timeline, lanes, windowEnd, stalls: stallsOf(timeline), ofCall: (call) => byCall.get(call) ?? empty() };
}

/** The item of a lane at a time and row, with some slack for thin ones; the position in the lane, or -1. */
export function hit(of: Lane, at: number, row: number, slack: number): number {
  const [first, last] = inView(of.start, of.maxEnd, { from: at - slack, to: at + slack });
  let best = -1;
  let distance = Number.POSITIVE_INFINITY;
  for (let k = first; k < last; k++) {
    if (of.row[k] !== row) continue;
    const away = Math.max(of.start[k] - at, at - of.end[k], 0);
    if (away > slack) continue;
    // Of several, the nearest; of those, the shortest.
    const rank = away + (of.end[k] - of.start[k]) * 1e-6;
    if (rank < distance) {
      best = k;
      distance = rank;
    }
  }
  return best;
}

/** The first view: some windows (or calls) of every side and up to the first difference, so close that a stall between
 *  windows is wide enough to be seen. */
export function firstView(sides: readonly Side[], whole: View): View {
  let to = whole.from;
  let difference: number | null = null;
  for (const side of sides) {
    const { calls, first_difference: at } = side.timeline;
    const marks = side.lanes.windows.end.length > 0 ? side.lanes.windows : side.lanes.calls;
    if (marks.end.length > 0) to = Math.max(to, marks.end[Math.min(19, marks.end.length - 1)]);
    if (at != null && at < calls.start.length) difference = Math.max(difference ?? 0, calls.end[at]);
  }
  if (difference != null && difference > to) {
    // The difference comes later: as much before it as the marks took.
    const span = to - whole.from;
    return { from: Math.max(whole.from, difference - span * 0.7), to: Math.min(whole.to, difference + span * 0.3) };
  }
  let widest = 0;
  for (const side of sides) for (const [from, end] of side.stalls) if (from < to) widest = Math.max(widest, end - from);
  const least = Math.max(
    ...sides.map(({ lanes: { windows } }) =>
      windows.end.length > 0 ? windows.end[Math.min(4, windows.end.length - 1)] : 0,
    ),
  );
  if (widest > 0) to = Math.min(to, Math.max(widest * 60, least));
  to = Math.max(to * 1.02, whole.from + 1000);
  return { from: whole.from, to: Math.min(to, whole.to) };
}
