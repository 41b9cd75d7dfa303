// Scales, ticks, the view over a common clock, and searches in sorted columns. Pure functions.

import { scaleLinear, scaleLog } from "d3-scale";
import { at } from "./data.ts";

/** A part of the clock, in ns. */
export interface View {
  from: number;
  to: number;
}

export interface Scale {
  (value: number): number;
  invert(pixel: number): number;
}

export function linear(from: number, to: number, low: number, high: number): Scale {
  return scaleLinear([from, to === from ? from + 1 : to], [low, high]);
}

export function logarithmic(from: number, to: number, low: number, high: number): Scale {
  const first = Math.max(from, Number.MIN_VALUE);
  const inner = scaleLog([first, Math.max(to, first * 1.0001)], [low, high]);
  // What is below the axis is at its end.
  const scale = ((value: number) => inner(Math.max(value, first))) as Scale;
  scale.invert = inner.invert;
  return scale;
}

/** Round values between two: 1, 2 or 5 times a power of ten apart, about `count` of them. */
export function ticks(from: number, to: number, count: number): number[] {
  if (!(to > from) || !Number.isFinite(to - from)) return [from];
  return scaleLinear([from, to], [0, 1]).ticks(count);
}

/** Digits of ticks of a logarithmic axis, the roundest first. */
const DIGITS = [[1], [5], [2], [3, 7], [1.5, 4, 6, 8], [2.5, 9, 1.2, 1.8, 3.5, 4.5]] as const;

/** Round values between two for a logarithmic axis, in order: the roundest that fit. `fits` says whether a label at a
 *  value has room next to those at the others. Where no round digit lies between, values evenly apart. */
export function logTicks(
  from: number,
  to: number,
  most: number,
  fits: (value: number, others: readonly number[]) => boolean = () => true,
): number[] {
  if (!(from > 0) || !(to > from)) return [from];
  const values: number[] = [];
  const add = (value: number) => {
    if (value >= from && value <= to && !values.includes(value) && fits(value, values)) values.push(value);
  };
  const [first, last] = [Math.floor(Math.log10(from)), Math.ceil(Math.log10(to))];
  const skip = Math.max(1, Math.ceil((last - first) / most));
  for (const digits of DIGITS) {
    if (values.length >= Math.min(4, most)) break;
    for (let power = first; power <= last; power += skip) {
      for (const digit of digits) if (values.length < most) add(Number(`${digit}e${power}`));
    }
  }
  if (values.length < 2) for (const value of ticks(from, to, 4)) add(value);
  return values.sort((x, y) => x - y);
}

/** First index whose value is not less. */
export function lowerBound(sorted: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (at(sorted, middle) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Largest so far: with it, the first of overlapping intervals that reaches into a view is found by bisection. */
export function runningMax(values: ArrayLike<number>): Float64Array {
  const max = new Float64Array(values.length);
  let largest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < values.length; i++) {
    if (at(values, i) > largest) largest = at(values, i);
    max[i] = largest;
  }
  return max;
}

/** Indices [first, last) of intervals, sorted by start, that may be in the view. */
export function inView(start: ArrayLike<number>, maxEnd: ArrayLike<number>, view: View): [number, number] {
  const last = lowerBound(start, view.to);
  const first = Math.min(lowerBound(maxEnd, view.from), last);
  return [first, last];
}

/** Zooms by a factor (< 1: closer) around a point, and stays within the whole and above the smallest span. */
export function zoomed(view: View, factor: number, around: number, whole: View, least: number): View {
  const span = view.to - view.from;
  const next = Math.min(Math.max(span * factor, Math.min(least, whole.to - whole.from)), whole.to - whole.from);
  const share = span > 0 ? (around - view.from) / span : 0.5;
  return clamped({ from: around - share * next, to: around + (1 - share) * next }, whole);
}

export function panned(view: View, by: number, whole: View): View {
  return clamped({ from: view.from + by, to: view.to + by }, whole);
}

/** Moved, not cut, into the whole. */
export function clamped(view: View, whole: View): View {
  const span = Math.min(view.to - view.from, whole.to - whole.from);
  const from = Math.min(Math.max(view.from, whole.from), whole.to - span);
  return { from, to: from + span };
}

/** Greedy rows: an item takes the first row that is free at its start, or the one that is free soonest. */
export function rows(
  start: ArrayLike<number>,
  end: ArrayLike<number>,
  most: number,
): { row: Uint8Array; used: number } {
  const free: number[] = [];
  const row = new Uint8Array(start.length);
  for (let i = 0; i < start.length; i++) {
    let chosen = free.findIndex((until) => until <= at(start, i));
    if (chosen < 0) {
      if (free.length < most) {
        chosen = free.length;
        free.push(0);
      } else {
        chosen = free.indexOf(Math.min(...free));
      }
    }
    free[chosen] = Math.max(at(free, chosen), at(end, i));
    row[i] = chosen;
  }
  return { row, used: Math.max(1, free.length) };
}

/** Union of intervals, sorted and apart. */
export function union(intervals: readonly (readonly [number, number])[]): [number, number][] {
  const sorted = intervals.filter(([from, to]) => to > from).sort((x, y) => x[0] - y[0]);
  const out: [number, number][] = [];
  for (const [from, to] of sorted) {
    const last = out[out.length - 1];
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else out.push([from, to]);
  }
  return out;
}

/** The first union without the second. */
export function minus(of: readonly [number, number][], less: readonly [number, number][]): [number, number][] {
  const out: [number, number][] = [];
  let k = 0;
  for (const [from, to] of of) {
    let now = from;
    while (k < less.length && at(less, k)[1] <= now) k++;
    for (let j = k; j < less.length && at(less, j)[0] < to; j++) {
      const [start, end] = at(less, j);
      if (start > now) out.push([now, start]);
      now = Math.max(now, end);
    }
    if (now < to) out.push([now, to]);
  }
  return out;
}

/** How many intervals are in progress, as steps: from each time on, the number of each of two kinds. */
export interface Steps {
  at: Float64Array;
  first: Uint16Array;
  second: Uint16Array;
  most: number;
}

/** Steps of intervals that need not be sorted; `second` says which are of the second kind. */
export function steps(start: ArrayLike<number>, end: ArrayLike<number>, second: (i: number) => boolean): Steps {
  const changes: { when: number; by: number; kind: number }[] = [];
  for (let i = 0; i < start.length; i++) {
    if (at(end, i) <= at(start, i)) continue;
    const kind = second(i) ? 1 : 0;
    changes.push({ when: at(start, i), by: 1, kind }, { when: at(end, i), by: -1, kind });
  }
  // What ends makes room for what begins at the same time.
  changes.sort((x, y) => x.when - y.when || x.by - y.by);
  const n = changes.length;
  const out = { at: new Float64Array(n), first: new Uint16Array(n), second: new Uint16Array(n), most: 0 };
  const now: [number, number] = [0, 0];
  changes.forEach(({ when, by, kind }, k) => {
    now[kind as 0 | 1] += by;
    out.at[k] = when;
    [out.first[k], out.second[k]] = now;
    out.most = Math.max(out.most, now[0] + now[1]);
  });
  return out;
}
