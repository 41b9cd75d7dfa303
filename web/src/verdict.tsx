// The first screen: what got slower, by how much, why, and how sure; then the findings, the comparison, and the layers.

import { textWidth, useWidth } from "./chart.tsx";
import { Latency, Progress } from "./course.tsx";
import type { Comparison, Explanation, Finding, Made, Metric, Report } from "./data.ts";
import * as format from "./format.ts";
import type { Side } from "./lanes.ts";
import { Causes } from "./matrix.tsx";
import { cell, Letter, Prose, Section, Table, Text } from "./parts.tsx";

const WORDS = {
  regression: "Slower",
  improvement: "Faster",
  same: "No difference",
  inconclusive: "Cannot tell",
  none: "One set of runs",
} as const;
const SIGNS = { regression: "▲", improvement: "▼", same: "=", inconclusive: "?", none: "" } as const;

const isRefuted = (finding: Finding) => finding.counterfactual?.outcome === "refuted";

/** The word for what an experiment says. More gone than there was is not a confirmation. */
export function outcome(made: Made): string {
  switch (made.outcome) {
    case "confirmed":
      return "Confirmed";
    case "partly":
      return overshoots(made) ? "Overshoots" : "Partly confirmed";
    case "refuted":
      return "Refuted";
    case "not-reproduced":
      return "Not reproduced";
    default:
      return "Undecided";
  }
}

const overshoots = (made: Made) =>
  made.outcome === "partly" && (made.gone_pct ?? 0) > 100 && !made.device_only && made.figures_moved !== false;

/** The interval of the headline's number: of the same estimator. */
export function interval(of: Explanation): string {
  const { ci_low_pct: low, ci_high_pct: high } = of;
  if (low == null || high == null) return `no interval from ${of.runs_a} and ${of.runs_b} runs`;
  return `${Math.round(100 * of.ci_level)} % interval [${format.change(low)}, ${format.change(high)}]`;
}

export function Verdict({ report, sides, events }: { report: Report; sides: readonly Side[]; events: boolean }) {
  const { headline, explanation } = report;
  const { first } = headline;
  const sure = headline.verdict === "regression" || headline.verdict === "improvement";
  return (
    <section id="verdict" class={`verdict v-${headline.verdict}`} aria-labelledby="verdict-title">
      <p class="badge">
        <span aria-hidden="true">{SIGNS[headline.verdict]}</span> {WORDS[headline.verdict]}
      </p>
      <h1 id="verdict-title" tabIndex={-1}>
        <Prose of={first.title || headline.sentence} />
      </h1>
      <p class="sub">
        {first.title && !sure ? <Prose of={headline.sentence} /> : null}{" "}
        {report.sides.map((side, nr) => (
          <span key={nr} class="of-side">
            <Letter side={nr} /> <Text of={side.label} /> ({side.runs.length}{" "}
            {side.simulated ? "simulated" : "measured"} {side.runs.length === 1 ? "run" : "runs"})
            {explanation ? (
              <span data-fact={`time-${nr}`} data-v={nr === 0 ? explanation.a_ns : explanation.b_ns}>
                {" "}
                {format.time(nr === 0 ? explanation.a_ns : explanation.b_ns)}
              </span>
            ) : null}
          </span>
        ))}
        {explanation?.change_pct != null ? (
          <span class="of-side" data-fact="change" data-v={explanation.change_pct}>
            for {explanation.headline.subject}: {format.change(explanation.change_pct)},{" "}
            <span
              data-fact="interval"
              data-low={explanation.ci_low_pct ?? ""}
              data-high={explanation.ci_high_pct ?? ""}
            >
              {interval(explanation)}
            </span>
          </span>
        ) : null}
      </p>
      <dl class="lines">
        {first.lines.map((line) => (
          <div key={line.name} data-line={line.name}>
            <dt>{line.name}</dt>
            <dd>
              <Text of={line.text} />
            </dd>
          </div>
        ))}
      </dl>
      {events ? (
        <div class={`first-charts ${report.matrix ? "trio" : "pair"}`}>
          <Progress report={report} />
          <Latency report={report} sides={sides} />
          {report.matrix ? <Causes of={report.matrix} /> : null}
        </div>
      ) : null}
      {(explanation?.warnings ?? []).map((warning) => (
        <p class="warning" key={warning}>
          <b>Warning:</b> <Text of={warning} />
        </p>
      ))}
    </section>
  );
}

/** How much of the difference is gone. */
function gone(made: Made): string {
  if (made.outcome === "refuted") return "nothing measurable of the difference is gone";
  if (made.outcome === "undecided") return "runs spread too much to see whether half of the difference is gone";
  return `${(made.gone_pct ?? 0).toFixed(0)} % of the difference is gone${made.outcome === "partly" ? but(made) : ""}`;
}

/** Why the improvement does not confirm all of a finding. */
function but(made: Made): string {
  if (made.device_only) return "; but none of this finding's settings differs: the cause is another one of the device";
  if (made.figures_moved === false)
    return "; the setting helps, but the figures of this finding did not move with it: the cause may be another";
  return overshoots(made) ? ", more than there was" : "";
}

function Experiment({ of, explanation }: { of: Finding; explanation: Explanation }) {
  const made = of.counterfactual;
  if (!made) return null;
  const interval = (low: number | null, high: number | null) =>
    low != null && high != null
      ? `interval [${format.change(low)}, ${format.change(high)}] from ${made.runs} runs`
      : "no interval from single runs";
  const title = <b data-outcome={made.outcome}>{outcome(made)}:</b>;
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

export function Findings({ explanation, showMe }: { explanation: Explanation; showMe: (layer: string) => void }) {
  if (explanation.findings.length === 0) return null;
  return (
    <Section id="findings" title="What was found">
      {explanation.findings.map((finding, nr) => (
        <article key={nr} id={`finding-${nr + 1}`} class="finding" data-rule={finding.rule}>
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
            {isRefuted(finding) ? "refuted" : format.sure(finding.confidence)}{" "}
            <button type="button" class="link show-me" onClick={() => showMe(finding.layer)}>
              Show me
            </button>
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

/** A coefficient of variation: the data has it in percent. */
export const spread = (cv: number | null) => (cv == null ? "none" : `${format.plain(cv)} %`);

export function Comparisons({ comparison }: { comparison: Comparison }) {
  const { metrics, warnings } = comparison;
  // One that several metrics have is shown once.
  const alike = new Map<string, { names: string[]; of: (typeof warnings)[number] }>();
  const add = (of: (typeof warnings)[number], names: string[]) => {
    const key = `${of.text} ${of.next}`;
    alike.set(key, { of, names: [...(alike.get(key)?.names ?? []), ...names] });
  };
  for (const of of warnings) add(of, []);
  for (const row of metrics) for (const of of row.warnings) add(of, [row.name]);
  const modes = (of: Metric["modes_a"], unit: string) =>
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
            {
              show: <span class="nowrap">{`${spread(row.a.cv)}, ${spread(row.b.cv)}`}</span>,
              value: `${row.a.cv},${row.b.cv}`,
            },
            { show: modes(row.modes_a, row.unit) },
            { show: modes(row.modes_b, row.unit) },
          ])
        }
      />
      {comparison.job_options.length > 0 ? (
        <Table
          id="job-options"
          caption="Job options that differ"
          columns={["option", "A", "B"]}
          rows={() =>
            comparison.job_options.map((of) => [
              { show: <Text of={of.name} /> },
              { show: <Text of={of.a.map((one) => one ?? "not set").join(" or ")} /> },
              { show: <Text of={of.b.map((one) => one ?? "not set").join(" or ")} /> },
            ])
          }
        />
      ) : null}
      {[...alike].map(([text, { names, of }]) => (
        <p class="warning" key={text} data-warning={of.kind}>
          <b>Warning{names.length ? " for " : ""}</b>
          {names.length ? <Text of={names.join(", ")} /> : null}: <Text of={of.text} /> Next: <Text of={of.next} />
        </p>
      ))}
    </Section>
  );
}

/** Layers from top to bottom: A's bar, then how B adds to it or takes from it, until B's bar. */
export function Waterfall({ explanation }: { explanation: Explanation }) {
  const given = explanation.layers.map((of) => ({ layer: of.layer, a: of.a ?? 0, b: of.b ?? 0, delta: of.delta ?? 0 }));
  const layers = given.filter((of) => Math.abs(of.a) + Math.abs(of.b) >= 0.5);
  const [a_ns, b_ns] = [explanation.a_ns ?? 0, explanation.b_ns ?? 0];
  const delta = b_ns - a_ns;
  const told = layers.reduce((sum, of) => sum + of.delta, 0);
  const rest = delta - told;
  const steps: { name: string; a: number; b: number; from: number; to: number; kind: string }[] = [
    { name: "all of A", a: a_ns, b: 0, from: 0, to: a_ns, kind: "side-0" },
  ];
  let at = a_ns;
  for (const of of layers) {
    steps.push({ name: of.layer, a: of.a, b: of.b, from: at, to: at + of.delta, kind: of.delta < 0 ? "less" : "more" });
    at += of.delta;
  }
  // Rounding is not a layer.
  if (Math.abs(rest) > 0.0005 * Math.max(a_ns, b_ns)) {
    steps.push({ name: "not in a layer", a: 0, b: 0, from: at, to: at + rest, kind: "rest" });
  }
  steps.push({ name: "all of B", a: 0, b: b_ns, from: 0, to: b_ns, kind: "side-1" });
  const most = Math.max(...steps.flatMap((step) => [step.from, step.to]), 1);
  const [box, wide] = useWidth<HTMLDivElement>();
  const W = Math.max(wide, 120);
  const left = Math.ceil(Math.max(...steps.map((step) => textWidth(step.name)))) * 1.15 + 8;
  const [row, right] = [26, 84];
  const x = (ns: number) => left + (ns / most) * (W - left - right);
  const label = (of: (typeof steps)[number]) =>
    of.kind.startsWith("side") ? format.time(of.to) : format.signed(of.to - of.from, (v) => format.time(v));
  return (
    <Section
      id="layers"
      title="Where the time of an operation goes"
      lead={
        <>
          From A's time to B's: what each layer adds or takes. A layer is where time passes, and not why: a cause in one
          makes others slow, so that its share of the difference is not its layer's.{" "}
          <span data-fact="unexplained" data-v={explanation.unexplained_pct}>
            {format.plain(explanation.unexplained_pct)} % of the difference is unexplained by the findings.
          </span>
        </>
      }
    >
      <div ref={box}>
        <svg
          class="chart"
          width={W}
          height={steps.length * row + 4}
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
                >
                  <title>{`${step.name}: ${label(step)}`}</title>
                </rect>
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
            cell(a_ns, format.time(a_ns)),
            cell(b_ns, format.time(b_ns)),
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
