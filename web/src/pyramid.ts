// The whole run where no detail is kept: the bins of the data, and above them layers of half as many each, so that a
// drawing touches about one bin a pixel.

import { at, type Timeline } from "./data.ts";
import type { View } from "./scale.ts";

type Join = "least" | "most" | "mean" | "sum";

/** How neighbours are joined. */
const COLUMNS = {
  "calls.least": "least",
  "calls.most": "most",
  "calls.share": "mean",
  "pages.hit": "sum",
  "pages.missed": "sum",
  "pages.added": "sum",
  "pages.removed": "sum",
  "windows.nr": "sum",
  "windows.pages": "most",
  "plug.least": "least",
  "plug.most": "most",
  "plug.share": "mean",
  "queue.least": "least",
  "queue.most": "most",
  "queue.share": "mean",
  "device.least": "least",
  "device.most": "most",
  "device.share": "mean",
  starved: "mean",
} as const satisfies Record<string, Join>;
export type Column = keyof typeof COLUMNS;

export interface Layer {
  bin_ns: number;
  columns: Record<Column, Float32Array>;
  /** The largest of each column. */
  most: Record<Column, number>;
}

function layer(bin_ns: number, columns: Layer["columns"]): Layer {
  const most = {} as Layer["most"];
  for (const [name, of] of Object.entries(columns) as [Column, Float32Array][])
    most[name] = of.reduce((most, value) => Math.max(most, value), 1);
  return { bin_ns, columns, most };
}

const JOINS: Record<Join, (x: number, y: number) => number> = {
  least: Math.min,
  most: Math.max,
  mean: (x, y) => (x + y) / 2,
  sum: (x, y) => x + y,
};

/** Half as many bins. */
export function halved(below: Layer): Layer {
  const columns = {} as Layer["columns"];
  for (const [name, join] of Object.entries(COLUMNS) as [Column, Join][]) {
    const of = below.columns[name];
    const up = new Float32Array(Math.ceil(of.length / 2));
    for (let i = 0; i < up.length; i++)
      up[i] = 2 * i + 1 < of.length ? JOINS[join](at(of, 2 * i), at(of, 2 * i + 1)) : at(of, 2 * i);
    columns[name] = up;
  }
  return layer(below.bin_ns * 2, columns);
}

const known = new WeakMap<Timeline["pyramid"], Layer[]>();

/** The layers of a pyramid, finest first; none of an empty one. */
export function layers(of: Timeline["pyramid"]): Layer[] {
  let found = known.get(of);
  if (!found) {
    found = [];
    if (of.bin_ns > 0) {
      const column = (name: string): number[] => {
        const [lane, part] = name.split(".") as [keyof Timeline["pyramid"], string | undefined];
        const value = of[lane] as unknown;
        return (part ? (value as Record<string, number[]>)[part] : value) as number[];
      };
      const columns = {} as Layer["columns"];
      for (const name of Object.keys(COLUMNS) as Column[]) columns[name] = Float32Array.from(column(name));
      found.push(layer(of.bin_ns, columns));
      while (at(found, found.length - 1).columns.starved.length > 256) found.push(halved(at(found, found.length - 1)));
    }
    known.set(of, found);
  }
  return found;
}

/** Least width of a bin, px. */
const WIDE = 2;

/** The finest layer whose bins are wide enough. */
export function layerFor(of: Timeline["pyramid"], perPixel: number): Layer | undefined {
  const all = layers(of);
  return all.find((layer) => layer.bin_ns >= WIDE * perPixel) ?? all.at(-1);
}

/** Parts of a run without detail, and what comes behind it, which has no end. */
export function gapsOf(timeline: Timeline): [number, number][] {
  let known = 0;
  const gaps: [number, number][] = [];
  for (const part of timeline.detail) {
    if (part.from_ns > known) gaps.push([known, part.from_ns]);
    known = Math.max(known, part.to_ns);
  }
  if (known < timeline.elapsed_ns) gaps.push([known, timeline.elapsed_ns]);
  gaps.push([Math.max(known, timeline.elapsed_ns), Number.POSITIVE_INFINITY]);
  return gaps;
}

/** Shares of a side's own view that have no detail, and that are before the run or behind it. */
export function coverage(timeline: Timeline, own: View): { unknown: number; outside: number } {
  const span = Math.max(1, own.to - own.from);
  let [unknown, outside] = [0, Math.max(0, Math.min(own.to, 0) - own.from) / span];
  for (const [from, to] of gapsOf(timeline)) {
    const part = Math.max(0, Math.min(to, own.to) - Math.max(from, own.from)) / span;
    if (from >= timeline.elapsed_ns) outside += part;
    else unknown += part;
  }
  return { unknown, outside };
}
