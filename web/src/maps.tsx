// Maps of space: the strip of each file with what became of its pages, the disk with seeks over time; and requests: their
// lifelines from Q to C.

import { useRef, useState } from "preact/hooks";
import { Canvas, colour } from "./canvas.tsx";
import { Ribbons, Sizes } from "./charts.tsx";
import type { Report } from "./data.ts";
import * as format from "./format.ts";
import { type Side, STATES } from "./lanes.ts";
import { hatch, paintDisk } from "./paint.ts";
import { Legend, Letter, Numbers, Section, Text } from "./parts.tsx";
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

export function FileMaps({ report, sides }: { report: Report; sides: readonly Side[] }) {
  const files = Math.max(0, ...sides.map((side) => side.timeline.map.length));
  if (files === 0) return null;
  return (
    <Section
      id="files"
      title="File map"
      lead="Each file from its first page to its last: the fate of most pages of a strip. Below each strip, the read-ahead windows of the parts shown in the timeline."
    >
      <Legend of={STATES.map((words, nr) => [STATE_COLOURS[nr], words] as const)} />
      {Array.from({ length: Math.min(files, 24) }, (_, nr) => (
        <div class="file" key={nr}>
          {sides.map((side, of) =>
            side.timeline.map[nr] ? <FileStrip key={of} report={report} side={side} nr={of} map={nr} /> : null,
          )}
        </div>
      ))}
      {files > 24 ? <p class="hint">And {files - 24} more files; the raw data has all.</p> : null}
    </Section>
  );
}

function FileStrip({ side, nr, map }: { report: Report; side: Side; nr: number; map: number }) {
  const of = side.timeline.map[map];
  const file = side.timeline.files[of.file];
  const [words, say] = useState("");
  const box = useRef<HTMLDivElement>(null);
  const total = Math.max(1, of.state.length * of.strip_pages);
  const counts = STATES.map((_, state) => of.state.filter((one) => one === state).length);
  const summary = STATES.map((name, state) =>
    counts[state] > 0 ? `${format.percent(counts[state] / of.state.length)} ${name}` : "",
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
            `pages ${strip * of.strip_pages} to ${(strip + 1) * of.strip_pages - 1}: ${STATES[of.state[strip]] ?? "unknown"}${by ? `, by ${format.short(by, 60)}` : ""}`,
          );
        }}
        onPointerLeave={() => say("")}
      >
        <Canvas
          height={34}
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
            const { windows } = side.timeline;
            context.fillStyle = colour("lane");
            context.fillRect(0, 22, width, 12);
            for (let w = 0; w < windows.at.length; w++) {
              if (windows.file[w] !== of.file) continue;
              const left = x(windows.first[w]);
              context.fillStyle = colour(w % 2 === 0 ? "window" : "window-soft");
              context.fillRect(left, w % 2 === 0 ? 22 : 28, Math.max(1, x(windows.first[w] + windows.nr[w]) - left), 6);
            }
          }}
        />
      </div>
      <p class="hint say">{words || " "}</p>
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
    </div>
  );
}

export function Disk({ report, sides, whole }: { report: Report; sides: readonly Side[]; whole: View }) {
  const { view, focus } = shared;
  let low = Number.POSITIVE_INFINITY;
  let high = 0;
  for (const side of sides) {
    const { sector, sectors } = side.timeline.requests;
    for (let i = 0; i < sector.length; i++) {
      if (sector[i] < low) low = sector[i];
      if (sector[i] + sectors[i] > high) high = sector[i] + sectors[i];
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
                <Letter side={nr} /> <span dir="auto">{format.short(report.sides[nr].label, 24)}</span>
                <span class="hint">
                  LBA {format.size(range[0] * 512)} to {format.size(range[1] * 512)}
                </span>
              </div>
              <Canvas
                height={120}
                label={`${"AB"[nr]}: LBA of requests over time, from sector ${range[0]} to ${range[1]}`}
                data={{ disk: nr, low: range[0], high: range[1] }}
                listen={[view, focus]}
                draw={(context, width, height) =>
                  paintDisk(context, width, height, side, nr, view.get(), range, focus.get(), colour)
                }
              />
            </div>
          ))
        : null}
      <Ribbons report={report} whole={whole.to} />
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
  const focus = useValue(shared.focus);
  const pinned = focus?.pinned ? focus : null;
  const shown = sides.map((side, nr) => {
    if (pinned && pinned.side === nr) return side.ofCall(pinned.call).device.slice(0, 28);
    const of = side.lanes.device;
    const ids: number[] = [];
    for (let k = 0; k < of.id.length && ids.length < 20; k++)
      if (of.end[k] >= view.from && of.start[k] <= view.to) ids.push(of.id[k]);
    return ids;
  });
  return (
    <Section
      id="requests"
      title="Requests"
      lead="Q the first bio is queued, G a request is got, I it is inserted or let go of the plug, D it goes to the device, C it is completed."
    >
      <Sizes report={report} />
      <h3>{pinned ? `Lifelines of the requests of call ${pinned.call}` : "Lifelines of the first requests in view"}</h3>
      <Legend
        of={[
          ["plug", "Q to G to I: held in the plug"],
          ["queue", "I to D: in the queue"],
          ["device", "D to C: at the device"],
        ]}
      />
      <div class="pair">
        {sides.map((side, nr) => (
          <Lifelines key={nr} side={side} nr={nr} ids={shown[nr]} />
        ))}
      </div>
    </Section>
  );
}

function Lifelines({ side, nr, ids }: { side: Side; nr: number; ids: number[] }) {
  const { requests } = side.timeline;
  if (ids.length === 0) {
    return (
      <p>
        <Letter side={nr} /> no requests in view
      </p>
    );
  }
  const known = ids.flatMap((id) => [requests.q[id], requests.d[id], requests.c[id]].filter((at) => at >= 0));
  const [from, to] = [Math.min(...known), Math.max(...known)];
  const [W, row, left] = [620, 14, 112];
  const x = linear(from, to, left, W - 8);
  return (
    <figure>
      <figcaption>
        <Letter side={nr} /> {format.time(from, 4)} to {format.time(to, 4)}
      </figcaption>
      <svg
        class="chart"
        viewBox={`0 0 ${W} ${ids.length * row + 6}`}
        role="img"
        aria-label={`${"AB"[nr]}: lifelines of ${ids.length} requests`}
        data-chart={`life-${nr}`}
      >
        {ids.map((id, i) => (
          <g key={id} transform={`translate(0 ${i * row + 3})`}>
            <text class="tick" x={left - 6} y={row - 4} text-anchor="end">
              {`${format.size(requests.sectors[id] * 512)} @${requests.sector[id]}`}
            </text>
            {LIFE.map(([begin, end, words]) => {
              const [start, stop] = [requests[begin][id], requests[end][id]];
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
      <Numbers
        id={`life-${nr}`}
        caption={`${"AB"[nr]}: Q G I D C of the requests above, ns`}
        columns={["sector", "sectors", "Q", "G", "I", "D", "C", "call"]}
        rows={() =>
          ids.map((id) => [
            requests.sector[id],
            requests.sectors[id],
            requests.q[id],
            requests.g[id],
            requests.i[id],
            requests.d[id],
            requests.c[id],
            requests.call[id],
          ])
        }
      />
    </figure>
  );
}
