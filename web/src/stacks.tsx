// Where tasks wait, by the functions that have called one another until then: a flame graph of each side. The outermost
// function stands at the bottom, and whatever it has called above it, as wide as its part of the waiting time.

import { textWidth, useWidth } from "./chart.tsx";
import type { Report, Side } from "./data.ts";
import * as format from "./format.ts";
import { cell, Letter, Numbers, Section, Text } from "./parts.tsx";

/** Height of a row, px. */
const ROW = 19;

export interface Frame {
  name: string;
  /** From which time on, and how long, ns. */
  from: number;
  ns: number;
  count: number;
  /** Frames below it. */
  depth: number;
}

/** The frames of stacks, those with the same callers as one, the outermost first; callees by name, so that two graphs are alike. */
export function flame(stacks: Side["stacks"], depth = 0, from = 0): Frame[] {
  const callees = new Map<string, Side["stacks"]>();
  for (const stack of stacks) {
    const name = stack.frames[depth];
    if (name === undefined) continue;
    callees.set(name, [...(callees.get(name) ?? []), stack]);
  }
  let at = from;
  return [...callees]
    .sort(([x], [y]) => (x < y ? -1 : 1))
    .flatMap(([name, of]) => {
      const own = { name, from: at, ns: 0, count: 0, depth };
      for (const stack of of) {
        own.ns += stack.ns;
        own.count += stack.count;
      }
      at += own.ns;
      return [own, ...flame(of, depth + 1, own.from)];
    });
}

function Graph({ stacks, side }: { stacks: Side["stacks"]; side: number }) {
  const [box, wide] = useWidth<HTMLDivElement>();
  const width = Math.max(wide, 120);
  const frames = flame(stacks);
  const whole = Math.max(
    1,
    stacks.reduce((sum, of) => sum + of.ns, 0),
  );
  const height = ROW * (1 + Math.max(0, ...frames.map((of) => of.depth)));
  const x = (ns: number) => (ns / whole) * width;
  return (
    <div ref={box} class="chart-box">
      <svg
        class={`chart flame side-${side}`}
        viewBox={`0 0 ${width} ${height}`}
        width={width}
        height={height}
        role="img"
        aria-label={`Flame graph of ${stacks.length} stacks, ${format.time(whole)} of waiting`}
        data-chart={`flame-${side}`}
      >
        {frames.map((of, nr) => {
          const [left, long] = [x(of.from), x(of.ns)];
          const room = Math.floor(long - 8);
          const name = of.name.slice(0, 200);
          return (
            <g key={nr} transform={`translate(${left} ${height - ROW * (of.depth + 1)})`}>
              <title>{`${name}: ${format.time(of.ns)}, ${Math.round((1000 * of.ns) / whole) / 10} %, ${of.count} waits`}</title>
              <rect x="0.5" y="0.5" width={Math.max(0.5, long - 1)} height={ROW - 2} data-ns={of.ns} />
              {room > 24 ? (
                <text x="4" y={ROW - 6}>
                  {textWidth(name) <= room ? name : `${name.slice(0, Math.floor(room / 8))}…`}
                </text>
              ) : null}
            </g>
          );
        })}
      </svg>
    </div>
  );
}

export function Stacks({ report }: { report: Report }) {
  if (report.sides.every((side) => side.stacks.length === 0)) return null;
  return (
    <Section
      id="stacks"
      title="Where tasks wait"
      lead="Time from leaving the CPU to being back on it, by the functions that had called one another: the task and its outermost function at the bottom, each as wide as its part. Only code that was compiled with frame pointers shows all of its callers."
    >
      {report.sides.map((side, nr) =>
        side.stacks.length > 0 ? (
          <figure key={nr}>
            <figcaption>
              {report.sides.length > 1 ? <Letter side={nr} /> : null} <Text of={side.label} />
            </figcaption>
            <Graph stacks={side.stacks} side={nr} />
            <Numbers
              id={`stacks-${nr}`}
              caption="Stacks with the longest waits"
              columns={["stack", "time", "waits"]}
              rows={() =>
                side.stacks.map((of) => [
                  { show: <Text of={of.frames.join(" > ")} code />, value: of.frames.join(";") },
                  cell(of.ns, format.time(of.ns)),
                  of.count,
                ])
              }
            />
          </figure>
        ) : null,
      )}
    </Section>
  );
}
