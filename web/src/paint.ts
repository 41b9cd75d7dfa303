// Paints the lanes of all sides over the common clock. Only items in view are touched, and items on the same pixel of
// the same row are painted once.

import type { Colours } from "./canvas.tsx";
import * as format from "./format.ts";
import { LANE_NAMES, type LaneName, type Side } from "./lanes.ts";
import { inView, linear, ticks, type View } from "./scale.ts";
import type { Focus } from "./store.ts";

export const AXIS = 22;
export const HEAD = 22;
const HEIGHTS: Record<LaneName, number> = { calls: 30, pages: 32, windows: 46, plug: 22, queue: 30, device: 40 };
const GAP = 4;

export interface Place {
  side: number;
  lane: LaneName;
  top: number;
  height: number;
}

/** Where the lanes are, from above. */
export function layout(sides: number): { places: Place[]; heads: number[]; height: number } {
  const places: Place[] = [];
  const heads: number[] = [];
  let top = AXIS;
  for (let side = 0; side < sides; side++) {
    heads.push(top);
    top += HEAD;
    for (const lane of LANE_NAMES) {
      places.push({ side, lane, top, height: HEIGHTS[lane] });
      top += HEIGHTS[lane] + GAP;
    }
    top += 6;
  }
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
  focus: Focus | null,
  colour: Colours,
): number {
  const { places, heads, height } = layout(sides.length);
  const x = linear(view.from, view.to, 0, width);
  let painted = 0;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  // The clock, common to both sides.
  context.strokeStyle = colour("grid");
  context.fillStyle = colour("muted");
  context.lineWidth = 1;
  for (const at of ticks(view.from, view.to, Math.max(2, width / 110))) {
    const px = Math.round(x(at)) + 0.5;
    context.beginPath();
    context.moveTo(px, AXIS - 4);
    context.lineTo(px, height);
    context.stroke();
    context.fillText(format.instant(at), Math.min(px + 3, width - 50), AXIS / 2);
  }
  const hatched = hatch(context, colour("stall"), 5);
  const unknown = hatch(context, colour("grid"), 8);
  sides.forEach((side, nr) => {
    const mine = places.filter((place) => place.side === nr);
    const top = mine[0].top;
    const bottom = mine[mine.length - 1].top + mine[mine.length - 1].height;
    context.fillStyle = colour(nr === 0 ? "a" : "b");
    context.fillRect(0, heads[nr] + HEAD - 4, width, 2);
    for (const place of mine) {
      context.fillStyle = colour("lane");
      context.fillRect(0, place.top, width, place.height);
    }
    // Where only the overview knows, and after the run.
    let known = 0;
    const gaps: [number, number][] = [];
    for (const part of side.timeline.detail) {
      if (part.from_ns > known) gaps.push([known, part.from_ns]);
      known = Math.max(known, part.to_ns);
    }
    gaps.push([known, Number.POSITIVE_INFINITY]);
    for (const [from, to] of gaps) {
      const [left, right] = [Math.max(0, x(from)), Math.min(width, x(to))];
      if (right - left < 1) continue;
      context.fillStyle = unknown;
      context.fillRect(left, top, right - left, bottom - top);
      const finished = from >= side.timeline.elapsed_ns;
      const words = finished ? "the run has ended" : "kept in the overview only";
      if (right - left > 140) {
        context.fillStyle = colour("muted");
        context.fillText(words, left + 8, top + 12);
      }
    }
    paintStalls(context, side, mine, view, x, colour, hatched);
    for (const place of mine) {
      painted += paintLane(context, width, side, nr, place, view, x, focus, colour);
    }
    const stalled = stallsIn(side, view);
    const words =
      stalled.count === 0
        ? "no stalls in view"
        : `${stalled.count} ${stalled.count === 1 ? "stall" : "stalls"} in view: ${format.time(stalled.ns)}`;
    context.fillStyle = colour(stalled.count === 0 ? "muted" : "stall-ink");
    context.textAlign = "right";
    context.fillText(words, width - 4, heads[nr] + 9);
    context.textAlign = "left";
    const difference = side.timeline.first_difference;
    if (difference != null && difference < side.timeline.calls.start.length) {
      const px = Math.round(x(side.timeline.calls.start[difference])) + 0.5;
      if (px >= 0 && px <= width) {
        context.strokeStyle = colour("ink");
        context.setLineDash([4, 3]);
        context.beginPath();
        context.moveTo(px, heads[nr] + 2);
        context.lineTo(px, bottom);
        context.stroke();
        context.setLineDash([]);
        context.fillStyle = colour("ink");
        context.fillText("first difference", Math.min(px + 4, width - 240), heads[nr] + 9);
      }
    }
  });
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

/** The device idle while requests are held: through plug, queue and device, and never thinner than 2 px. */
function paintStalls(
  context: CanvasRenderingContext2D,
  side: Side,
  mine: readonly Place[],
  view: View,
  x: (at: number) => number,
  colour: Colours,
  hatched: CanvasPattern | string,
) {
  const from = mine.find((place) => place.lane === "plug");
  const to = mine.find((place) => place.lane === "device");
  if (!from || !to) return;
  let last = -1;
  for (const [start, end] of side.stalls) {
    if (end < view.from || start > view.to) continue;
    const left = x(start);
    const width = Math.max(2, x(end) - left);
    if (left + width <= last) continue;
    last = left + width;
    context.fillStyle = colour("stall-soft");
    context.fillRect(left, from.top, width, to.top + to.height - from.top);
    context.fillStyle = hatched;
    context.fillRect(left, from.top, width, to.top + to.height - from.top);
    context.fillStyle = colour("stall");
    context.fillRect(left, to.top + to.height - 4, width, 4);
    if (width > 72)
      label(context, `stall ${format.time(end - start)}`, left, width, to.top + to.height / 2, colour("stall-ink"));
  }
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

function paintLane(
  context: CanvasRenderingContext2D,
  width: number,
  side: Side,
  nr: number,
  place: Place,
  view: View,
  x: (at: number) => number,
  focus: Focus | null,
  colour: Colours,
): number {
  const of = side.lanes[place.lane];
  const [first, last] = inView(of.start, of.maxEnd, view);
  const step = place.height / of.rows;
  const point = place.lane === "pages";
  const lit = focus && focus.side === nr ? focus.call : null;
  const echo = focus && focus.side !== nr ? focus.call : null;
  const until = new Float64Array(of.rows).fill(Number.NEGATIVE_INFINITY);
  const kind = new Array<string>(of.rows).fill("");
  let painted = 0;
  const strong: number[] = [];
  const one = (k: number, alpha: number, always: boolean) => {
    const left = Math.max(x(of.start[k]), -2);
    const right = Math.min(Math.max(x(of.end[k]), left + (point ? 2 : 1)), width + 2);
    const row = of.row[k];
    const item = looks(side, place.lane, of.id[k], colour);
    // The same pixels in the same colour again: nothing to see.
    if (!always && right <= until[row] + 0.5 && kind[row] === item.fill) return;
    until[row] = right;
    kind[row] = item.fill;
    const top = place.top + row * step + 1;
    const tall = Math.max(2, step - 2);
    context.globalAlpha = alpha;
    context.fillStyle = item.fill;
    // A pixel between neighbours, where there is room for it.
    const wide = right - left > 4 ? right - left - 1 : right - left;
    context.fillRect(left, top, wide, tall);
    if (place.lane === "windows") paintWindow(context, side, of.id[k], left, wide, top, tall, colour);
    else if (item.text && wide > 26 && tall >= 11) label(context, item.text, left, wide, top + tall / 2, colour("on"));
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
    if (of.end[k] < view.from) continue;
    if ((lit !== null && of.call[k] === lit) || (echo !== null && place.lane === "calls" && of.id[k] === echo))
      strong.push(k);
    else one(k, lit !== null ? 0.3 : 1, false);
  }
  for (const k of strong) one(k, 1, true);
  return painted;
}

function looks(side: Side, lane: LaneName, id: number, colour: Colours): Item {
  const { calls, pages, plugs, requests } = side.timeline;
  switch (lane) {
    case "calls": {
      const op = calls.op[id];
      return {
        fill: colour(op === 0 ? "read" : op === 1 ? "write" : "sync"),
        text: op < 2 ? format.size(calls.bytes[id]) : "sync",
      };
    }
    case "pages":
      return { fill: colour(["added", "hit", "miss", "removed"][pages.kind[id]] ?? "muted") };
    case "windows":
      return { fill: colour("window") };
    case "plug":
      return { fill: colour("plug"), text: `plug: ${plugs.nr[id]}` };
    case "queue":
      return { fill: colour("queue") };
    case "device":
      return {
        fill: colour(requests.dir[id] === 0 ? "read" : "write"),
        text: format.size(requests.sectors[id] * 512),
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
  const nr = Math.max(1, windows.nr[id]);
  if (width < 3) return;
  const fate = Math.min(4, tall / 3);
  let at = left;
  for (const [pages, ink] of [
    [windows.used[id], "hit"],
    [windows.unused[id], "waste"],
    [windows.thrashed[id], "removed"],
  ] as const) {
    const part = (Math.min(pages, nr) / nr) * width;
    context.fillStyle = colour(ink);
    context.fillRect(at, top + tall - fate, part, fate);
    at += part;
  }
  if (windows.marker[id] >= windows.first[id] && width > 8) {
    const px = left + ((windows.marker[id] - windows.first[id]) / nr) * width;
    context.fillStyle = colour("ink");
    context.beginPath();
    context.moveTo(px, top);
    context.lineTo(px + 5, top + 3);
    context.lineTo(px, top + 6);
    context.fill();
    context.fillRect(px - 0.5, top, 1, tall - fate);
  }
  if (tall >= 13)
    label(context, `${windows.first[id]} +${windows.nr[id]}`, left, width, top + (tall - fate) / 2 + 1, colour("on"));
}

/** The whole run: requests at the device, starved slices in red, the detailed parts, the view. */
export function paintOverview(
  context: CanvasRenderingContext2D,
  width: number,
  height: number,
  sides: readonly Side[],
  whole: View,
  view: View,
  colour: Colours,
) {
  const x = linear(whole.from, whole.to, 0, width);
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
      const up = (overview.depth_max[i] / deepest) * (tall - 4);
      context.fillStyle = colour(nr === 0 ? "a" : "b");
      context.globalAlpha = 0.75;
      context.fillRect(left, top + tall - up, wide, up);
      context.globalAlpha = 1;
      if (overview.starved[i] > 0) {
        const down = Math.max(2, overview.starved[i] * tall);
        context.fillStyle = colour("stall");
        context.fillRect(left, top, wide, down);
      }
    }
    context.strokeStyle = colour("muted");
    for (const part of detail) {
      const left = x(part.from_ns);
      context.strokeRect(left + 0.5, top + 0.5, Math.max(2, x(part.to_ns) - left - 1), tall - 1);
    }
  });
  const left = x(view.from);
  const wide = Math.max(3, x(view.to) - left);
  context.fillStyle = colour("brush");
  context.fillRect(left, 0, wide, height);
  context.strokeStyle = colour("ink");
  context.lineWidth = 2;
  context.strokeRect(left, 1, wide, height - 2);
  context.lineWidth = 1;
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
  for (let k = Math.max(first, 1); k < last; k++) {
    const before = of.id[k - 1];
    const id = of.id[k];
    if (sector[id] === sector[before] + sectors[before]) continue;
    context.moveTo(x(of.start[k - 1]), y(sector[before] + sectors[before]));
    context.lineTo(x(of.start[k]), y(sector[id]));
  }
  context.stroke();
  context.globalAlpha = 1;
  for (let k = first; k < last; k++) {
    const id = of.id[k];
    const lit = focus?.side === nr && of.call[k] === focus.call;
    context.fillStyle = lit ? colour("ink") : colour(dir[id] === 0 ? "read" : "write");
    const top = y(sector[id] + sectors[id]);
    context.fillRect(
      x(of.start[k]),
      top - 1,
      Math.max(2, x(of.end[k]) - x(of.start[k])),
      Math.max(lit ? 4 : 2.5, y(sector[id]) - top),
    );
  }
}
