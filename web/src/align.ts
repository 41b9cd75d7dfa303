// Where zero is on each side's clock. The common view is in aligned time; each side's own view is shifted by its origin.

import { at, type Report } from "./data.ts";
import type { Side } from "./lanes.ts";
import { lowerBound, type View } from "./scale.ts";

export const ALIGNS = {
  typical: "Typical calls",
  call: "Same call",
  offset: "Same file offset",
  clock: "One clock",
} as const;
export type Align = keyof typeof ALIGNS;

/** An alignment: the origin of each side on its clock, ns; and what cannot be aligned. */
export interface Aligned {
  by: Align;
  origin: readonly number[];
  note: string;
}

/** The calls that stand for the sides: rows, -1 where there is none. */
export const typicalRows = (sides: readonly Side[]): number[] =>
  sides.map((side) => side.timeline.course.typical?.row ?? -1);

/** The row of a call by its number in the run, or -1. */
export function rowOf(side: Side, nr: number): number {
  const { calls } = side.timeline;
  const row = lowerBound(calls.nr, nr);
  return calls.nr[row] === nr ? row : -1;
}

/** When a call began, by its number: kept or not. */
function startOf(side: Side, nr: number): number | undefined {
  const row = rowOf(side, nr);
  return row >= 0 ? at(side.timeline.calls.start, row) : side.timeline.course.points.start[nr - 1];
}

/** All sides aligned by the call in row `row` of `side`. */
export function aligned(sides: readonly Side[], by: Align, side: number, row: number): Aligned {
  const clock = { by, origin: sides.map(() => 0), note: "" };
  if (by === "typical") {
    const origin = sides.map(({ timeline: { course } }) => course.typical?.start_ns ?? 0);
    return { by, origin, note: "" };
  }
  const calls = sides[side]?.timeline.calls;
  if (by === "clock" || !calls || row < 0 || row >= calls.start.length) return clock;
  let note = "";
  const origin = sides.map((other, nr) => {
    if (nr === side) return at(calls.start, row);
    if (by === "call") {
      const start = startOf(other, at(calls.nr, row));
      if (start === undefined) note = `${"AB"[nr]} has no call ${at(calls.nr, row)} in detail`;
      return start ?? 0;
    }
    const same = other.timeline.calls.offset.findIndex(
      (offset, i) => offset === at(calls.offset, row) && other.timeline.calls.file[i] === at(calls.file, row),
    );
    if (same < 0) note = `${"AB"[nr]} has no call at this offset in detail`;
    return same < 0 ? 0 : at(other.timeline.calls.start, same);
  });
  return { by, origin, note };
}

/** A call that a word finds: its number, a sector of one of its requests, a part of its file's name. */
export function found(sides: readonly Side[], words: string): { side: number; row: number; nr: number } | null {
  const text = words.trim().toLowerCase();
  const number = Number(/^(?:call\s*)?(\d+)$/.exec(text)?.[1] ?? Number.NaN);
  const sector = Number(/^sector\s*(\d+)$/.exec(text)?.[1] ?? Number.NaN);
  // B before A: what is looked for is mostly in what is slow.
  for (let side = sides.length - 1; side >= 0; side--) {
    const of = at(sides, side);
    const { calls, requests, files, course } = of.timeline;
    if (number >= 1 && number <= course.calls) return { side, row: rowOf(of, number), nr: number };
    const hit = requests.sector.findIndex((first, i) => sector >= first && sector < first + at(requests.sectors, i));
    const named = text.length > 1 ? files.findIndex((file) => file.name.toLowerCase().includes(text)) : -1;
    const row = hit >= 0 ? at(requests.call, hit) : named >= 0 ? calls.file.indexOf(named) : -1;
    if (row >= 0) return { side, row, nr: at(calls.nr, row) };
  }
  return null;
}

/** A side's own view. */
export const viewOf = (view: View, origin: number): View => ({ from: view.from + origin, to: view.to + origin });

/** The whole of all sides in aligned time. */
export function wholeOf(report: Report, origin: readonly number[]): View {
  const ends = report.sides.map((side, nr) => side.timeline.elapsed_ns - (origin[nr] ?? 0));
  const from = Math.min(...origin.map((of) => -of), 0);
  return { from, to: Math.max(from + 1000, ...ends) };
}
