// The contract: the JSON object `iowhy.report/1`, with types made from its schema (types.ts). The page computes nothing that
// is in there; it draws. Columns of equal length stand for lists of objects, so that they compress well. Times in
// `timeline` are ns from the first call of a run; -1 or null stands for what does not exist.

import type { Comparison, Explanation, Report } from "./types.ts";

export type { Comparison, Explanation, Report };

type Item<T> = T extends (infer U)[] ? U : never;
export type Side = Item<Report["sides"]>;
export type Timeline = Side["timeline"];
export type Course = Timeline["course"];
export type Ecdf = Item<Side["latency"]>;
export type Shift = Item<Report["shift"]>;
export type History = NonNullable<Report["history"]>;
export type Matrix = NonNullable<Report["matrix"]>;
export type Finding = Item<Explanation["findings"]>;
export type Made = NonNullable<Finding["counterfactual"]>;
export type Metric = Item<Comparison["metrics"]>;

/** A value of a column, of which the caller knows that it is there. */
export const at = <T>(of: ArrayLike<T>, i: number): T => of[i] as T;
