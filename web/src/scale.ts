// Scales, ticks, the view over a common clock, and searches in sorted columns. Pure functions.

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
  const span = to - from || 1;
  const scale = ((value: number) => low + ((value - from) / span) * (high - low)) as Scale;
  scale.invert = (pixel: number) => from + ((pixel - low) / (high - low || 1)) * span;
  return scale;
}

export function logarithmic(from: number, to: number, low: number, high: number): Scale {
  const first = Math.max(from, Number.MIN_VALUE);
  const inner = linear(Math.log(first), Math.log(Math.max(to, first * 1.0001)), low, high);
  const scale = ((value: number) => inner(Math.log(Math.max(value, first)))) as Scale;
  scale.invert = (pixel: number) => Math.exp(inner.invert(pixel));
  return scale;
}

/** Round values between two: 1, 2 or 5 times a power of ten apart, about `count` of them. */
export function ticks(from: number, to: number, count: number): number[] {
  const span = to - from;
  if (!(span > 0) || !Number.isFinite(span)) return [from];
  const raw = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((of) => of * power).find((of) => of >= raw * 0.999) ?? 10 * power;
  const values: number[] = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + step * 1e-9 && values.length < 200; k++) {
    // Not -0, and no digits that adding made.
    values.push(Number((k * step).toPrecision(12)) + 0);
  }
  return values;
}

/** Powers of ten between two, with 2 and 5 times them if they are few; round values if even those are. */
export function logTicks(from: number, to: number): number[] {
  if (!(from > 0) || !(to > from)) return [from];
  const decades = Math.log10(to / from);
  const steps = decades <= 2 ? [1, 2, 5] : [1];
  const skip = Math.max(1, Math.ceil(decades / 8));
  const values: number[] = [];
  const first = Math.floor(Math.log10(from));
  for (let power = first; power <= Math.log10(to); power += skip) {
    for (const step of steps) {
      const value = Number(`${step}e${power}`);
      if (value >= from * 0.999 && value <= to * 1.001) values.push(value);
    }
  }
  return values.length > 2 ? values : ticks(from, to, 4);
}

/** First index whose value is not less. */
export function lowerBound(sorted: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Largest so far: with it, the first of overlapping intervals that reaches into a view is found by bisection. */
export function runningMax(values: ArrayLike<number>): Float64Array {
  const max = new Float64Array(values.length);
  let largest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < values.length; i++) {
    if (values[i] > largest) largest = values[i];
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
  const at = span > 0 ? (around - view.from) / span : 0.5;
  return clamped({ from: around - at * next, to: around + (1 - at) * next }, whole);
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
    let chosen = free.findIndex((until) => until <= start[i]);
    if (chosen < 0) {
      if (free.length < most) {
        chosen = free.length;
        free.push(0);
      } else {
        chosen = free.indexOf(Math.min(...free));
      }
    }
    free[chosen] = Math.max(free[chosen], end[i]);
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
    let at = from;
    while (k < less.length && less[k][1] <= at) k++;
    for (let j = k; j < less.length && less[j][0] < to; j++) {
      if (less[j][0] > at) out.push([at, less[j][0]]);
      at = Math.max(at, less[j][1]);
    }
    if (at < to) out.push([at, to]);
  }
  return out;
}
