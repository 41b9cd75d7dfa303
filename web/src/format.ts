// Numbers as `iowhy explain` and `iowhy compare` print them: three digits that mean something, and a unit.

const NONE = "none";

function significant(value: number, digits: number): string {
  // Not -0.
  if (value === 0 || !Number.isFinite(value)) return String(value + 0);
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  if (magnitude < -5 || magnitude >= 12) return value.toExponential(digits - 1);
  return value.toFixed(Math.max(0, digits - 1 - magnitude));
}

function prefixed(value: number, table: readonly (readonly [number, string])[], digits = 3): string {
  const last = table[table.length - 1] as readonly [number, string];
  if (value === 0) return `0 ${last[1]}`;
  const found = table.find(([factor]) => Math.abs(value) >= factor) ?? last;
  return `${significant(value / found[0], digits)} ${found[1]}`;
}

const TIMES = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
] as const;
const SIZES = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
  [1, "B"],
] as const;
const RATES = [
  [1e12, "TB/s"],
  [1e9, "GB/s"],
  [1e6, "MB/s"],
  [1e3, "kB/s"],
  [1, "B/s"],
] as const;

export function time(ns: number | null | undefined, digits = 3): string {
  if (ns == null || Number.isNaN(ns)) return NONE;
  // The remainder of a difference of means is not a time.
  if (Math.abs(ns) < 0.05) return "0 s";
  return prefixed(ns, TIMES, digits);
}

/** A point of a clock: as many digits as it needs, no zeros at the end. */
export function instant(ns: number): string {
  const [factor, unit] = TIMES.find(([of]) => Math.abs(ns) >= of) ?? TIMES[3];
  return ns === 0 ? "0" : `${Number((ns / factor).toPrecision(7))} ${unit}`;
}

export function size(bytes: number | null | undefined): string {
  if (bytes == null) return NONE;
  if (Number.isInteger(bytes) && Math.abs(bytes) < 1024) return `${bytes} B`;
  for (const [factor, unit] of SIZES) {
    if (Math.abs(bytes) >= factor) {
      const value = bytes / factor;
      return `${Number.isInteger(value) ? value : significant(value, 3)} ${unit}`;
    }
  }
  return `${significant(bytes, 3)} B`;
}

/** A tick of an axis of sizes. */
export function sizeTick(bytes: number): string {
  const [factor, unit] = SIZES.find(([of]) => Math.abs(bytes) >= of) ?? SIZES[4];
  return bytes === 0 ? "0" : `${Number((bytes / factor).toPrecision(4))} ${unit}`;
}

/** A tick of an axis of rates: no zeros at the end. */
export function rateTick(bytesPerSecond: number): string {
  const [factor, unit] = RATES.find(([of]) => Math.abs(bytesPerSecond) >= of) ?? RATES[4];
  return bytesPerSecond === 0 ? "0" : `${Number((bytesPerSecond / factor).toPrecision(6))} ${unit}`;
}

export function rate(bytesPerSecond: number | null | undefined): string {
  return bytesPerSecond == null ? NONE : prefixed(bytesPerSecond, RATES);
}

export function plain(value: number | null | undefined): string {
  if (value == null) return NONE;
  const of = Math.abs(value);
  if (of === 0) return "0";
  if (Number.isInteger(value) && of < 1e6) return String(value);
  if (of >= 1e12) return value.toExponential(2);
  if (of >= 100) return value.toFixed(0);
  if (of >= 10) return value.toFixed(1);
  return of >= 0.01 ? value.toFixed(2) : value.toExponential(1);
}

/** With its sign, as for changes. */
export function change(pct: number | null | undefined): string {
  if (pct == null) return NONE;
  return `${pct < 0 ? "−" : "+"}${Math.abs(pct).toFixed(1)} %`;
}

export function signed(value: number, text: (value: number) => string): string {
  const shown = text(Math.abs(value));
  // Nothing has no sign.
  return /^0( |$)/.test(shown) ? shown : `${value < 0 ? "−" : "+"}${shown}`;
}

export function percent(share: number | null | undefined): string {
  return share == null ? NONE : `${(100 * share).toFixed(1)} %`;
}

export function pValue(p: number | null | undefined): string {
  if (p == null) return NONE;
  return p < 0.0001 ? "< 0.0001" : p.toPrecision(2);
}

/** A value in the units of evidence (`iowhy.explain/1`) and of metrics (`iowhy.compare/1`). */
export function quantity(value: number | null | undefined, unit: string): string {
  if (value == null) return NONE;
  switch (unit) {
    case "ns":
    case "ns_per_operation":
      return time(value);
    case "s":
      return time(value * 1e9);
    case "bytes":
      return size(value);
    case "bytes_per_s":
    case "B/s":
      return rate(value);
    case "share":
      return percent(value);
    case "pages":
      return `${plain(value)} pages`;
    case "count":
    case "ratio":
    case "":
      return plain(value);
    default:
      return `${significant(value, 4)} ${short(unit, 12)}`;
  }
}

/** How sure, in a word: the words of `iowhy explain`. */
export function sure(confidence: number): string {
  if (confidence >= 0.9) return "almost certain";
  return confidence >= 0.75 ? "likely" : "possible";
}

/** At most `most` characters: for places where a text cannot wrap. */
export function short(text: string, most: number): string {
  const characters = Array.from(text.length > 4 * most ? text.slice(0, 4 * most) : text);
  return characters.length <= most && characters.length >= text.length / 2
    ? characters.join("")
    : `${characters.slice(0, most - 1).join("")}…`;
}
