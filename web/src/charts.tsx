// Charts of x/y series: latencies, shifts, runs, history, sizes, ribbons. They print sharp, follow the colour scheme by
// style, and every chart has a table of the drawn numbers below it.

import { Chart, textWidth } from "./chart.tsx";
import { at, type Comparison, type Ecdf, type History, type Metric, type Report, type Shift } from "./data.ts";
import * as format from "./format.ts";
import { Letter, Numbers, Section, Text } from "./parts.tsx";
import { bandPath, linePath, stepBand, stepPath } from "./path.ts";
import { lowerBound, ticks } from "./scale.ts";

export function extent(values: readonly (number | null | undefined)[]): [number, number] {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    if (value == null || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

const OP_TITLES: Record<string, string> = { read: "Reads", write: "Writes", sync: "Syncs" };
const OPERATIONS = ["read", "write", "sync"] as const;

export function Latencies({ report }: { report: Report }) {
  const used = OPERATIONS.filter((op) =>
    report.sides.some((side) => side.latency.some((of) => of.op === op && of.n > 0)),
  );
  if (used.length === 0) return null;
  return (
    <Section
      id="latency"
      title="How long calls take"
      lead="The share of calls that take no longer than a time, with a band of confidence; the share that takes longer, on a logarithmic scale, where the tail is; how much longer or shorter the call at each quantile is in B than in A."
    >
      {used.map((op) => (
        <div class="pair" key={op}>
          <EcdfChart op={op} of={report.sides.map((side) => side.latency.find((one) => one.op === op))} />
          <TailChart op={op} of={report.sides.map((side) => side.latency.find((one) => one.op === op))} />
          <ShiftChart of={report.shift.find((one) => one.op === op)} op={op} />
        </div>
      ))}
    </Section>
  );
}

function EcdfChart({ op, of }: { op: string; of: (Ecdf | undefined)[] }) {
  const all = of.flatMap((one) => one?.ns ?? []).filter((ns) => ns > 0);
  const [low, high] = extent(all);
  const [from, to] = [low / 1.15, Math.max(high * 1.15, low * 1.3)];
  return (
    <figure>
      <figcaption>
        {OP_TITLES[op]}:{" "}
        {of.map((one, side) =>
          one ? (
            <span key={side} class="key">
              <Letter side={side} /> {side === 0 ? "solid" : "dashed"}, {one.n} calls{" "}
            </span>
          ) : null,
        )}
      </figcaption>
      <Chart
        label={`Distribution of ${op} latencies: ${of.map((one, side) => (one ? `${"AB"[side]} with ${one.n} calls` : "")).join(" ")}`}
        data={{ "data-chart": `ecdf-${op}` }}
        x={{ from, to, log: true, text: format.instant, title: "latency (logarithmic)" }}
        y={{ from: 0, to: 1, text: (share) => `${Math.round(100 * share)} %`, title: "share of calls" }}
        say={(ns) => {
          const shares = of.map((one, side) => {
            if (!one) return "";
            const i = lowerBound(one.ns, ns * (1 + 1e-9)) - 1;
            return `${"AB"[side]} ${format.percent(i < 0 ? 0 : at(one.share, i))}`;
          });
          return `up to ${format.time(ns)}: ${shares.filter(Boolean).join(", ")}`;
        }}
        draw={(x, y) =>
          of.map((one, side) =>
            one ? (
              <g key={side}>
                <path class={`band side-${side}`} d={stepBand(one.ns, one.low, one.high, x, y)} />
                <path class={`line side-${side}`} d={stepPath(one.ns, one.share, x, y, to)} />
              </g>
            ) : null,
          )
        }
      />
      {of.map((one, side) =>
        one ? (
          <Numbers
            key={side}
            id={`ecdf-${op}-${side}`}
            caption={`${"AB"[side]}: distribution of ${op} latencies`}
            columns={["ns", "share", "low", "high"]}
            rows={() => one.ns.map((ns, i) => [ns, at(one.share, i), at(one.low, i), at(one.high, i)])}
            most={2000}
          />
        ) : null,
      )}
    </figure>
  );
}

/** The share of calls that take longer than a time, both logarithmic: the tail. */
function TailChart({ op, of }: { op: string; of: (Ecdf | undefined)[] }) {
  const most = Math.max(...of.map((one) => one?.n ?? 0));
  if (most < 100) return null;
  const least = Math.max(1e-5, 0.5 / most);
  const [low, high] = extent(of.flatMap((one) => one?.ns ?? []).filter((ns) => ns > 0));
  return (
    <figure>
      <figcaption>{OP_TITLES[op]}: how many take longer (both logarithmic)</figcaption>
      <Chart
        label={`Tail of ${op} latencies: the share of calls that take longer than a time`}
        data={{ "data-chart": `tail-${op}` }}
        x={{
          from: low / 1.15,
          to: Math.max(high * 1.15, low * 1.3),
          log: true,
          text: format.instant,
          title: "latency",
        }}
        y={{
          from: least,
          to: 1,
          log: true,
          text: (share) => `${Number((100 * share).toPrecision(3))} %`,
          title: "longer",
        }}
        say={(ns) => {
          const shares = of.map((one, side) => {
            if (!one) return "";
            const i = lowerBound(one.ns, ns * (1 + 1e-9)) - 1;
            return `${"AB"[side]} ${format.plain(100 * (1 - (i < 0 ? 0 : at(one.share, i))))} %`;
          });
          return `longer than ${format.time(ns)}: ${shares.filter(Boolean).join(", ")}`;
        }}
        draw={(x, y) =>
          of.map((one, side) =>
            one ? (
              <path
                key={side}
                class={`line side-${side}`}
                d={linePath(
                  one.ns.flatMap((ns) => [ns, ns]),
                  one.share.flatMap((share, i) =>
                    [i === 0 ? 0 : at(one.share, i - 1), share].map((of) => Math.max(1 - of, least)),
                  ),
                  x,
                  y,
                )}
              />
            ) : null,
          )
        }
      />
    </figure>
  );
}

function ShiftChart({ of, op }: { of: Shift | undefined; op: string }) {
  if (!of || of.quantile.length === 0) return null;
  const [low, high] = extent([...of.shift_ns, ...of.low_ns, ...of.high_ns, 0]);
  const pad = (high - low || 1) * 0.06;
  return (
    <figure>
      <figcaption>{OP_TITLES[op]}: shift of quantiles, B minus A</figcaption>
      <Chart
        label={`Shift of the quantiles of ${op} latencies, B minus A`}
        data={{ "data-chart": `shift-${op}` }}
        x={{ from: 0, to: 1, text: (q) => `${Math.round(q * 100)} %`, title: "quantile" }}
        y={{
          from: low - pad,
          to: high + pad,
          text: (ns) => (ns === 0 ? "0" : format.signed(ns, (v) => format.instant(v))),
          title: "B − A",
        }}
        say={(q) => {
          const nearest = of.quantile.reduce(
            (best, one, i) => (Math.abs(one - q) < Math.abs(at(of.quantile, best) - q) ? i : best),
            0,
          );
          const shift = format.signed(at(of.shift_ns, nearest), (v) => format.time(v));
          return `${format.plain(100 * at(of.quantile, nearest))} % of calls: B − A ${shift}`;
        }}
        draw={(x, y) => (
          <g>
            <line class="zero" x1={x(0)} x2={x(1)} y1={y(0)} y2={y(0)} />
            <path class="band side-1" d={bandPath(of.quantile, of.low_ns, of.high_ns, x, y)} />
            <path class="line side-1 solid" d={linePath(of.quantile, of.shift_ns, x, y)} />
            {of.quantile.length < 60
              ? of.quantile.map((q, i) =>
                  at(of.shift_ns, i) == null ? null : (
                    <circle key={q} class="dot side-1" r="2.5" cx={x(q)} cy={y(at(of.shift_ns, i))} />
                  ),
                )
              : null}
          </g>
        )}
      />
      <Numbers
        id={`shift-${op}`}
        caption={`Shift of the quantiles of ${op} latencies`}
        columns={["quantile", "shift, ns", "low, ns", "high, ns"]}
        rows={() => of.quantile.map((q, i) => [q, at(of.shift_ns, i), at(of.low_ns, i), at(of.high_ns, i)])}
        most={2000}
      />
    </figure>
  );
}

/** The runs in the order in which they were made: drift and modes show. */
export function Samples({ report }: { report: Report }) {
  const runs = report.sides.map((side) => side.runs);
  const most = Math.max(0, ...runs.map((of) => of.length));
  if (most === 0) return null;
  const [, high] = extent(runs.flat().map((run) => run.time_per_operation_ns));
  const modal = report.sides.filter((side) => side.modes.length > 1);
  return (
    <Section
      id="samples"
      title="Runs in the order they were made"
      lead="One mark is one run. A slope is drift; two levels are two modes, which no mean describes."
    >
      <Chart
        label="Time per operation of each run, in order"
        data={{ "data-chart": "samples" }}
        height={220}
        x={{
          from: 0.5,
          to: most + 0.5,
          text: (nr) => (Number.isInteger(nr) ? String(nr) : ""),
          title: "run",
          at: ticks(1, Math.max(most, 2), 10).filter((at) => Number.isInteger(at) && at <= most),
        }}
        y={{
          from: 0,
          to: high * 1.08 || 1,
          text: format.instant,
          title: "time per operation",
        }}
        say={(nr) => {
          const i = Math.round(nr) - 1;
          const words = runs.map((of, side) =>
            of[i] ? `${"AB"[side]} ${format.time(of[i].time_per_operation_ns)}` : "",
          );
          return `run ${i + 1}: ${words.filter(Boolean).join(", ")}`;
        }}
        draw={(x, y) =>
          runs.map((of, side) => (
            <g key={side}>
              <path
                class={`line thin side-${side}`}
                d={linePath(
                  of.map((_, i) => i + 1),
                  of.map((run) => run.time_per_operation_ns),
                  x,
                  y,
                )}
              />
              {of.map((run, i) =>
                side === 0 ? (
                  <circle key={i} class="dot side-0" r="4" cx={x(i + 1)} cy={y(run.time_per_operation_ns)} />
                ) : (
                  <rect
                    key={i}
                    class="dot side-1"
                    width="8"
                    height="8"
                    x={x(i + 1) - 4}
                    y={y(run.time_per_operation_ns) - 4}
                  />
                ),
              )}
            </g>
          ))
        }
      />
      <p class="key">
        {report.sides.map((side, nr) => (
          <span key={nr}>
            <Letter side={nr} /> {nr === 0 ? "● " : "■ "}
            <Text of={side.label} />{" "}
          </span>
        ))}
      </p>
      {modal.length > 0 ? (
        <p class="modes">
          {report.sides.map((side, nr) =>
            side.modes.length > 1 ? (
              <span key={nr} data-modes={nr}>
                <Letter side={nr} /> has {side.modes.length} modes:{" "}
                {side.modes
                  .map((mode) => `${mode.runs} of ${side.runs.length} runs near ${format.time(mode.centre_ns)}`)
                  .join(", ")}
                . No mean describes them.{" "}
              </span>
            ) : null,
          )}
        </p>
      ) : null}
      <Numbers
        id="samples"
        caption="Runs in the order they were made"
        columns={["side and run", "seed", "time per operation, ns", "rate, B/s", "operations"]}
        rows={() =>
          runs.flatMap((of, side) =>
            of.map((run, i) => [
              `${"AB"[side]}${i + 1}`,
              run.seed,
              run.time_per_operation_ns,
              run.rate_bytes_per_s,
              run.operations,
            ]),
          )
        }
      />
    </Section>
  );
}

export function timeMetric(comparison: Comparison | null): Metric | undefined {
  const metrics = comparison?.metrics ?? [];
  return metrics.find((of) => of.name === "elapsed_s") ?? metrics[0];
}

/** A date as a tick: as much of it as differs within the series. */
export function moment(all: readonly string[], i: number): string {
  const text = all[i] ?? "";
  const days = new Set(all.map((of) => of.slice(0, 10)));
  return format.short(days.size > 1 ? text.slice(0, 10) : text.slice(11, 19) || text, 12);
}

export function Histories({ history }: { history: History }) {
  if (history.series.length === 0) return null;
  return (
    <Section id="history" title="History" lead="The store's earlier runs. A dashed upright line is a change point.">
      {history.series.map((series) => {
        const [low, high] = extent([...series.value, 0]);
        return (
          <figure key={series.name}>
            <figcaption>
              <Text of={series.name} />
            </figcaption>
            <Chart
              label={`History with ${series.value.length} values and ${series.change_points.length} change points`}
              data={{ "data-chart": "history" }}
              height={200}
              x={{
                from: -0.5,
                to: series.value.length - 0.5,
                text: (i) => moment(series.at, i),
                title: "",
                at: ticks(0, Math.max(1, series.value.length - 1), 8).filter(Number.isInteger),
              }}
              say={(i) => {
                const nr = Math.min(series.value.length - 1, Math.max(0, Math.round(i)));
                return `${format.short(series.at[nr] ?? "", 30)}: ${format.quantity(series.value[nr], series.unit)}`;
              }}
              y={{ from: low, to: high * 1.08 || 1, text: (of) => format.quantity(of, series.unit), title: "" }}
              draw={(x, y, frame) => (
                <g>
                  <path class="line side-0" d={linePath(Array.from(series.value.keys()), series.value, x, y)} />
                  {series.value.map((of, i) => (
                    <circle key={i} class="dot side-0" r="2.5" cx={x(i)} cy={y(of)} />
                  ))}
                  {series.change_points.map((of) => (
                    <g key={of.index}>
                      <line
                        class="mark"
                        x1={x(of.index - 0.5)}
                        x2={x(of.index - 0.5)}
                        y1={frame.top}
                        y2={frame.bottom}
                      />
                      <text class="axis" x={x(of.index - 0.5) + 4} y={frame.top + 12}>
                        {format.change(of.change_pct)}
                      </text>
                    </g>
                  ))}
                </g>
              )}
            />
            <Numbers
              id="history"
              caption="History"
              columns={["when", "value", "change, %", "p"]}
              rows={() =>
                series.value.map((of, i) => {
                  const point = series.change_points.find((one) => one.index === i);
                  return [{ show: <Text of={series.at[i]} /> }, of, point?.change_pct ?? "", point?.p ?? ""];
                })
              }
              most={2000}
            />
          </figure>
        );
      })}
    </Section>
  );
}

/** Sizes of requests when issued. Few sizes stand for themselves; many are put into powers of two. */
export function Sizes({ report }: { report: Report }) {
  const used = (["read", "write"] as const).filter((dir) =>
    report.sides.some((side) => side.request_sizes.some((of) => of.dir === dir && of.bytes.length > 0)),
  );
  return (
    <div class="pair">
      {used.map((dir) => {
        const sides = report.sides.map((side) => side.request_sizes.find((of) => of.dir === dir));
        const bins = sizeBins(sides.map((of) => ({ bytes: of?.bytes ?? [], count: of?.count ?? [] })));
        const highest = Math.max(1e-9, ...bins.flatMap((bin) => bin.share));
        return (
          <figure key={dir}>
            <figcaption>Sizes of {dir} requests when issued, share of requests</figcaption>
            <Chart
              label={`Histogram of the sizes of ${dir} requests`}
              data={{ "data-chart": `sizes-${dir}` }}
              height={220}
              x={{ from: 0, to: bins.length, text: () => "", title: "", at: [] }}
              y={{ from: 0, to: highest * 1.05, text: (share) => `${Math.round(share * 100)} %`, title: "" }}
              draw={(x, y, frame) => {
                const each = (frame.right - frame.left) / bins.length;
                // Every so many-th title, so that none touches the next.
                const widest = Math.max(...bins.map((bin) => textWidth(bin.title))) + 8;
                const every = Math.max(1, Math.ceil(widest / each));
                return bins.map((bin, nr) => (
                  <g key={nr}>
                    {bin.share.map((share, side) => {
                      const wide = (each * 0.8) / bin.share.length;
                      return (
                        <rect
                          key={side}
                          class={`bar side-${side}`}
                          x={x(nr) + each * 0.1 + side * wide}
                          width={Math.max(1, wide - 1)}
                          y={y(share)}
                          height={Math.max(0, y(0) - y(share))}
                        >
                          <title>{`${"AB"[side]}: ${bin.title}, ${format.percent(share)}`}</title>
                        </rect>
                      );
                    })}
                    {nr % every === 0 ? (
                      <text class="tick x-tick" x={x(nr) + each / 2} y={frame.bottom + 15} text-anchor="middle">
                        {bin.title}
                      </text>
                    ) : null}
                  </g>
                ));
              }}
            />
            {sides.map((of, side) =>
              of ? (
                <Numbers
                  key={side}
                  id={`sizes-${dir}-${side}`}
                  caption={`${"AB"[side]}: sizes of ${dir} requests`}
                  columns={["bytes", "requests"]}
                  rows={() => of.bytes.map((bytes, i) => [bytes, at(of.count, i)])}
                  most={2000}
                />
              ) : null,
            )}
          </figure>
        );
      })}
    </div>
  );
}

export interface Bin {
  title: string;
  share: number[];
}

export function sizeBins(sides: readonly { bytes: number[]; count: number[] }[]): Bin[] {
  const sizes = [...new Set(sides.flatMap((of) => of.bytes))].sort((x, y) => x - y);
  const exact = sizes.length <= 8;
  const bin = (bytes: number) => (exact ? bytes : 2 ** Math.floor(Math.log2(Math.max(1, bytes))));
  const bins = [...new Set(sizes.map(bin))].sort((x, y) => x - y);
  const totals = sides.map((of) => of.count.reduce((sum, count) => sum + count, 0) || 1);
  return bins.map((from) => ({
    title: exact ? format.size(from) : `≥ ${format.size(from)}`,
    share: sides.map(
      (of, side) =>
        of.bytes.reduce((sum, bytes, i) => sum + (bin(bytes) === from ? at(of.count, i) : 0), 0) / at(totals, side),
    ),
  }));
}

/** A ribbon over the whole run, one row for each side, on one scale: queue depth, throughput. */
export function Ribbons({ report, whole }: { report: Report; whole: number }) {
  const deepest = Math.max(1, ...report.sides.flatMap((side) => side.timeline.overview.depth_max));
  const rates = report.sides.map(({ timeline: { overview } }) =>
    overview.read_bytes.map((bytes, i) => (bytes + at(overview.write_bytes, i)) / (overview.slice_ns / 1e9)),
  );
  const fastest = Math.max(0, ...rates.flat());
  // Nothing at the device: a chart of zeros says nothing.
  const shown = (["depth", "rate"] as const).filter((what) => what === "depth" || fastest > 0);
  return (
    <div class="pair">
      {shown.map((what) => (
        <figure key={what}>
          <figcaption>
            {what === "depth" ? "Requests at the device: least to most in a slice" : "Throughput at the device"}
          </figcaption>
          {report.sides.map((side, nr) => {
            const { overview } = side.timeline;
            const when = overview.depth_max.map((_, i) => (i + 0.5) * overview.slice_ns);
            return (
              <Chart
                key={nr}
                label={`${"AB"[nr]}: ${what === "depth" ? "requests at the device" : "throughput"} over the run`}
                data={{ "data-chart": `${what}-${nr}` }}
                height={130}
                x={{
                  from: 0,
                  to: whole,
                  text: format.instant,
                  title: nr === report.sides.length - 1 ? "since the first call" : "",
                }}
                y={
                  what === "depth"
                    ? { from: 0, to: deepest, text: format.plain, title: "AB".charAt(nr), at: [0, deepest] }
                    : { from: 0, to: fastest, text: format.rateTick, title: "AB".charAt(nr) }
                }
                draw={(x, y) =>
                  what === "depth" ? (
                    <path class={`area side-${nr}`} d={bandPath(when, overview.depth_min, overview.depth_max, x, y)} />
                  ) : (
                    <path
                      class={`area side-${nr}`}
                      d={bandPath(
                        when,
                        when.map(() => 0),
                        rates[nr] ?? [],
                        x,
                        y,
                      )}
                    />
                  )
                }
              />
            );
          })}
        </figure>
      ))}
      {report.sides.map((side, nr) => {
        const { overview } = side.timeline;
        return (
          <Numbers
            key={nr}
            id={`overview-${nr}`}
            caption={`${"AB"[nr]}: the run in slices of ${format.time(overview.slice_ns)}`}
            columns={["slice", "depth, least", "depth, most", "read, B", "written, B", "calls", "starved"]}
            rows={() =>
              overview.depth_max.map((_, i) => [
                i,
                at(overview.depth_min, i),
                at(overview.depth_max, i),
                at(overview.read_bytes, i),
                at(overview.write_bytes, i),
                at(overview.calls, i),
                at(overview.starved, i),
              ])
            }
            most={2000}
          />
        );
      })}
    </div>
  );
}
