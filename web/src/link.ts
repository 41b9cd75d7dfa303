// Links to a moment: `#t=FROM,TO&align=BY&zero=A,B&call=SIDE.NUMBER` (ns in aligned time; where zero is on each side's
// clock; the call in focus), and to a finding: `#find=RULE`. The address follows the view, so that it can be copied.

import { ALIGNS, type Align, aligned, rowOf, typicalRows } from "./align.ts";
import { at } from "./data.ts";
import { firstView, type LaneName, type Side } from "./lanes.ts";
import type { View } from "./scale.ts";
import { type Focus, shared } from "./store.ts";

export interface Moment {
  view: View;
  by: Align;
  origin: number[];
  /** Side and number of a call, from 1 on. */
  call: [number, number] | null;
}

/** The moment of a fragment, or null if it is of something else. */
export function read(hash: string): Moment | null {
  const parts = new Map(
    hash
      .replace(/^#/, "")
      .split("&")
      .map((part) => part.split("=", 2) as [string, string]),
  );
  const numbers = (key: string) =>
    (parts.get(key) ?? "").split(",").map((word) => (word === "" ? Number.NaN : Number(word)));
  const [from = Number.NaN, to = Number.NaN] = numbers("t");
  if (!(to > from)) return null;
  const by = parts.get("align") ?? "clock";
  const origin = numbers("zero");
  const call = /^([AB])\.(\d+)$/.exec(parts.get("call") ?? "");
  return {
    view: { from, to },
    by: by in ALIGNS ? (by as Align) : "clock",
    origin: origin.every(Number.isFinite) ? origin : [0, 0],
    call: call ? ["AB".indexOf(call[1] ?? "A"), Number(call[2])] : null,
  };
}

export function written(moment: Moment): string {
  const { view, by, origin, call } = moment;
  const round = (of: number) => Math.round(of);
  const words = [
    `t=${round(view.from)},${Math.max(round(view.to), round(view.from) + 1)}`,
    `align=${by}`,
    `zero=${origin.map(round).join(",")}`,
  ];
  if (call) words.push(`call=${"AB".charAt(call[0])}.${call[1]}`);
  return `#${words.join("&")}`;
}

/** The moment that is shown now. */
export function current(sides: readonly Side[]): Moment {
  const { by, origin } = shared.align.get();
  const focus = shared.focus.get();
  const nr = focus?.pinned ? sides[focus.side]?.timeline.calls.nr[focus.call] : undefined;
  return {
    view: shared.view.get(),
    by,
    origin: [...origin],
    call: focus && nr !== undefined ? [focus.side, nr] : null,
  };
}

export function show(moment: Moment, sides: readonly Side[]) {
  shared.align.set({ by: moment.by, origin: sides.map((_, nr) => moment.origin[nr] ?? 0), note: "" });
  shared.view.set(moment.view);
  const [side, nr] = moment.call ?? [0, -1];
  const row = sides[side] ? rowOf(sides[side], nr) : -1;
  const focus: Focus | null = row >= 0 ? { side, call: row, pinned: true } : null;
  shared.focus.set(focus);
}

/** The call of a side that shows what happens in these lanes: the typical one if anything of it is there, else the
 *  median of those of which something is; -1 without calls. */
export function example(side: Side, lanes: readonly LaneName[]): number {
  const { calls, course } = side.timeline;
  const time = (call: number) => {
    const of = side.ofCall(call);
    return lanes.reduce((sum, lane) => sum + (lane === "calls" ? 1 : of[lane].length), 0);
  };
  const typical = course.typical?.row ?? -1;
  if (lanes.length === 0 || (typical >= 0 && time(typical) > 0)) return typical;
  const rows = Array.from(calls.start.keys()).filter((row) => time(row) > 0);
  rows.sort((x, y) => at(calls.end, x) - at(calls.start, x) - (at(calls.end, y) - at(calls.start, y)) || x - y);
  return rows[Math.floor(rows.length / 2)] ?? typical;
}

/** The example of what happens in these lanes on the slow side, with the same call of the other; the lanes light up. */
export function showExample(sides: readonly Side[], slow: number, lanes: readonly LaneName[]) {
  const side = at(sides, slow);
  const row = example(side, lanes);
  shared.lit.set(lanes.length > 0 ? lanes : null);
  if (row === (side.timeline.course.typical?.row ?? -1)) return showTypical(sides, slow);
  const { calls } = side.timeline;
  const took = Math.max(1000, at(calls.end, row) - at(calls.start, row));
  shared.align.set(aligned(sides, "call", slow, row));
  shared.view.set({ from: -0.02 * took, to: 1.06 * took });
  shared.focus.set({ side: slow, call: row, pinned: true });
}

/** The typical calls of the sides, with that of the slow one in focus. */
export function showTypical(sides: readonly Side[], slow: number) {
  const row = at(typicalRows(sides), slow);
  shared.align.set(aligned(sides, "typical", slow, row));
  shared.view.set(firstView(sides, { from: 0, to: 1000 }));
  if (row >= 0) shared.focus.set({ side: slow, call: row, pinned: true });
}
