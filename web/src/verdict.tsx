// The verdict first, then the findings, the comparison, and where the time went.

import { timeMetric } from "./charts.tsx";
import type { Comparison, Explanation, Finding, Report } from "./data.ts";
import * as format from "./format.ts";
import { cell, Letter, Prose, Section, Table, Text } from "./parts.tsx";

const WORDS = {
  regression: "Slower",
  improvement: "Faster",
  same: "No difference",
  inconclusive: "Cannot tell",
  none: "One set of runs",
} as const;
const OUTCOMES = {
  confirmed: "Confirmed",
  partly: "Partly confirmed",
  refuted: "Refuted",
  "not-reproduced": "Not reproduced",
  undecided: "Undecided",
} as const;
const SIGNS = { regression: "▲", improvement: "▼", same: "=", inconclusive: "?", none: "" } as const;

interface Row {
  name: string;
  unit: string;
  better: string;
  a: { n: number; median: number | null; cv: number | null };
  b: { n: number; median: number | null; cv: number | null };
  change_pct: number | null;
  ci_low_pct: number | null;
  ci_high_pct: number | null;
  p: number | null;
  p_adjusted: number | null;
  verdict: string;
  because: string;
  modes_a: { centre: number | null; count: number; share_pct: number | null }[];
  modes_b: { centre: number | null; count: number; share_pct: number | null }[];
  warnings: { kind: string; text: string; next: string }[];
}

const isRefuted = (finding: Finding) => finding.counterfactual?.outcome === "refuted";

/** The paragraph without what has a place of its own next to it. */
export function cause(why: string, first: Finding | undefined): string {
  const rest = first ? why.replace(`To do: ${first.change}`, "") : why;
  return rest
    .replace(/^Why: /, "")
    .replace(/ {2,}/g, " ")
    .trim();
}

export function Verdict({ report }: { report: Report }) {
  const { headline, explanation, comparison } = report;
  const metric = timeMetric(comparison ?? explanation?.comparison ?? null) as Row | undefined;
  const times = explanation ? [explanation.a_ns, explanation.b_ns] : null;
  const pct = explanation ? explanation.change_pct : (metric?.change_pct ?? null);
  const interval = metric && metric.ci_low_pct != null && metric.ci_high_pct != null ? metric : null;
  const alpha = Number((comparison ?? explanation?.comparison)?.alpha ?? 0.01);
  const first = explanation?.findings.find((finding) => !isRefuted(finding));
  const most = times ? Math.max(times[0], times[1], 1) : 1;
  return (
    <section id="verdict" class={`verdict v-${headline.verdict}`} aria-labelledby="verdict-title">
      <div class="verdict-top">
        <div class="verdict-say">
          <p class="badge">
            <span aria-hidden="true">{SIGNS[headline.verdict]}</span> {WORDS[headline.verdict]}
          </p>
          <h1 id="verdict-title" tabIndex={-1}>
            <Prose of={headline.sentence} />
          </h1>
        </div>
        {pct != null ? (
          <div class="number">
            <p class="big" data-fact="change" data-v={pct}>
              {format.change(pct)}
            </p>
            <p class="interval">
              {interval ? (
                <span data-fact="interval" data-low={interval.ci_low_pct ?? ""} data-high={interval.ci_high_pct ?? ""}>
                  {Math.round(100 * (1 - alpha))} % interval [{format.change(interval.ci_low_pct)},{" "}
                  {format.change(interval.ci_high_pct)}] of <Text of={metric?.name} />
                </span>
              ) : explanation ? (
                `time per operation; no interval from ${explanation.runs_a} and ${explanation.runs_b} runs`
              ) : (
                "no interval"
              )}
            </p>
            {times ? (
              <div class="bars">
                {times.map((ns, side) => (
                  <div class="bar-row" key={side}>
                    <Letter side={side} />
                    <div class="bar-track">
                      <div class={`bar-fill side-${side}`} style={{ width: `${Math.max(0.5, (ns / most) * 100)}%` }} />
                    </div>
                    <span data-fact={`time-${side}`} data-v={ns}>
                      {format.time(ns)}
                    </span>
                  </div>
                ))}
              </div>
            ) : null}
          </div>
        ) : null}
      </div>
      <dl class="verdict-facts">
        {headline.why ? (
          <div>
            <dt>Why</dt>
            <dd>
              <Text of={cause(headline.why, first)} />
            </dd>
          </div>
        ) : null}
        {first ? (
          <>
            <div>
              <dt>How sure</dt>
              <dd>
                {format.sure(first.confidence)} ({format.plain(100 * first.confidence)} %); explains{" "}
                {format.plain(first.share_of_change_pct)} % of the difference
              </dd>
            </div>
            <div>
              <dt>What to do</dt>
              <dd>
                <Text of={first.change} />
                {first.advice?.set ? (
                  <>
                    {" "}
                    Set <Text of={first.advice.set} code />.
                  </>
                ) : null}
              </dd>
            </div>
            <div>
              <dt>What speaks for it</dt>
              <dd>
                {first.counterfactual ? (
                  <Experiment of={first} explanation={explanation as Explanation} />
                ) : (
                  <>
                    From the events of the runs: {first.evidence.length} figures below. It is refuted if:{" "}
                    <Text of={first.refute} />
                  </>
                )}
              </dd>
            </div>
          </>
        ) : null}
      </dl>
      <p class="sides">
        {report.sides.map((side, nr) => (
          <span key={nr}>
            <Letter side={nr} /> <Text of={side.label} /> ({side.runs.length}{" "}
            {side.simulated ? "simulated" : "measured"} {side.runs.length === 1 ? "run" : "runs"}){" "}
          </span>
        ))}
      </p>
      {(explanation?.warnings ?? []).map((warning) => (
        <p class="warning" key={warning}>
          <b>Warning:</b> <Text of={warning} />
        </p>
      ))}
    </section>
  );
}

/** How much of the difference is gone. */
function gone(made: NonNullable<Finding["counterfactual"]>): string {
  if (made.outcome === "refuted") return "nothing measurable of the difference is gone";
  if (made.outcome === "undecided") return "runs spread too much to see whether half of the difference is gone";
  return `${made.gone_pct.toFixed(0)} % of the difference is gone${made.outcome === "partly" ? but(made) : ""}`;
}

/** Why the improvement does not confirm all of a finding. */
function but(made: NonNullable<Finding["counterfactual"]>): string {
  if (made.device_only) return "; but none of this finding's settings differs: the cause is another one of the device";
  if (made.figures_moved === false)
    return "; the setting helps, but the figures of this finding did not move with it: the cause may be another";
  return made.gone_pct > 100 ? ", more than there was" : "";
}

function Experiment({ of, explanation }: { of: Finding; explanation: Explanation }) {
  const made = of.counterfactual;
  if (!made) return null;
  const interval = (low: number | null, high: number | null) =>
    low != null && high != null
      ? `interval [${format.change(low)}, ${format.change(high)}] from ${made.runs} runs`
      : "no interval from single runs";
  const title = <b data-outcome={made.outcome}>{OUTCOMES[made.outcome]}:</b>;
  if (made.outcome === "not-reproduced")
    return (
      <>
        {title} made again, <Text of={explanation.b} /> differs from <Text of={explanation.a} /> by{" "}
        {format.change(made.change_pct_before)}, {interval(made.ci_before_low_pct, made.ci_before_high_pct)}, where{" "}
        {format.change(explanation.change_pct)} were to be explained; what <Text of={made.setting} /> changes is not
        told.
      </>
    );
  return (
    <>
      {title} <Text of={made.side} /> with <Text of={made.setting} />: {format.change(made.change_pct_after)} instead of{" "}
      {format.change(made.change_pct_before)} against{" "}
      <Text of={made.side === explanation.b ? explanation.a : explanation.b} />,{" "}
      {interval(made.ci_low_pct, made.ci_high_pct)}; {gone(made)}.
    </>
  );
}

export function Findings({ explanation }: { explanation: Explanation }) {
  if (explanation.findings.length === 0) return null;
  return (
    <Section id="findings" title="What was found">
      {explanation.findings.map((finding, nr) => (
        <article key={nr} class="finding" data-rule={finding.rule}>
          <h3>
            {nr + 1}. <Text of={finding.rule} />{" "}
            <span class="chip">
              <Text of={finding.layer} />
            </span>
          </h3>
          <p class="share">
            <span class="meter" aria-hidden="true">
              <span style={{ width: `${Math.max(0, Math.min(100, finding.share_of_change_pct ?? 0))}%` }} />
            </span>{" "}
            {format.plain(finding.share_of_change_pct)} % of the difference,{" "}
            {isRefuted(finding) ? "refuted" : format.sure(finding.confidence)}
          </p>
          <p>
            <Text of={finding.claim} />
          </p>
          {finding.evidence.length > 0 ? (
            <Table
              id={`evidence-${nr}`}
              caption={`Evidence for finding ${nr + 1}`}
              columns={["what", "A", "B"]}
              rows={() =>
                finding.evidence.map((of) => [
                  { show: <Text of={of.what} /> },
                  cell(of.a, format.quantity(of.a, of.unit)),
                  cell(of.b, format.quantity(of.b, of.unit)),
                ])
              }
            />
          ) : null}
          <dl class="rows">
            <dt>why</dt>
            <dd>
              <Text of={finding.why} />
            </dd>
            {finding.counterfactual ? (
              <>
                <dt>experiment</dt>
                <dd>
                  <Experiment of={finding} explanation={explanation} />
                </dd>
              </>
            ) : null}
            {finding.advice ? (
              <>
                <dt>set</dt>
                <dd>
                  <Text of={finding.advice.set} code />: time for an operation on the slow side{" "}
                  {format.change(finding.advice.predicted_change_pct)} by prediction
                  {finding.advice.measured_change_pct != null
                    ? `, measured ${format.change(finding.advice.measured_change_pct)}`
                    : ""}
                </dd>
              </>
            ) : null}
            <dt>change</dt>
            <dd>
              <Text of={finding.change} />
            </dd>
            <dt>refuted if</dt>
            <dd>
              <Text of={finding.refute} />
            </dd>
            <dt>since</dt>
            <dd>
              <Text of={finding.since} />
            </dd>
          </dl>
        </article>
      ))}
    </Section>
  );
}

export function Comparisons({ comparison }: { comparison: Comparison }) {
  const metrics = (comparison.metrics ?? []) as Row[];
  const warnings = (comparison.warnings ?? []) as Row["warnings"];
  const modes = (of: Row["modes_a"], unit: string) =>
    of.length <= 1
      ? "one"
      : of.map((mode) => `${format.plain(mode.share_pct)} % near ${format.quantity(mode.centre, unit)}`).join("; ");
  return (
    <Section
      id="comparison"
      title="The comparison"
      lead={`Medians of runs. Intervals at ${Math.round(100 * (1 - Number(comparison.alpha)))} %; no difference up to ${format.plain(Number(comparison.margin_pct))} %; p adjusted by ${comparison.adjust === "holm" ? "Holm" : "Benjamini and Hochberg"}.`}
    >
      <Table
        id="comparison"
        caption="Metrics of A and B"
        columns={[
          "metric",
          "verdict",
          "A",
          "B",
          "change",
          "interval",
          "p",
          "adjusted p",
          "runs",
          "cv A, B",
          "modes A",
          "modes B",
        ]}
        rows={() =>
          metrics.map((row) => [
            { show: <Text of={row.name} />, value: row.name },
            { show: <span class={`chip v-${row.verdict}`}>{row.verdict}</span>, value: row.verdict },
            cell(row.a.median, format.quantity(row.a.median, row.unit)),
            cell(row.b.median, format.quantity(row.b.median, row.unit)),
            cell(row.change_pct, format.change(row.change_pct)),
            {
              show:
                row.ci_low_pct == null ? (
                  "none"
                ) : (
                  <span class="nowrap">{`[${format.change(row.ci_low_pct)}, ${format.change(row.ci_high_pct)}]`}</span>
                ),
              value: `${row.ci_low_pct},${row.ci_high_pct}`,
            },
            cell(row.p, format.pValue(row.p)),
            cell(row.p_adjusted, format.pValue(row.p_adjusted)),
            { show: <span class="nowrap">{`${row.a.n}, ${row.b.n}`}</span> },
            { show: <span class="nowrap">{`${format.percent(row.a.cv)}, ${format.percent(row.b.cv)}`}</span> },
            { show: modes(row.modes_a, row.unit) },
            { show: modes(row.modes_b, row.unit) },
          ])
        }
      />
      {[
        ...warnings.map((of) => ({ name: "", of })),
        ...metrics.flatMap((row) => row.warnings.map((of) => ({ name: row.name, of }))),
      ].map(({ name, of }, nr) => (
        <p class="warning" key={nr} data-warning={of.kind}>
          <b>Warning{name ? " for " : ""}</b>
          {name ? <Text of={name} /> : null}: <Text of={of.text} /> Next: <Text of={of.next} />
        </p>
      ))}
    </Section>
  );
}

/** Layers from top to bottom: A's bar, then how B adds to it or takes from it, until B's bar. */
export function Waterfall({ explanation }: { explanation: Explanation }) {
  const layers = explanation.layers.filter((of) => Math.abs(of.a) + Math.abs(of.b) >= 0.5);
  const delta = explanation.b_ns - explanation.a_ns;
  const told = layers.reduce((sum, of) => sum + of.delta, 0);
  const rest = delta - told;
  const steps: { name: string; a: number; b: number; from: number; to: number; kind: string }[] = [
    { name: "all of A", a: explanation.a_ns, b: 0, from: 0, to: explanation.a_ns, kind: "side-0" },
  ];
  let at = explanation.a_ns;
  for (const of of layers) {
    steps.push({ name: of.layer, a: of.a, b: of.b, from: at, to: at + of.delta, kind: of.delta < 0 ? "less" : "more" });
    at += of.delta;
  }
  // Rounding is not a layer.
  if (Math.abs(rest) > 0.0005 * Math.max(explanation.a_ns, explanation.b_ns)) {
    steps.push({ name: "not in a layer", a: 0, b: 0, from: at, to: at + rest, kind: "rest" });
  }
  steps.push({ name: "all of B", a: 0, b: explanation.b_ns, from: 0, to: explanation.b_ns, kind: "side-1" });
  const most = Math.max(...steps.flatMap((step) => [step.from, step.to]), 1);
  const [W, row, left, right] = [920, 26, 150, 96];
  const x = (ns: number) => left + (ns / most) * (W - left - right);
  const label = (of: (typeof steps)[number]) =>
    of.kind.startsWith("side") ? format.time(of.to) : format.signed(of.to - of.from, (v) => format.time(v));
  return (
    <Section
      id="layers"
      title="Where the time of an operation goes"
      lead={
        <>
          From A's time to B's: what each layer adds or takes.{" "}
          <span data-fact="unexplained" data-v={explanation.unexplained_pct}>
            {format.plain(explanation.unexplained_pct)} % of the difference is unexplained by the findings.
          </span>
        </>
      }
    >
      <div class="scroll" tabIndex={0} role="region" aria-label="Waterfall of layers">
        <svg
          class="chart wide"
          viewBox={`0 0 ${W} ${steps.length * row + 4}`}
          role="img"
          aria-label="Waterfall from the time of A to the time of B, by layer; the table below has the numbers"
          data-chart="waterfall"
        >
          {steps.map((step, nr) => {
            const [low, high] = [Math.min(step.from, step.to), Math.max(step.from, step.to)];
            return (
              <g key={step.name} transform={`translate(0 ${nr * row})`}>
                <text class="axis strong" x={left - 8} y={row / 2 + 4} text-anchor="end">
                  {step.name}
                </text>
                <rect
                  class={`bar ${step.kind}`}
                  x={x(low)}
                  width={Math.max(1, x(high) - x(low))}
                  y={4}
                  height={row - 8}
                  data-from={step.from}
                  data-to={step.to}
                />
                <text class="axis" x={x(high) + 6} y={row / 2 + 4}>
                  {label(step)}
                </text>
                {nr + 1 < steps.length ? (
                  <line class="zero" x1={x(step.to)} x2={x(step.to)} y1={row - 4} y2={row + 4} />
                ) : null}
              </g>
            );
          })}
        </svg>
      </div>
      <Table
        id="layers"
        caption="Time of an operation by layer"
        columns={["layer", "A", "B", "B − A"]}
        rows={() => [
          ...layers.map((of) => [
            of.layer,
            cell(of.a, format.time(of.a)),
            cell(of.b, format.time(of.b)),
            cell(
              of.delta,
              format.signed(of.delta, (v) => format.time(v)),
            ),
          ]),
          [
            "all",
            cell(explanation.a_ns, format.time(explanation.a_ns)),
            cell(explanation.b_ns, format.time(explanation.b_ns)),
            cell(
              delta,
              format.signed(delta, (v) => format.time(v)),
            ),
          ],
        ]}
      />
    </Section>
  );
}
