// Paints the lanes of all sides over aligned clocks. Only items in view are touched, and items on the same pixel of the
// same row are painted once. Stalls are as wide as they are: those thinner than two pixels are painted as their share of
// the pixel's column. Where no detail is kept, the bins of the pyramid are drawn instead.

import { rowOf, viewOf } from "./align.ts";
import { type Colours, inkOn } from "./canvas.tsx";
import { at } from "./data.ts";
import * as format from "./format.ts";
import { LANE_NAMES, type LaneName, type Side } from "./lanes.ts";
import { gapsOf, layerFor } from "./pyramid.ts";
import { inView, linear, lowerBound, type Scale, ticks, type View } from "./scale.ts";
import type { Focus } from "./store.ts";

export const AXIS = 22;
export const HEAD = 22;
const HEIGHTS: Record<LaneName, number> = { calls: 28, pages: 26, windows: 40, plug: 20, queue: 30, device: 44 };
const GAP = 4;

export interface Place {
  side: number;
  lane: LaneName;
  top: number;
  height: number;
}

/** Height of an unfolded thread's row. */
const THREAD = 12;

/** Where the lanes are, from above. Lanes that are empty on all sides have no place. */
export function layout(sides: readonly Side[]): { places: Place[]; heads: number[]; height: number } {
  const places: Place[] = [];
  const heads: number[] = [];
  const used = LANE_NAMES.filter((name) => sides.some((side) => side.lanes[name].id.length > 0));
  let top = AXIS;
  sides.forEach((of, side) => {
    heads.push(top);
    top += HEAD;
    for (const lane of used) {
      const height = Math.max(
        HEIGHTS[lane],
        lane === "calls" && !of.lanes.calls.depth ? of.lanes.calls.rows * THREAD : 0,
      );
      places.push({ side, lane, top, height });
      top += height + GAP;
    }
    top += 6;
  });
  return { places, heads, height: top };
}

/** Diagonal lines, for distinctions that need more than colour. */
export function hatch(context: CanvasRenderingContext2D, ink: string, gap = 6): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = gap;
  tile.height = gap;
  const of = tile.getContext("2d");
  if (!of) return ink;
  of.strokeStyle = ink;
  of.lineWidth = 1;
  of.beginPath();
  for (const shift of [-gap, 0, gap]) {
    of.moveTo(shift, gap);
    of.lineTo(shift + gap, 0);
  }
  of.stroke();
  return context.createPattern(tile, "repeat") ?? ink;
}

interface Item {
  fill: string;
  text?: string;
}

export function paintTimeline(
  context: CanvasRenderingContext2D,
  width: number,
  sides: readonly Side[],
  view: View,
  origin: readonly number[],
  focus: Focus | null,
  colour: Colours,
  litLanes: readonly LaneName[] | null = null,
): number {
  const { places, heads, height } = layout(sides);
  const x = linear(view.from, view.to, 0, width);
  let painted = 0;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  // The clock, common to all sides.
  context.strokeStyle = colour("grid");
  context.fillStyle = colour("muted");
  context.lineWidth = 1;
  for (const when of ticks(view.from, view.to, Math.max(2, width / 110))) {
    const px = Math.round(x(when)) + 0.5;
    context.beginPath();
    context.moveTo(px, AXIS - 4);
    context.lineTo(px, height);
    context.stroke();
    if (px < width - 52) context.fillText(format.instant(when), px + 3, AXIS / 2);
  }
  const hatched = hatch(context, colour("stall"), 5);
  const unknown = hatch(context, colour("grid"), 8);
  sides.forEach((side, nr) => {
    const mine = places.filter((place) => place.side === nr);
    const [first, last] = [mine[0], mine[mine.length - 1]];
    const head = at(heads, nr);
    context.fillStyle = colour(nr === 0 ? "a" : "b");
    context.fillRect(0, head + HEAD - 4, width, 2);
    if (!first || !last) return;
    const [top, bottom] = [first.top, last.top + last.height];
    // This side's own clock.
    const own = viewOf(view, origin[nr] ?? 0);
    const to = linear(own.from, own.to, 0, width);
    for (const place of mine) {
      context.fillStyle = colour("lane");
      context.fillRect(0, place.top, width, place.height);
    }
    for (const [from, until] of [[Number.NEGATIVE_INFINITY, 0] as [number, number], ...gapsOf(side.timeline)]) {
      const [left, right] = [Math.max(0, to(from)), Math.min(width, to(until))];
      if (right - left < 1) continue;
      context.fillStyle = unknown;
      context.fillRect(left, top, right - left, bottom - top);
      const outside = until <= 0 || from >= side.timeline.elapsed_ns;
      if (!outside) {
        context.fillStyle = colour("lane");
        context.fillRect(left, top, right - left, bottom - top);
        painted += paintBins(context, side, mine, left, right, to, colour);
      }
      if (right - left > 200) {
        context.fillStyle = colour("muted");
        const words = outside
          ? until <= 0
            ? "the run has not begun"
            : "the run has ended"
          : `no detail kept here: bins of ${format.time(layerFor(side.timeline.pyramid, to.invert(1) - to.invert(0))?.bin_ns)}`;
        context.fillText(words, left + 8, top + 10);
      }
    }
    paintStalls(context, side, mine, own, width, colour, hatched);
    for (const place of mine) {
      painted += paintLane(context, width, side, litOn(sides, nr, focus), place, own, to, colour);
    }
    if (litLanes) {
      for (const place of mine) {
        const lit = litLanes.includes(place.lane);
        context.globalAlpha = lit ? 1 : 0.75;
        context.fillStyle = colour("lane");
        context.strokeStyle = colour("ink");
        if (lit) context.strokeRect(0.5, place.top - 0.5, width - 1, place.height + 1);
        else context.fillRect(0, place.top, width, place.height);
        context.globalAlpha = 1;
      }
    }
    const { stalls, elapsed_ns } = side.timeline;
    const words =
      stalls.count === 0
        ? "no stalls in the run"
        : `whole run: ${stalls.count} ${stalls.count === 1 ? "stall" : "stalls"}, ${format.time(stalls.ns)} (${format.percent(stalls.ns / Math.max(1, elapsed_ns))})`;
    context.fillStyle = colour(stalls.count === 0 ? "muted" : "stall-ink");
    context.textAlign = "right";
    context.fillText(words, width - 4, head + 9);
    context.textAlign = "left";
    const marks: [number | undefined, string][] = [
      [side.timeline.first_difference ?? undefined, "first difference"],
      [side.timeline.course.onset?.at.row ?? undefined, "slow from here on"],
    ];
    for (const [row, name] of marks) {
      if (row === undefined || row >= side.timeline.calls.start.length) continue;
      const px = Math.round(to(at(side.timeline.calls.start, row))) + 0.5;
      if (px < 0 || px > width) continue;
      context.strokeStyle = colour("ink");
      context.setLineDash([4, 3]);
      context.beginPath();
      context.moveTo(px, head + 2);
      context.lineTo(px, bottom);
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = colour("ink");
      context.fillText(name, Math.min(px + 4, width - 300), head + 9);
    }
  });
  return painted;
}

/** Height of a number among the largest: of counts that are far apart, by their logarithm. */
const tallOf = (of: number, most: number) => Math.log1p(of) / Math.log1p(Math.max(1, most));

/** The bins, where detail is absent. Levels as least and most, with the share of time as a line; pages and windows as
 *  counts; stalls in red from below. */
function paintBins(
  context: CanvasRenderingContext2D,
  side: Side,
  mine: readonly Place[],
  left: number,
  right: number,
  x: Scale,
  colour: Colours,
): number {
  const perPixel = x.invert(1) - x.invert(0);
  const layer = layerFor(side.timeline.pyramid, perPixel);
  if (!layer) return 0;
  const { bin_ns, columns, most } = layer;
  const first = Math.max(0, Math.floor(x.invert(left) / bin_ns));
  const last = Math.min(columns.starved.length - 1, Math.floor(x.invert(right) / bin_ns));
  let painted = 0;
  for (const place of mine) {
    const bar = (i: number, ink: string, share: number, alpha: number, row = 0, rows = 1) => {
      if (!(share > 0)) return;
      const from = Math.max(left, x(i * bin_ns));
      const wide = Math.max(0.8, Math.min(right, x((i + 1) * bin_ns)) - from);
      const tall = (place.height / rows) * Math.min(1, share);
      context.globalAlpha = alpha;
      context.fillStyle = ink;
      context.fillRect(from, place.top + (place.height / rows) * (row + 1) - tall, wide, tall);
      painted++;
    };
    if (place.lane === "pages") {
      const names = ["pages.hit", "pages.missed", "pages.added", "pages.removed"] as const;
      const inks = ["hit", "miss", "added", "removed"].map(colour);
      names.forEach((name, row) => {
        for (let i = first; i <= last; i++)
          bar(i, at(inks, row), tallOf(at(columns[name], i), most[name]), 0.8, row, names.length);
      });
    } else if (place.lane === "windows") {
      const ink = colour("window");
      for (let i = first; i <= last; i++)
        bar(i, ink, tallOf(at(columns["windows.pages"], i), most["windows.pages"]), 0.7);
    } else {
      const lane = place.lane;
      const ink = colour(lane === "calls" ? "call-mean" : lane);
      const highest = most[`${lane}.most`];
      const [low, high, share] = [columns[`${lane}.least`], columns[`${lane}.most`], columns[`${lane}.share`]];
      for (let i = first; i <= last; i++) {
        // What is there for a part of the time is as dark as that part is long.
        bar(i, ink, at(high, i) / highest, 0.12 + 0.4 * (at(share, i) / 1000));
        bar(i, ink, at(low, i) / highest, 0.6);
      }
      if (lane === "device") {
        const red = colour("stall");
        for (let i = first; i <= last; i++) bar(i, red, at(columns.starved, i) / 1000, 1);
      }
    }
    context.globalAlpha = 1;
  }
  return painted;
}

/** Stalls that reach into a view, and their time within it. */
export function stallsIn(side: Side, view: View): { count: number; ns: number } {
  let count = 0;
  let ns = 0;
  for (const [start, end] of side.stalls) {
    const part = Math.min(end, view.to) - Math.max(start, view.from);
    if (part <= 0) continue;
    count++;
    ns += part;
  }
  return { count, ns };
}

/** Narrower stalls are painted as a share of the pixel's column, px. */
const NARROW = 2;

/** Share of each of `width` pixels that intervals thinner than [`NARROW`] cover; wider ones are given to `wide`. */
export function shares(
  stalls: readonly (readonly [number, number])[],
  view: View,
  width: number,
  wide: (start: number, end: number) => void,
): Float64Array {
  const x = linear(view.from, view.to, 0, width);
  const covered = new Float64Array(Math.max(1, Math.ceil(width)));
  for (const [start, end] of stalls) {
    if (end < view.from || start > view.to) continue;
    const [left, right] = [Math.max(0, x(start)), Math.min(width, x(end))];
    if (x(end) - x(start) >= NARROW) {
      wide(start, end);
      continue;
    }
    for (let px = Math.floor(left); px < Math.min(right, covered.length); px++) {
      covered[px] = at(covered, px) + Math.max(0, Math.min(right, px + 1) - Math.max(left, px));
    }
  }
  return covered;
}

/** The device idle while requests are held: through plug, queue and device, true to width. */
export function paintStalls(
  context: CanvasRenderingContext2D,
  side: Side,
  mine: readonly Place[],
  view: View,
  width: number,
  colour: Colours,
  hatched: CanvasPattern | string,
) {
  const from = mine.find((place) => ["plug", "queue", "device"].includes(place.lane));
  const to = mine.find((place) => place.lane === "device");
  if (!from || !to) return;
  const x = linear(view.from, view.to, 0, width);
  const [top, bottom] = [from.top, to.top + to.height];
  const covered = shares(side.stalls, view, width, (start, end) => {
    const [left, wide] = [x(start), x(end) - x(start)];
    context.fillStyle = colour("stall-soft");
    context.fillRect(left, top, wide, bottom - top);
    context.fillStyle = hatched;
    context.fillRect(left, top, wide, bottom - top);
    context.fillStyle = colour("stall");
    context.fillRect(left, bottom - 4, wide, 4);
    if (wide > 72)
      label(context, `stall ${format.time(end - start)}`, left, wide, to.top + to.height / 2, colour("stall-ink"));
  });
  context.fillStyle = colour("stall");
  covered.forEach((share, px) => {
    if (share > 0) context.fillRect(px, bottom - share * (bottom - top), 1, share * (bottom - top));
  });
}

function label(
  context: CanvasRenderingContext2D,
  text: string,
  left: number,
  width: number,
  middle: number,
  ink: string,
) {
  const from = Math.max(left, 0);
  const room = left + width - from - 6;
  if (room < 18 || context.measureText(text).width > room) return;
  context.fillStyle = ink;
  context.fillText(text, from + 3, middle);
}

/** The call of a side that lights up: the one in focus, or the one that it is set against: typical calls against each
 *  other, others by number. */
export function litOn(sides: readonly Side[], nr: number, focus: Focus | null): number | null {
  if (!focus) return null;
  if (focus.side === nr) return focus.call;
  const [mine, other] = [at(sides, nr), at(sides, focus.side)];
  const { typical } = other.timeline.course;
  const row =
    typical?.row === focus.call
      ? (mine.timeline.course.typical?.row ?? -1)
      : rowOf(mine, at(other.timeline.calls.nr, focus.call));
  return row < 0 ? null : row;
}

function paintLane(
  context: CanvasRenderingContext2D,
  width: number,
  side: Side,
  lit: number | null,
  place: Place,
  view: View,
  x: Scale,
  colour: Colours,
): number {
  const of = side.lanes[place.lane];
  const [first, last] = inView(of.start, of.maxEnd, view);
  if (of.depth) return paintDepth(context, width, side, lit, place, view, x, colour);
  const step = place.height / of.rows;
  const point = place.lane === "pages";
  const until = new Float64Array(of.rows).fill(Number.NEGATIVE_INFINITY);
  const kind = new Array<string>(of.rows).fill("");
  let painted = 0;
  const strong: number[] = [];
  const one = (k: number, alpha: number, always: boolean) => {
    const left = Math.max(x(at(of.start, k)), -2);
    const right = Math.min(Math.max(x(at(of.end, k)), left + (point ? 2 : 1)), width + 2);
    const row = at(of.row, k);
    const item = looks(side, place.lane, at(of.id, k), colour);
    // The same pixels in the same colour again: nothing to see.
    if (!always && right <= at(until, row) + 0.5 && kind[row] === item.fill) return;
    until[row] = right;
    kind[row] = item.fill;
    const top = place.top + row * step + 1;
    const tall = Math.max(2, step - 2);
    context.globalAlpha = alpha;
    context.fillStyle = item.fill;
    // A pixel between neighbours, where there is room for it.
    const wide = right - left > 4 ? right - left - 1 : right - left;
    context.fillRect(left, top, wide, tall);
    if (place.lane === "windows") paintWindow(context, side, at(of.id, k), left, wide, top, tall, colour);
    else if (item.text && wide > 26 && tall >= 11)
      label(context, item.text, left, wide, top + tall / 2, inkOn(item.fill));
    context.globalAlpha = 1;
    if (always && point) {
      context.fillRect(left - 1, top - 1, wide + 2, tall + 2);
    } else if (always) {
      context.strokeStyle = colour("ink");
      context.lineWidth = 2;
      context.strokeRect(left, top, Math.max(wide, 2), tall);
      context.lineWidth = 1;
    }
    painted++;
  };
  for (let k = first; k < last; k++) {
    if (at(of.end, k) < view.from) continue;
    if (lit !== null && of.call[k] === lit) strong.push(k);
    else one(k, lit !== null ? 0.3 : 1, false);
  }
  for (const k of strong) one(k, 1, true);
  return painted;
}

/** How many are in progress, as stacked steps; items of the call in focus as bars on them. */
function paintDepth(
  context: CanvasRenderingContext2D,
  width: number,
  side: Side,
  lit: number | null,
  place: Place,
  view: View,
  x: Scale,
  colour: Colours,
): number {
  const of = side.lanes[place.lane];
  const { depth } = of;
  if (!depth) return 0;
  const inks: Record<LaneName, [string, string]> = {
    calls: ["read", "write"],
    pages: ["hit", "miss"],
    windows: ["window", "window-soft"],
    plug: ["plug", "plug"],
    queue: ["queue", "queue-write"],
    device: ["read", "write"],
  };
  const [first, second] = inks[place.lane];
  const tall = place.height - 2;
  const bottom = place.top + place.height - 1;
  let painted = 0;
  // The largest depth on each pixel.
  let [px, low, high] = [-1, 0, 0];
  const flush = (until: number) => {
    if (high > 0) {
      const [one, all] = [(low / depth.most) * tall, (high / depth.most) * tall];
      context.fillStyle = colour(first);
      context.fillRect(px, bottom - one, Math.max(1, until - px), one);
      context.fillStyle = colour(second);
      context.fillRect(px, bottom - all, Math.max(1, until - px), all - one);
      painted++;
    }
  };
  context.globalAlpha = lit === null ? 1 : 0.45;
  const from = Math.max(0, lowerBound(depth.at, view.from) - 1);
  for (let k = from; k < depth.at.length && at(depth.at, k) <= view.to; k++) {
    const left = Math.max(0, Math.floor(x(at(depth.at, k))));
    const [reads, all] = [at(depth.first, k), at(depth.first, k) + at(depth.second, k)];
    if (left > px) {
      flush(left);
      [px, low, high] = [left, reads, all];
    } else if (all > high) [low, high] = [reads, all];
    // What a pixel ends with is what the next ones have.
    const next = k + 1 < depth.at.length ? Math.floor(x(at(depth.at, k + 1))) : left + 1;
    if (next > left + 1) {
      flush(left + 1);
      [px, low, high] = [left + 1, reads, all];
    }
  }
  flush(Math.min(width, px + 1));
  context.globalAlpha = 1;
  context.fillStyle = colour("ink");
  const what = place.lane === "calls" ? `${side.threads} threads, ` : "";
  const words = `${what}up to ${depth.most} at once`;
  context.strokeStyle = colour("lane");
  context.lineWidth = 4;
  context.strokeText(words, 4, place.top + 9);
  context.lineWidth = 1;
  context.fillText(words, 4, place.top + 9);
  if (lit === null) return painted;
  const items = side.ofCall(lit)[place.lane];
  const each = Math.max(3, Math.min(8, tall / Math.max(1, items.length)));
  const { requests, calls } = side.timeline;
  const inserted = (id: number) => (at(requests.i, id) >= 0 ? at(requests.i, id) : at(requests.g, id));
  items.slice(0, 40).forEach((id, k) => {
    const [start, end] =
      place.lane === "calls"
        ? [at(calls.start, id), at(calls.end, id)]
        : place.lane === "queue"
          ? [inserted(id), at(requests.d, id)]
          : [at(requests.d, id), at(requests.c, id)];
    context.fillStyle = colour("ink");
    context.fillRect(
      x(start),
      place.top + 1 + ((k * each) % tall),
      Math.max(2, x(end) - x(start)),
      Math.max(2, each - 1),
    );
    painted++;
  });
  return painted;
}

function looks(side: Side, lane: LaneName, id: number, colour: Colours): Item {
  const { calls, pages, plugs, requests } = side.timeline;
  switch (lane) {
    case "calls": {
      const op = calls.op[id];
      return {
        fill: colour(op === 0 ? "read" : op === 1 ? "write" : "sync"),
        text: op === 2 || op === 3 ? "sync" : format.size(calls.bytes[id]),
      };
    }
    case "pages":
      return { fill: colour(["added", "hit", "miss", "removed"][at(pages.kind, id)] ?? "muted") };
    case "windows":
      return { fill: colour("window") };
    case "plug":
      return { fill: colour("plug"), text: `plug: ${plugs.nr[id]}` };
    case "queue":
      return { fill: colour("queue") };
    case "device":
      return {
        fill: colour(requests.dir[id] === 0 ? "read" : "write"),
        text: format.size(at(requests.sectors, id) * 512),
      };
  }
}

/** A window: its pages from left to right; the async marker as a flag; below, what became of its pages. */
function paintWindow(
  context: CanvasRenderingContext2D,
  side: Side,
  id: number,
  left: number,
  width: number,
  top: number,
  tall: number,
  colour: Colours,
) {
  const { windows } = side.timeline;
  const nr = Math.max(1, at(windows.nr, id));
  if (width < 3) return;
  const fate = Math.min(4, tall / 3);
  let edge = left;
  for (const [pages, ink] of [
    [at(windows.used, id), "hit"],
    [at(windows.unused, id), "waste"],
    [at(windows.thrashed, id), "removed"],
  ] as const) {
    const part = (Math.min(pages, nr) / nr) * width;
    context.fillStyle = colour(ink);
    context.fillRect(edge, top + tall - fate, part, fate);
    edge += part;
  }
  if (at(windows.marker, id) >= at(windows.first, id) && width > 8) {
    const px = left + ((at(windows.marker, id) - at(windows.first, id)) / nr) * width;
    context.fillStyle = colour("ink");
    context.beginPath();
    context.moveTo(px, top);
    context.lineTo(px + 5, top + 3);
    context.lineTo(px, top + 6);
    context.fill();
    context.fillRect(px - 0.5, top, 1, tall - fate);
  }
  if (tall >= 13)
    label(
      context,
      `${at(windows.first, id)} +${at(windows.nr, id)}`,
      left,
      width,
      top + (tall - fate) / 2 + 1,
      inkOn(colour("window")),
    );
}

/** The whole run: requests at the device, starved slices in red, the detailed parts, the view. */
export function paintOverview(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  sides: readonly Side[],
  view: View,
  origin: readonly number[],
  colour: Colours,
) {
  const longest = Math.max(1, ...sides.map((side) => side.timeline.elapsed_ns));
  const x = linear(0, longest, 0, width);
  const each = height / sides.length;
  sides.forEach((side, nr) => {
    const { overview, detail } = side.timeline;
    const top = nr * each + 2;
    const tall = each - 4;
    context.fillStyle = colour("lane");
    context.fillRect(0, top, x(side.timeline.elapsed_ns), tall);
    const deepest = overview.depth_max.reduce((most, of) => Math.max(most, of), 1);
    for (let i = 0; i < overview.depth_max.length; i++) {
      const left = x(i * overview.slice_ns);
      const wide = Math.max(0.75, x((i + 1) * overview.slice_ns) - left + 0.25);
      const up = (at(overview.depth_max, i) / deepest) * (tall - 4);
      context.fillStyle = colour(nr === 0 ? "a" : "b");
      context.globalAlpha = 0.75;
      context.fillRect(left, top + tall - up, wide, up);
      context.globalAlpha = 1;
    }
    paintStarved(context, side, top, tall, x, colour);
    context.strokeStyle = colour("muted");
    for (const part of detail) {
      const left = x(part.from_ns);
      context.strokeRect(left + 0.5, top + 0.5, Math.max(2, x(part.to_ns) - left - 1), tall - 1);
    }
    // The view, on this side's clock.
    const own = viewOf(view, origin[nr] ?? 0);
    const left = x(own.from);
    const wide = Math.max(3, x(own.to) - left);
    context.fillStyle = colour("brush");
    context.fillRect(left, nr * each, wide, each);
    context.strokeStyle = colour("ink");
    context.lineWidth = 2;
    context.strokeRect(left, nr * each + 1, wide, each - 2);
    context.lineWidth = 1;
  });
}

/** The starved share of each slice, from above; as tall as it is. */
export function paintStarved(
  context: CanvasRenderingContext2D,
  side: Side,
  top: number,
  tall: number,
  x: Scale,
  colour: Colours,
) {
  const { overview } = side.timeline;
  context.fillStyle = colour("stall");
  for (let i = 0; i < overview.starved.length; i++) {
    const [left, right] = [x(i * overview.slice_ns), x((i + 1) * overview.slice_ns)];
    if (at(overview.starved, i) > 0) context.fillRect(left, top, right - left, at(overview.starved, i) * tall);
  }
}

/** LBA of requests at the device over the clock; a line between one and the next is a seek. */
export function paintDisk(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  side: Side,
  nr: number,
  view: View,
  range: readonly [number, number],
  focus: Focus | null,
  colour: Colours,
) {
  const x = linear(view.from, view.to, 0, width);
  const y = linear(range[0], range[1], height - 6, 6);
  const of = side.lanes.device;
  const { sector, sectors, dir } = side.timeline.requests;
  context.fillStyle = colour("lane");
  context.fillRect(0, 0, width, height);
  const [first, last] = inView(of.start, of.maxEnd, view);
  context.strokeStyle = colour("muted");
  context.globalAlpha = 0.5;
  context.beginPath();
  const end = (id: number) => at(sector, id) + at(sectors, id);
  for (let k = Math.max(first, 1); k < last; k++) {
    const [before, id] = [at(of.id, k - 1), at(of.id, k)];
    if (at(sector, id) === end(before)) continue;
    context.moveTo(x(at(of.start, k - 1)), y(end(before)));
    context.lineTo(x(at(of.start, k)), y(at(sector, id)));
  }
  context.stroke();
  context.globalAlpha = 1;
  for (let k = first; k < last; k++) {
    const id = at(of.id, k);
    const lit = focus?.side === nr && of.call[k] === focus.call;
    context.fillStyle = lit ? colour("ink") : colour(at(dir, id) === 0 ? "read" : "write");
    const top = y(end(id));
    const wide = Math.max(2, x(at(of.end, k)) - x(at(of.start, k)));
    context.fillRect(x(at(of.start, k)), top - 1, wide, Math.max(lit ? 4 : 2.5, y(at(sector, id)) - top));
  }
}
