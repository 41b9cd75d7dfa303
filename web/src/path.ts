// Paths of SVG for steps, lines and bands. Points of a band or line that do not exist (null) are left out.

import { at } from "./data.ts";
import type { Scale } from "./scale.ts";

const n = (value: number) => String(Math.round(value * 10) / 10);

/** A distribution function: flat until the next point, then up. It begins at zero. */
export function stepPath(xs: readonly number[], ys: readonly number[], x: Scale, y: Scale, end?: number): string {
  if (xs.length === 0) return "";
  let path = `M${n(x(at(xs, 0)))} ${n(y(0))}`;
  for (let i = 0; i < xs.length; i++) path += `H${n(x(at(xs, i)))}V${n(y(at(ys, i)))}`;
  return end === undefined ? path : `${path}H${n(x(end))}`;
}

/** The band between two step functions over the same points. */
export function stepBand(
  xs: readonly number[],
  low: readonly number[],
  high: readonly number[],
  x: Scale,
  y: Scale,
  end?: number,
): string {
  if (xs.length === 0) return "";
  let path = `M${n(x(at(xs, 0)))} ${n(y(at(high, 0)))}`;
  for (let i = 1; i < xs.length; i++) path += `H${n(x(at(xs, i)))}V${n(y(at(high, i)))}`;
  if (end !== undefined) path += `H${n(x(end))}`;
  path += `V${n(y(at(low, low.length - 1)))}`;
  for (let i = xs.length - 1; i > 0; i--) path += `H${n(x(at(xs, i)))}V${n(y(at(low, i - 1)))}`;
  return `${path}H${n(x(at(xs, 0)))}Z`;
}

export function linePath(xs: readonly number[], ys: readonly (number | null)[], x: Scale, y: Scale): string {
  let path = "";
  let pen = false;
  for (let i = 0; i < xs.length; i++) {
    const value = ys[i];
    if (value == null) {
      pen = false;
      continue;
    }
    path += `${pen ? "L" : "M"}${n(x(at(xs, i)))} ${n(y(value))}`;
    pen = true;
  }
  return path;
}

export function bandPath(
  xs: readonly number[],
  low: readonly (number | null)[],
  high: readonly (number | null)[],
  x: Scale,
  y: Scale,
): string {
  const known = xs.map((_, i) => i).filter((i) => low[i] != null && high[i] != null);
  if (known.length === 0) return "";
  const up = known.map((i) => `${n(x(at(xs, i)))} ${n(y(high[i] as number))}`);
  const down = known.reverse().map((i) => `${n(x(at(xs, i)))} ${n(y(low[i] as number))}`);
  return `M${[...up, ...down].join("L")}Z`;
}
