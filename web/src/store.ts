// State that several parts of the page share: the view of the clock, the call in focus, the colours. A value with listeners.

import { useEffect, useState } from "preact/hooks";
import type { Aligned } from "./align.ts";
import type { LaneName } from "./lanes.ts";
import type { View } from "./scale.ts";

export interface Value<T> {
  get(): T;
  set(next: T): void;
  listen(listener: () => void): () => void;
}

export function value<T>(first: T): Value<T> {
  let current = first;
  const listeners = new Set<() => void>();
  return {
    get: () => current,
    set(next) {
      if (Object.is(next, current)) return;
      current = next;
      for (const listener of listeners) listener();
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** Renders again when the value changes; with `delay`, when it has been still for this time, ms. */
export function useValue<T>(of: Value<T>, delay = 0): T {
  const [shown, show] = useState(of.get());
  useEffect(() => {
    let timer = 0;
    const off = of.listen(() => {
      if (delay === 0) return show(() => of.get());
      window.clearTimeout(timer);
      timer = window.setTimeout(() => show(() => of.get()), delay);
    });
    show(() => of.get());
    return () => {
      window.clearTimeout(timer);
      off();
    };
  }, [of, delay]);
  return shown;
}

/** A call of a side; `pinned` if it was chosen and not only pointed at. */
export interface Focus {
  side: number;
  call: number;
  pinned: boolean;
}

export interface Shared {
  view: Value<View>;
  /** Where zero is on each side's clock. */
  align: Value<Aligned>;
  focus: Value<Focus | null>;
  /** Lanes that light up, since one points at their layer. */
  lit: Value<readonly LaneName[] | null>;
  /** Counts changes of the colour scheme, so that canvases draw again. */
  scheme: Value<number>;
}

export const shared: Shared = {
  view: value<View>({ from: 0, to: 1 }),
  align: value<Aligned>({ by: "clock", origin: [0, 0], note: "" }),
  focus: value<Focus | null>(null),
  lit: value<readonly LaneName[] | null>(null),
  scheme: value(0),
};
