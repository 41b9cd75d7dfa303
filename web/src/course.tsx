// The run as a whole, on the first screen: how far each side had come, and how long each call took, by its number. A range
// of calls that is drawn with the pointer is shown in the timeline, both sides from the same call on.

import { Chart, type Frame } from "./chart.tsx";
import { extent } from "./charts.tsx";
import { at, type Course, type Report } from "./data.ts";
import * as format from "./format.ts";
import type { Side } from "./lanes.ts";
import { Letter, Numbers } from "./parts.tsx";
import { linePath } from "./path.ts";
import { lowerBound } from "./scale.ts";
import { shared } from "./store.ts";

/** Bytes done over time, or calls that move none. */
export function Progress({ report }: { report: Report }) {
  const lines = report.sides.map(({ timeline: { overview, elapsed_ns } }) => ({
    at: [0, ...overview.done_bytes.map((_, i) => Math.min((i + 1) * overview.slice_ns, elapsed_ns))],
    bytes: [0, ...overview.done_bytes],
    calls: [0, ...overview.done_calls],
  }));
  const by = lines.some((of) => (of.bytes.at(-1) ?? 0) > 0) ? "bytes" : "calls";
  const most = Math.max(1, ...lines.map((of) => of[by].at(-1) ?? 0));
  const longest = Math.max(1, ...report.sides.map((side) => side.timeline.elapsed_ns));
  const words = (of: number) =>
    by === "bytes" ? format.size(Math.round(of)) : `${format.plain(Math.round(of))} calls`;
  // Round numbers of bytes are powers of two.
  const step = by === "bytes" ? 2 ** Math.ceil(Math.log2(most / 4)) : undefined;
  return (
    <figure id="progress">
      <figcaption>
        How far each run had come{" "}
        {report.sides.map((side, nr) => {
          const run = side.runs.find((of) => of.seed === side.timeline.seed);
          return (
            <span key={nr} class="key">
              <Letter side={nr} /> {nr === 0 ? "solid" : "dashed"}
              {run && run.rate_bytes_per_s > 0 ? ` ${format.rate(run.rate_bytes_per_s)}` : ""}{" "}
            </span>
          );
        })}
      </figcaption>
      <Chart
        label={`Progress over time: ${lines.map((of, nr) => `${"AB"[nr]} ${words(of[by].at(-1) ?? 0)} in ${format.time(report.sides[nr]?.timeline.elapsed_ns)}`).join(", ")}`}
        height={210}
        data={{ "data-chart": "progress" }}
        x={{ from: 0, to: longest, text: format.instant, title: "since the first call" }}
        y={{
          from: 0,
          to: most,
          text: (of) => (by === "bytes" ? format.sizeTick(of) : format.plain(of)),
          title: "",
          ...(step ? { at: Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step) } : {}),
        }}
        say={(ns) =>
          `${format.time(ns)}: ${lines
            .map(
              (of, nr) =>
                `${"AB"[nr]} ${words(at(of[by], Math.min(of.at.length - 1, Math.max(0, lowerBound(of.at, ns)))))}`,
            )
            .join(", ")}`
        }
        draw={(x, y, frame) =>
          lines.map((of, nr) => {
            const onset = report.sides[nr]?.timeline.course.onset;
            return (
              <g key={nr}>
                <path class={`line side-${nr}`} d={linePath(of.at, of[by], x, y)} />
                {onset ? (
                  <line
                    class="mark"
                    x1={x(onset.at.start_ns)}
                    x2={x(onset.at.start_ns)}
                    y1={frame.top}
                    y2={frame.bottom}
                  />
                ) : null}
              </g>
            );
          })
        }
      />
      {lines.map((of, nr) => (
        <Numbers
          key={nr}
          id={`progress-${nr}`}
          caption={`${"AB"[nr]}: progress`}
          columns={["ns", "bytes", "calls"]}
          rows={() => of.at.map((ns, i) => [ns, at(of.bytes, i), at(of.calls, i)])}
          most={2001}
        />
      ))}
    </figure>
  );
}

/** When a call began, as far as it is known: that of the column, where calls are counted. */
export function startOf(course: Course, nr: number): number {
  if (!course.heat) return at(course.points.start, Math.min(course.points.start.length, Math.max(1, nr)) - 1);
  return at(course.heat.start, Math.max(0, lowerBound(course.heat.nr, nr + 1) - 1));
}

/** The timeline shows these calls, both sides from the first of them on. */
export function showCalls(sides: readonly Side[], from: number, to: number) {
  const known = sides.map(({ timeline: { course } }) => course.calls >= from && from >= 1);
  const origin = sides.map(({ timeline: { course } }, nr) => (known[nr] ? startOf(course, from) : 0));
  const ends = sides.map(({ timeline: { course, elapsed_ns } }, nr) =>
    known[nr] ? (to + 1 <= course.calls ? startOf(course, to + 1) : elapsed_ns) - at(origin, nr) : 0,
  );
  const longest = Math.max(1000, ...ends);
  shared.align.set({ by: "call", origin, note: "" });
  shared.view.set({ from: -0.02 * longest, to: 1.02 * longest });
  document.getElementById("timeline")?.scrollIntoView({ block: "start" });
}

/** Where a side becomes slow. */
function OnsetMark({
  onset,
  side,
  x,
  frame,
}: {
  onset: NonNullable<Course["onset"]>;
  side: number;
  x: number;
  frame: Frame;
}) {
  const right = x > (frame.left + frame.right) / 2;
  return (
    <g data-onset={side} data-v={onset.at.nr}>
      <line class="mark" x1={x} x2={x} y1={frame.top} y2={frame.bottom} />
      <text class="strong onset" x={right ? x - 6 : x + 6} y={frame.top + 12} text-anchor={right ? "end" : "start"}>
        {`${"AB"[side]}: ${format.time(onset.before_ns)}, from call ${onset.at.nr} on ${format.time(onset.after_ns)}`}
      </text>
    </g>
  );
}

/** Every call by its number. */
export function Latency({ report, sides }: { report: Report; sides: readonly Side[] }) {
  const courses = report.sides.map((side) => side.timeline.course);
  const calls = Math.max(0, ...courses.map((of) => of.calls));
  if (calls === 0) return null;
  const [low, high] = extent(
    courses.flatMap((of) =>
      of.heat ? [at(of.heat.edge_ns, 0), of.heat.edge_ns.at(-1)] : of.points.took.filter((ns) => ns > 0),
    ),
  );
  const words = (of: Course, nr: number): string => {
    if (nr < 1 || nr > of.calls) return "";
    if (!of.heat) {
      const took = at(of.points.took, nr - 1);
      return took < 0 ? "not ended" : format.time(took);
    }
    const { heat } = of;
    const column = Math.max(0, lowerBound(heat.nr, nr + 1) - 1);
    const cells = heat.column.map((_, i) => i).filter((i) => heat.column[i] === column);
    const most = cells.reduce((best, i) => (best < 0 || at(heat.count, i) > at(heat.count, best) ? i : best), -1);
    return most < 0 ? "" : `most from ${format.time(at(heat.edge_ns, at(heat.bin, most)))}`;
  };
  return (
    <figure id="course">
      <figcaption>Every call by its number: how long it took (logarithmic)</figcaption>
      <Chart
        label="Latency of each call by its number; draw a range to see these calls in the timeline"
        height={210}
        data={{ "data-chart": "course" }}
        x={{
          from: 1,
          to: Math.max(2, calls),
          text: (nr) => (Number.isInteger(nr) ? String(nr) : ""),
          title: "call (draw a range to see it below)",
        }}
        y={{
          from: low / 1.2,
          to: Math.max(high * (courses.some((of) => of.onset) ? 1.7 : 1.2), low * 1.5),
          log: true,
          text: format.instant,
          title: "",
        }}
        say={(nr) => {
          const call = Math.round(nr);
          const of = courses.map((course, side) => ({ side, text: words(course, call) })).filter((one) => one.text);
          return `call ${call}: ${of.map((one) => `${"AB"[one.side]} ${one.text}`).join(", ")}`;
        }}
        onRange={(from, to) => showCalls(sides, Math.max(1, Math.round(from)), Math.max(1, Math.round(to)))}
        paint={(context, x, y, colour) => {
          courses.forEach((course, nr) => {
            context.fillStyle = colour(nr === 0 ? "a" : "b");
            const { heat, points } = course;
            if (heat) {
              const most = Math.log(1 + heat.count.reduce((max, of) => Math.max(max, of), 1));
              heat.column.forEach((column, i) => {
                const [left, top] = [x(at(heat.nr, column)), y(at(heat.edge_ns, at(heat.bin, i) + 1))];
                const right = x(heat.nr[column + 1] ?? course.calls + 1);
                context.globalAlpha = 0.15 + (0.75 * Math.log(1 + at(heat.count, i))) / most;
                context.fillRect(
                  left,
                  top,
                  Math.max(1, right - left),
                  Math.max(1, y(at(heat.edge_ns, at(heat.bin, i))) - top),
                );
              });
            } else {
              // A and B on the same spot are both seen: B's marks are hollow in the middle of A's.
              const size = nr === 0 ? 3 : 2;
              context.globalAlpha = points.took.length > 2000 ? 0.5 : 0.85;
              points.took.forEach((took, i) => {
                if (took > 0) context.fillRect(x(i + 1) - size / 2, y(took) - size / 2, size, size);
              });
            }
            context.globalAlpha = 1;
          });
        }}
        draw={(x, _y, frame) =>
          courses.map((of, nr) => (
            <g key={nr}>
              {of.onset ? <OnsetMark onset={of.onset} side={nr} x={x(of.onset.at.nr)} frame={frame} /> : null}
              {of.typical ? (
                <text class={`typical side-${nr}`} x={x(of.typical.nr)} y={frame.bottom - 3} text-anchor="middle">
                  <title>{`${"AB"[nr]}: call ${of.typical.nr}, shown below, ${format.time(of.typical.took_ns)}`}</title>
                  ▾
                </text>
              ) : null}
            </g>
          ))
        }
      />
      {courses.map((of, nr) => (
        <Numbers
          key={nr}
          id={`course-${nr}`}
          caption={`${"AB"[nr]}: ${of.heat ? "calls by number and duration" : "duration of each call"}`}
          columns={of.heat ? ["first call", "from, ns", "calls"] : ["call", "began, ns", "took, ns"]}
          rows={() => {
            const { heat, points } = of;
            return heat
              ? heat.column.map((column, i) => [
                  at(heat.nr, column),
                  at(heat.edge_ns, at(heat.bin, i)),
                  at(heat.count, i),
                ])
              : points.took.map((took, i) => [i + 1, at(points.start, i), took]);
          }}
        />
      ))}
    </figure>
  );
}
