// Maps of space: the strip of each file with what became of its pages, the disk with seeks over time; and requests: their
// lifelines from Q to C.

import { useRef, useState } from "preact/hooks";
import { viewOf } from "./align.ts";
import { Canvas, colour } from "./canvas.tsx";
import { useWidth } from "./chart.tsx";
import { Ribbons, Sizes } from "./charts.tsx";
import { at, type Report } from "./data.ts";
import * as format from "./format.ts";
import { type Side, STATES } from "./lanes.ts";
import { hatch, paintDisk } from "./paint.ts";
import { Legend, Letter, Numbers, Section, Text } from "./parts.tsx";
import { coverage, gapsOf } from "./pyramid.ts";
import { linear, type View } from "./scale.ts";
import { shared, useValue } from "./store.ts";

const STATE_COLOURS = ["untouched", "hit", "miss", "waste", "stale"] as const;

interface Piece {
  from: number;
  to: number;
  state: number;
  by: string | null;
}

/** Neighbouring strips that went through the same, as one piece. */
export function pieces(state: readonly number[], by: readonly (string | null)[]): Piece[] {
  const out: Piece[] = [];
  state.forEach((of, i) => {
    const last = out[out.length - 1];
    if (last && last.state === of && last.by === (by[i] ?? null)) last.to = i + 1;
    else out.push({ from: i, to: i + 1, state: of, by: by[i] ?? null });
  });
  return out;
}

/** Moments of residency, and the height of the line of each, px. */
const MOMENTS = ["at the begin", "in the middle", "at the end"] as const;
const RESIDENT = 6;
const NOBODY: readonly null[] = [];
const mean = (of: readonly number[]) => of.reduce((sum, one) => sum + one, 0) / Math.max(1, of.length);

/** More files than this are rows of one picture. */
const FEW = 6;
/** Rows of it. */
const ROWS = 128;

export function FileMaps({ sides }: { sides: readonly Side[] }) {
  const files = Math.max(0, ...sides.map((side) => side.timeline.map.length));
  if (files === 0) return null;
  const used = new Set(sides.flatMap((side) => side.timeline.map.flatMap((map) => map.state)));
  return (
    <Section
      id="files"
      title="File map"
      lead="Each file from its first page to its last: the fate of most pages of a strip. Below each strip, the read-ahead windows of the parts shown in the timeline."
    >
      <Legend
        of={STATES.map((words, nr) => [STATE_COLOURS[nr] ?? "untouched", words] as const).filter((_, nr) =>
          used.has(nr),
        )}
      />
      {files > FEW
        ? sides.map((side, of) => <FileHeat key={of} side={side} nr={of} />)
        : Array.from({ length: files }, (_, nr) => (
            <div class="file" key={nr}>
              {sides.map((side, of) =>
                side.timeline.map[nr] ? <FileStrip key={of} side={side} nr={of} map={nr} /> : null,
              )}
            </div>
          ))}
    </Section>
  );
}

/** Read-ahead windows of the file with most of them in view: offset over time, as tall as they are. */
export function Windows({ report, sides }: { report: Report; sides: readonly Side[] }) {
  const view = useValue(shared.view, 120);
  const align = useValue(shared.align, 120);
  if (sides.every((side) => side.timeline.windows.at.length === 0)) return null;
  const shown = sides.map((side, nr) => windowsIn(side, viewOf(view, align.origin[nr] ?? 0)));
  return (
    <Section
      id="windows"
      title="Read-ahead windows"
      lead="Offset in the file over the time that the timeline shows: a window is as tall as it is long in the file, from its decision to the arrival of its last page. Lines are the calls."
    >
      <Legend
        of={[
          ["hit", "all used"],
          ["waste", "some never used"],
          ["removed", "some removed before use"],
          ["ink", "calls"],
        ]}
      />
      {sides.map((side, nr) => {
        const { file, ids, low, high } = at(shown, nr);
        const own = viewOf(view, align.origin[nr] ?? 0);
        const { windows, calls, files } = side.timeline;
        const { unknown } = coverage(side.timeline, own);
        return (
          <div class="lanes" key={nr}>
            <div class="lane-names disk-name" aria-hidden="true">
              <Letter side={nr} /> <span dir="auto">{format.short(report.sides[nr]?.label ?? "", 24)}</span>
              <span class="hint">
                {ids.length === 0
                  ? "no windows in view"
                  : `${format.short(files[file]?.name ?? "a file", 24)}, ${format.size(low * 4096)} to ${format.size(high * 4096)}`}
                {unknown > 0.001 ? `; ${format.percent(unknown)} of the view without detail` : ""}
              </span>
            </div>
            <Canvas
              height={150}
              label={`${"AB"[nr]}: ${ids.length} read-ahead windows over file offset and time`}
              data={{ windows: nr, shown: ids.length }}
              draw={(context, width, height) => {
                const x = linear(own.from, own.to, 0, width);
                const y = linear(low, high, height - 4, 4);
                context.fillStyle = colour("lane");
                context.fillRect(0, 0, width, height);
                context.fillStyle = hatch(context, colour("grid"), 8);
                for (const [from, to] of gapsOf(side.timeline))
                  context.fillRect(x(from), 0, Math.min(width, x(to)) - x(from), height);
                for (const w of ids) {
                  const [first, pages] = [at(windows.first, w), at(windows.nr, w)];
                  const left = x(at(windows.at, w));
                  const fate = at(windows.thrashed, w) > 0 ? "removed" : at(windows.unused, w) > 0 ? "waste" : "hit";
                  const box = [
                    left,
                    y(first + pages),
                    Math.max(1.5, x(at(side.windowEnd, w)) - left),
                    Math.max(1.5, y(first) - y(first + pages)),
                  ] as const;
                  context.globalAlpha = 0.75;
                  context.fillStyle = colour(fate);
                  context.fillRect(...box);
                  context.globalAlpha = 1;
                  context.strokeStyle = colour("card");
                  if (box[2] > 6 && box[3] > 4) context.strokeRect(...box);
                }
                context.strokeStyle = colour("ink");
                context.beginPath();
                for (let i = 0; i < calls.start.length; i++) {
                  if (at(calls.file, i) !== file || at(calls.start, i) > own.to || at(calls.end, i) < own.from)
                    continue;
                  context.moveTo(x(at(calls.start, i)), y(at(calls.offset, i) / 4096));
                  context.lineTo(x(at(calls.end, i)), y((at(calls.offset, i) + at(calls.bytes, i)) / 4096));
                }
                context.stroke();
              }}
            />
          </div>
        );
      })}
    </Section>
  );
}

/** Windows in a side's own view, of the file that has most of them, with the pages that they and its calls span. */
export function windowsIn(side: Side, own: View): { file: number; ids: number[]; low: number; high: number } {
  const { windows, calls } = side.timeline;
  const byFile = new Map<number, number[]>();
  for (let w = 0; w < windows.at.length; w++) {
    if (at(windows.at, w) > own.to || at(side.windowEnd, w) < own.from) continue;
    const known = byFile.get(at(windows.file, w));
    if (known) known.push(w);
    else byFile.set(at(windows.file, w), [w]);
  }
  const [file, ids] = [...byFile].reduce((best, one) => (one[1].length > best[1].length ? one : best), [-1, []] as [
    number,
    number[],
  ]);
  let [low, high] = [Number.POSITIVE_INFINITY, 1];
  const span = (first: number, end: number) => {
    low = Math.min(low, first);
    high = Math.max(high, end);
  };
  for (const w of ids) span(at(windows.first, w), at(windows.first, w) + at(windows.nr, w));
  for (let i = 0; i < calls.start.length; i++)
    if (at(calls.file, i) === file && at(calls.start, i) <= own.to && at(calls.end, i) >= own.from)
      span(at(calls.offset, i) / 4096, (at(calls.offset, i) + at(calls.bytes, i)) / 4096);
  return { file, ids, low: Math.min(low, high - 1), high };
}

/** Many files as rows of one picture, those with most pages that were missed or never used first. */
function FileHeat({ side, nr }: { side: Side; nr: number }) {
  const [words, say] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const { map, files } = side.timeline;
  const lost = (of: (typeof map)[number]) =>
    of.state.filter((state) => state === 2 || state === 3).length / of.state.length;
  const order = map.map((_, i) => i).sort((x, y) => lost(at(map, y)) - lost(at(map, x)) || x - y);
  const shown = order.slice(0, ROWS);
  const tall = Math.max(3, Math.min(12, Math.floor(360 / shown.length)));
  return (
    <div class="file">
      <p class="file-name">
        <Letter side={nr} /> {map.length} files, from first page to last; most pages missed or never used first
        {order.length > ROWS ? ` (the first ${ROWS})` : ""}
      </p>
      <div
        ref={box}
        onPointerMove={(event) => {
          const rect = (box.current as HTMLDivElement).getBoundingClientRect();
          const row = Math.min(shown.length - 1, Math.max(0, Math.floor((event.clientY - rect.top) / tall)));
          const of = at(map, at(shown, row));
          const strip = Math.floor(((event.clientX - rect.left) / rect.width) * of.state.length);
          const state = STATES[of.state[Math.min(of.state.length - 1, Math.max(0, strip))] ?? 0];
          say(`${format.short(files[of.file]?.name ?? "a file", 60)}, pages from ${strip * of.strip_pages}: ${state}`);
        }}
        onPointerLeave={() => say("")}
      >
        <Canvas
          height={shown.length * tall}
          label={`${"AB"[nr]}: ${map.length} files, one row each: what became of their pages`}
          draw={(context, width) => {
            shown.forEach((index, row) => {
              const of = at(map, index);
              const x = linear(0, of.state.length, 0, width);
              for (const piece of pieces(of.state, of.by)) {
                context.fillStyle = colour(STATE_COLOURS[piece.state] ?? "untouched");
                context.fillRect(x(piece.from), row * tall, Math.max(1, x(piece.to) - x(piece.from)), tall - 0.5);
              }
            });
          }}
        />
      </div>
      <p class="hint say">{words || " "}</p>
      <details data-numbers={`maps-${nr}`}>
        <summary>Numbers: each file</summary>
        {map.map((_, index) => (
          <StripNumbers key={index} side={side} nr={nr} map={index} />
        ))}
      </details>
    </div>
  );
}

function StripNumbers({ side, nr, map }: { side: Side; nr: number; map: number }) {
  const of = at(side.timeline.map, map);
  return (
    <Numbers
      id={`map-${nr}-${map}`}
      caption={`${"AB"[nr]}: pages of file ${map}`}
      columns={["first page", "pages", "went through", "by"]}
      rows={() =>
        pieces(of.state, of.by).map((piece) => [
          piece.from * of.strip_pages,
          (piece.to - piece.from) * of.strip_pages,
          { show: STATES[piece.state] ?? "unknown", value: piece.state },
          { show: <Text of={piece.by ?? ""} /> },
        ])
      }
    />
  );
}

function FileStrip({ side, nr, map }: { side: Side; nr: number; map: number }) {
  const of = at(side.timeline.map, map);
  const file = side.timeline.files[of.file];
  const [words, say] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const total = Math.max(1, of.state.length * of.strip_pages);
  const counts = STATES.map((_, state) => of.state.filter((one) => one === state).length);
  const summary = STATES.map((name, state) =>
    at(counts, state) > 0 ? `${format.percent(at(counts, state) / of.state.length)} ${name}` : "",
  )
    .filter(Boolean)
    .join(", ");
  return (
    <div>
      <p class="file-name">
        <Letter side={nr} /> <Text of={file?.name ?? "a file"} />{" "}
        <span class="hint">
          {format.size(file?.bytes)}: {summary}
        </span>
      </p>
      <div
        ref={box}
        onPointerMove={(event) => {
          const rect = (box.current as HTMLDivElement).getBoundingClientRect();
          const strip = Math.min(
            of.state.length - 1,
            Math.max(0, Math.floor(((event.clientX - rect.left) / rect.width) * of.state.length)),
          );
          const by = of.by[strip];
          say(
            `pages ${strip * of.strip_pages} to ${(strip + 1) * of.strip_pages - 1}: ${STATES[at(of.state, strip)] ?? "unknown"}${by ? `, by ${format.short(by, 60)}` : ""}`,
          );
        }}
        onPointerLeave={() => say("")}
      >
        <Canvas
          height={36 + 3 * RESIDENT}
          label={`${"AB"[nr]}: strip of the file: ${summary}`}
          data={{ strips: of.state.length, map: `${nr}-${map}` }}
          draw={(context, width) => {
            const x = linear(0, total, 0, width);
            const stale = hatch(context, colour("stall-ink"), 5);
            const waste = hatch(context, colour("ink"), 6);
            for (const piece of pieces(of.state, of.by)) {
              const left = x(piece.from * of.strip_pages);
              const wide = Math.max(1, x(piece.to * of.strip_pages) - left);
              context.fillStyle = colour(STATE_COLOURS[piece.state] ?? "untouched");
              context.fillRect(left, 0, wide, 20);
              if (piece.state >= 3) {
                context.fillStyle = piece.state === 3 ? waste : stale;
                context.fillRect(left, 0, wide, 20);
              }
            }
            // In the page cache at the begin, in the middle, at the end.
            of.resident.forEach((shares, moment) => {
              const top = 36 + moment * RESIDENT;
              context.fillStyle = colour("lane");
              context.fillRect(0, top, width, RESIDENT - 1);
              context.fillStyle = colour("hit");
              for (const { from, to, state } of pieces(shares, NOBODY)) {
                if (state === 0) continue;
                context.globalAlpha = 0.25 + 0.75 * (state / 1000);
                context.fillRect(
                  x(from * of.strip_pages),
                  top,
                  Math.max(1, x((to - from) * of.strip_pages)),
                  RESIDENT - 1,
                );
              }
              context.globalAlpha = 1;
            });
            const { windows } = side.timeline;
            context.fillStyle = colour("lane");
            context.fillRect(0, 22, width, 12);
            for (let w = 0; w < windows.at.length; w++) {
              if (at(windows.file, w) !== of.file) continue;
              const left = x(at(windows.first, w));
              context.fillStyle = colour(w % 2 === 0 ? "window" : "window-soft");
              context.fillRect(
                left,
                w % 2 === 0 ? 22 : 28,
                Math.max(1, x(at(windows.first, w) + at(windows.nr, w)) - left),
                6,
              );
            }
          }}
        />
      </div>
      <p class="hint say">
        {words ||
          `In the page cache: ${MOMENTS.map((moment, i) => `${format.percent(mean(at(of.resident, i)) / 1000)} ${moment}`).join(", ")} (the three lowest lines).`}
      </p>
      <StripNumbers side={side} nr={nr} map={map} />
    </div>
  );
}

export function Disk({ report, sides }: { report: Report; sides: readonly Side[] }) {
  const { view, focus, align } = shared;
  let low = Number.POSITIVE_INFINITY;
  let high = 0;
  for (const side of sides) {
    const { sector, sectors } = side.timeline.requests;
    for (let i = 0; i < sector.length; i++) {
      low = Math.min(low, at(sector, i));
      high = Math.max(high, at(sector, i) + at(sectors, i));
    }
  }
  const range = [Math.min(low, high), high] as const;
  return (
    <Section
      id="disk"
      title="The disk"
      lead="Where requests went, over the same time as the timeline shows: a bar is a request in service, a line a seek from where the one before ended. Below: the whole run."
    >
      {high > 0
        ? sides.map((side, nr) => (
            <div class="lanes" key={nr}>
              <div class="lane-names disk-name" aria-hidden="true">
                <Letter side={nr} /> <span dir="auto">{format.short(report.sides[nr]?.label ?? "", 24)}</span>
                <span class="hint">
                  LBA {format.size(range[0] * 512)} to {format.size(range[1] * 512)}
                </span>
              </div>
              <Canvas
                height={120}
                label={`${"AB"[nr]}: LBA of requests over time, from sector ${range[0]} to ${range[1]}`}
                data={{ disk: nr, low: range[0], high: range[1] }}
                listen={[view, focus, align]}
                draw={(context, width, height) =>
                  paintDisk(
                    context,
                    width,
                    height,
                    side,
                    nr,
                    viewOf(view.get(), align.get().origin[nr] ?? 0),
                    range,
                    focus.get(),
                    colour,
                  )
                }
              />
            </div>
          ))
        : null}
      <Ribbons report={report} whole={Math.max(1000, ...sides.map((side) => side.timeline.elapsed_ns))} />
    </Section>
  );
}

const LIFE = [
  ["q", "g", "held before a request was got"],
  ["g", "i", "in the plug"],
  ["i", "d", "in the queue"],
  ["d", "c", "at the device"],
] as const;

/** Q G I D C of each request: of the call in focus, or the first ones in view. */
export function Requests({ report, sides }: { report: Report; sides: readonly Side[] }) {
  const view = useValue(shared.view, 150);
  const align = useValue(shared.align, 150);
  const focus = useValue(shared.focus);
  const pinned = focus?.pinned ? focus : null;
  const shown = sides.map((side, nr) => {
    if (pinned && pinned.side === nr) return side.ofCall(pinned.call).device.slice(0, 28);
    const of = side.lanes.device;
    const own = viewOf(view, align.origin[nr] ?? 0);
    const ids: number[] = [];
    for (let k = 0; k < of.id.length && ids.length < 20; k++)
      if (at(of.end, k) >= own.from && at(of.start, k) <= own.to) ids.push(at(of.id, k));
    return ids;
  });
  return (
    <Section
      id="requests"
      title="Requests"
      lead="Q the first bio is queued, G a request is got, I it is inserted or let go of the plug, D it goes to the device, C it is completed."
    >
      <Sizes report={report} />
      <h3>
        {pinned
          ? `Lifelines of the requests of call ${sides[pinned.side]?.timeline.calls.nr[pinned.call] ?? ""}`
          : "Lifelines of the first requests in view"}
      </h3>
      <Legend
        of={[
          ["plug", "Q to G to I: held in the plug"],
          ["queue", "I to D: in the queue"],
          ["device", "D to C: at the device"],
        ]}
      />
      <div class="pair">
        {sides.map((side, nr) => (
          <Lifelines key={nr} side={side} nr={nr} ids={shown[nr] ?? []} />
        ))}
      </div>
    </Section>
  );
}

function Lifelines({ side, nr, ids }: { side: Side; nr: number; ids: number[] }) {
  const { requests } = side.timeline;
  const [box, wide] = useWidth<HTMLDivElement>();
  if (ids.length === 0) {
    return (
      <p>
        <Letter side={nr} /> no requests in view
      </p>
    );
  }
  const known = ids.flatMap((id) =>
    [at(requests.q, id), at(requests.d, id), at(requests.c, id)].filter((at) => at >= 0),
  );
  const [from, to] = [Math.min(...known), Math.max(...known)];
  const [W, row, left] = [Math.max(wide, 120), 14, 118];
  const x = linear(from, to, left, W - 8);
  return (
    <figure>
      <figcaption>
        <Letter side={nr} /> {format.time(from, 4)} to {format.time(to, 4)}
      </figcaption>
      <div ref={box}>
        <svg
          class="chart"
          width={W}
          height={ids.length * row + 6}
          role="img"
          aria-label={`${"AB"[nr]}: lifelines of ${ids.length} requests`}
          data-chart={`life-${nr}`}
        >
          {ids.map((id, i) => (
            <g key={id} transform={`translate(0 ${i * row + 3})`}>
              <text class="tick" x={left - 6} y={row - 4} text-anchor="end">
                {`${format.size(at(requests.sectors, id) * 512)} @${at(requests.sector, id)}`}
              </text>
              {LIFE.map(([begin, end, words]) => {
                const [start, stop] = [at(requests[begin], id), at(requests[end], id)];
                if (start < 0 || stop < 0 || stop <= start) return null;
                return (
                  <rect
                    key={begin}
                    class={`life life-${begin}`}
                    x={x(start)}
                    width={Math.max(1, x(stop) - x(start))}
                    y={begin === "d" ? 1 : 4}
                    height={begin === "d" ? row - 3 : row - 9}
                  >
                    <title>{`${words}: ${format.time(stop - start)}`}</title>
                  </rect>
                );
              })}
            </g>
          ))}
        </svg>
      </div>
      <Numbers
        id={`life-${nr}`}
        caption={`${"AB"[nr]}: Q G I D C of the requests above, ns`}
        columns={["sector", "sectors", "Q", "G", "I", "D", "C", "call"]}
        rows={() =>
          ids.map((id) => [
            at(requests.sector, id),
            at(requests.sectors, id),
            at(requests.q, id),
            at(requests.g, id),
            at(requests.i, id),
            at(requests.d, id),
            at(requests.c, id),
            at(requests.call, id),
          ])
        }
      />
    </figure>
  );
}
