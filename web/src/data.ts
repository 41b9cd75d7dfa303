// Contents of a report: the JSON object `iowhy.report/1` (schema/iowhy.report.1.json). The page computes nothing that is
// in here; it draws. Columns of equal length stand for lists of objects, so that they compress well. Times in `timeline`
// are ns from the first call of a run; null stands for what does not exist.

/** Everything. */
export interface Report {
  schema: "iowhy.report/1";
  /** Version of iowhy that wrote it. */
  version: string;
  title: string;
  /** The verdict first: one sentence, and the paragraph below it, as `iowhy explain` prints them. */
  headline: { verdict: "regression" | "improvement" | "same" | "inconclusive"; sentence: string; why: string };
  /** `iowhy.explain/1` and `iowhy.compare/1`, as the commands print them with --json. */
  explanation: Explanation | null;
  comparison: Comparison | null;
  /** Base first; one or two. */
  sides: Side[];
  /** Quantile shifts of latencies, B minus A, if there are two sides. */
  shift: Shift[];
  /** Change points of the headline metric, if the store has a history (`iowhy.history/1` series). */
  history: History | null;
  /** Keys in which the fingerprints of the two sides differ. */
  differences: { key: string; a: string; b: string }[];
}

export interface Side {
  label: string;
  simulated: boolean;
  /** Words after `iowhy` that make such a run again. */
  command: string | null;
  /** The job, kernel, disk, policies, machine: whatever the store or the plan knows, flat, in order. */
  facts: { key: string; value: string }[];
  /** In the order in which they were made. */
  runs: { seed: number; time_per_operation_ns: number; rate_bytes_per_s: number; operations: number }[];
  /** Latencies of reads, writes, syncs over all runs: ECDF at chosen points with a confidence band. */
  latency: Ecdf[];
  /** Sizes of requests when issued: reads and writes. */
  request_sizes: { dir: "read" | "write"; bytes: number[]; count: number[] }[];
  /** One run in full: the one with the median time. */
  timeline: Timeline;
}

export interface Ecdf {
  op: "read" | "write" | "sync";
  n: number;
  ns: number[];
  /** Share of latencies <= ns. */
  share: number[];
  low: number[];
  high: number[];
}

export interface Shift {
  op: "read" | "write" | "sync";
  quantile: number[];
  shift_ns: number[];
  low_ns: number[];
  high_ns: number[];
}

export interface Timeline {
  seed: number;
  elapsed_ns: number;
  nr_events: number;
  /** Files, by number. */
  files: { name: string; bytes: number }[];
  /** The whole run in equal slices: what the ribbons draw. */
  overview: {
    slice_ns: number;
    /** Smallest and largest number of requests at the device in the slice. */
    depth_min: number[];
    depth_max: number[];
    read_bytes: number[];
    write_bytes: number[];
    calls: number[];
    /** Share of the slice in which the device had nothing to do while something was held in a plug or the elevator. */
    starved: number[];
  };
  /** Parts of the run in detail, in order of time and not overlapping. The rest is in `overview` only. */
  detail: { from_ns: number; to_ns: number; why: "start" | "first difference" | "worst" }[];
  /** First call that the two sides served differently: index into `calls`, or null. */
  first_difference: number | null;
  /** Lanes, of what lies in `detail`. `call` is an index into `calls` or -1 (none). */
  calls: {
    start: number[];
    end: number[];
    op: number[];
    file: number[];
    offset: number[];
    bytes: number[];
    thread: number[];
  };
  /** Pages added to, hit in, and taken from the page cache. `kind`: 0 added, 1 hit, 2 missed, 3 removed. */
  pages: { at: number[]; call: number[]; kind: number[]; file: number[]; first: number[]; nr: number[] };
  /** Read-ahead windows: `kind` as an index into `window_kinds`; `marker` the page that carries the async marker, -1 if none;
   *  `fate`: pages of the window used, never used, and taken out before use. `bios`: how many bios it led to. */
  windows: {
    at: number[];
    call: number[];
    kind: number[];
    file: number[];
    first: number[];
    nr: number[];
    marker: number[];
    used: number[];
    unused: number[];
    thrashed: number[];
  };
  window_kinds: string[];
  /** Plugs: from plugging to unplugging. `cause`: index into `unplug_causes`. `nr`: requests let go. */
  plugs: { start: number[]; end: number[]; call: number[]; cause: number[]; nr: number[] };
  unplug_causes: string[];
  /** Requests: Q of the first bio, G, I (inserted or let go of the plug), D, C; -1 where unknown. `bios`: bios in it. `queue`
   *  depth at D. */
  requests: {
    q: number[];
    g: number[];
    i: number[];
    d: number[];
    c: number[];
    call: number[];
    dir: number[];
    content: number[];
    sector: number[];
    sectors: number[];
    bios: number[];
    depth: number[];
    /** First page and number of pages carried (of `file`), -1 if unknown. */
    file: number[];
    first: number[];
    nr: number[];
  };
  contents: string[];
  /** State of the file at the end of the run, in at most 2,000 equal strips of each file: the fate of most of a strip's
   *  pages. `state`: 0 untouched, 1 hit or used, 2 missed, 3 read ahead and never used, 4 put there by another process. */
  map: { file: number; strip_pages: number; state: number[]; by: (string | null)[] }[];
}

export interface History {
  series: {
    name: string;
    unit: string;
    at: string[];
    value: number[];
    change_points: { index: number; change_pct: number; p: number }[];
  }[];
}

/** `iowhy.explain/1`; see schema/iowhy.explain.1.json. */
export interface Explanation {
  schema: string;
  a: string;
  b: string;
  runs_a: number;
  runs_b: number;
  a_ns: number;
  b_ns: number;
  change_pct: number;
  verdict: string;
  because: string;
  findings: Finding[];
  unexplained_pct: number;
  layers: { layer: string; a: number; b: number; delta: number; unit: string }[];
  comparison: Comparison | null;
  warnings: string[];
}

export interface Finding {
  rule: string;
  layer: string;
  claim: string;
  confidence: number;
  share_of_change_pct: number;
  evidence: { what: string; a: number; b: number; unit: string }[];
  why: string;
  change: string;
  refute: string;
  since: string;
  counterfactual: null | {
    setting: string;
    side: string;
    change_pct_before: number;
    ci_before_low_pct: number | null;
    ci_before_high_pct: number | null;
    change_pct_after: number;
    ci_low_pct: number | null;
    ci_high_pct: number | null;
    gone_pct: number;
    runs: number;
    outcome: "confirmed" | "partly" | "refuted" | "not-reproduced" | "undecided";
    /** Whether the finding's own figures moved with the time; null where the switched runs have no events. */
    figures_moved: boolean | null;
    /** All of the device was switched, and nothing that the finding tells of differs. */
    device_only: boolean;
  };
  advice: null | { set: string | null; predicted_change_pct: number; measured_change_pct: number | null };
}

/** `iowhy.compare/1`; see schema/iowhy.compare.1.json. Drawn as a table. */
export type Comparison = Record<string, unknown>;
