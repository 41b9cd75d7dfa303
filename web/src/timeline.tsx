// The timeline: swim lanes of both sides over one clock, the overview that moves it, and the list of what a call led to.

import { useMemo, useRef, useState } from "preact/hooks";
import { Canvas, colour } from "./canvas.tsx";
import type { Report } from "./data.ts";
import * as format from "./format.ts";
import { DIRS, hit, LANE_NAMES, LANE_TITLES, type LaneName, OPS, PAGE_KINDS, type Side } from "./lanes.ts";
import { HEAD, layout, paintOverview, paintTimeline, stallsIn } from "./paint.ts";
import { Legend, Letter, Numbers, Section, Text } from "./parts.tsx";
import { clamped, linear, panned, union, type View, zoomed } from "./scale.ts";
import { shared, useValue } from "./store.ts";

const LEAST = 500;

export function Timeline({
  report,
  sides,
  whole,
  first,
}: {
  report: Report;
  sides: readonly Side[];
  whole: View;
  first: View;
}) {
  const [tip, setTip] = useState<{ x: number; y: number; text: string } | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const drag = useRef<{ x: number; view: View; moved: boolean } | null>(null);
  const plan = useMemo(() => layout(sides.length), [sides]);
  const { view, focus } = shared;
  const show = (next: View) => view.set(clamped(next, whole));

  const width = () => Math.max(1, box.current?.clientWidth ?? 1);
  const at = (event: MouseEvent) => {
    const rect = (box.current as HTMLDivElement).getBoundingClientRect();
    return { px: event.clientX - rect.left, py: event.clientY - rect.top };
  };
  const find = (px: number, py: number): { side: number; lane: LaneName; id: number; call: number } | null => {
    const place = plan.places.find((of) => py >= of.top && py < of.top + of.height);
    if (!place) return null;
    const of = sides[place.side].lanes[place.lane];
    const row = Math.min(of.rows - 1, Math.floor(((py - place.top) / place.height) * of.rows));
    const now = view.get();
    const perPixel = (now.to - now.from) / width();
    const k = hit(of, now.from + px * perPixel, row, 4 * perPixel);
    return k < 0 ? null : { side: place.side, lane: place.lane, id: of.id[k], call: of.call[k] };
  };
  const choose = (side: number, call: number, pinned: boolean) => focus.set({ side, call, pinned });
  const goTo = (side: number, call: number) => {
    const { calls } = sides[side].timeline;
    const now = view.get();
    const span = now.to - now.from;
    if (calls.start[call] < now.from || calls.end[call] > now.to) {
      show({ from: calls.start[call] - span * 0.1, to: calls.start[call] + span * 0.9 });
    }
    choose(side, call, true);
  };
  const difference = sides.findIndex((side) => side.timeline.first_difference != null);
  const toDifference = () => {
    if (difference < 0) return;
    const call = sides[difference].timeline.first_difference as number;
    const { calls } = sides[difference].timeline;
    if (call >= calls.start.length) return;
    const other = sides[1 - difference]?.timeline;
    const far =
      other && call < other.calls.end.length ? Math.max(calls.end[call], other.calls.end[call]) : calls.end[call];
    const near =
      other && call < other.calls.start.length
        ? Math.min(calls.start[call], other.calls.start[call])
        : calls.start[call];
    const span = Math.max(far - near, LEAST) * 1.5;
    show({ from: near - span / 6, to: near - span / 6 + span });
    const slower =
      other &&
      call < other.calls.end.length &&
      other.calls.end[call] - other.calls.start[call] > calls.end[call] - calls.start[call];
    choose(slower ? 1 - difference : difference, call, true);
  };
  const step = (by: number) => {
    const now = focus.get();
    const side = now?.side ?? Math.max(0, sides.length - 1);
    const order = sides[side].lanes.calls;
    if (order.id.length === 0) return;
    let next = 0;
    if (now) next = order.id.indexOf(now.call) + by;
    else while (next + 1 < order.id.length && order.start[next] < view.get().from) next++;
    if (next >= 0 && next < order.id.length) goTo(side, order.id[next]);
  };
  const otherSide = () => {
    const now = focus.get();
    if (!now || sides.length < 2) return;
    const side = 1 - now.side;
    if (now.call < sides[side].timeline.calls.start.length) goTo(side, now.call);
  };
  const middle = () => (view.get().from + view.get().to) / 2;
  const span = () => view.get().to - view.get().from;

  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys: Record<string, () => void> = {
      ArrowLeft: () => show(panned(view.get(), -span() * 0.15, whole)),
      ArrowRight: () => show(panned(view.get(), span() * 0.15, whole)),
      ArrowUp: otherSide,
      ArrowDown: otherSide,
      "+": () => view.set(zoomed(view.get(), 0.7, middle(), whole, LEAST)),
      "=": () => view.set(zoomed(view.get(), 0.7, middle(), whole, LEAST)),
      "-": () => view.set(zoomed(view.get(), 1 / 0.7, middle(), whole, LEAST)),
      Home: () => show({ from: whole.from, to: whole.from + span() }),
      End: () => show({ from: whole.to - span(), to: whole.to }),
      "0": () => show(first),
      n: () => step(1),
      p: () => step(-1),
      d: toDifference,
      Escape: () => focus.set(null),
    };
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };
  const onWheel = (event: WheelEvent) => {
    const inUse = event.ctrlKey || event.metaKey || document.activeElement === box.current;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      show(panned(view.get(), ((event.deltaX || event.deltaY) / width()) * span(), whole));
    } else if (inUse) {
      event.preventDefault();
      const { px } = at(event);
      const now = view.get();
      const factor = Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.002);
      view.set(zoomed(now, factor, now.from + (px / width()) * (now.to - now.from), whole, LEAST));
    }
  };
  const onMove = (event: PointerEvent) => {
    const { px, py } = at(event);
    const held = drag.current;
    if (held) {
      if (Math.abs(event.clientX - held.x) > 3) held.moved = true;
      if (held.moved)
        show(panned(held.view, (-(event.clientX - held.x) / width()) * (held.view.to - held.view.from), whole));
      return;
    }
    const found = find(px, py);
    setTip(found ? { x: px, y: py, text: describe(sides[found.side], found.lane, found.id) } : null);
    const now = focus.get();
    if (now?.pinned) return;
    if (found && found.call >= 0) {
      if (now?.side !== found.side || now.call !== found.call) choose(found.side, found.call, false);
    } else if (now) focus.set(null);
  };
  const onUp = (event: PointerEvent) => {
    const held = drag.current;
    drag.current = null;
    if (!held || held.moved) return;
    const { px, py } = at(event);
    const found = find(px, py);
    if (found && found.call >= 0) choose(found.side, found.call, true);
    else focus.set(null);
  };

  return (
    <Section
      id="timeline"
      title="The timeline"
      lead={
        <>
          One run of each side, the one with the median time, on one clock. Point at a call: its pages, windows, plugs
          and requests light up through all lanes. <b class="stall-word">Hatched red</b> is a stall: the device has
          nothing to do while a request waits in the plug or the queue.
        </>
      }
    >
      <div class="tools" role="group" aria-label="Timeline view">
        <button type="button" id="first-difference" onClick={toDifference} disabled={difference < 0}>
          First difference
        </button>
        <button type="button" onClick={() => step(-1)}>
          Previous call
        </button>
        <button type="button" onClick={() => step(1)}>
          Next call
        </button>
        <button
          type="button"
          aria-label="Zoom in"
          onClick={() => view.set(zoomed(view.get(), 0.5, middle(), whole, LEAST))}
        >
          +
        </button>
        <button
          type="button"
          aria-label="Zoom out"
          onClick={() => view.set(zoomed(view.get(), 2, middle(), whole, LEAST))}
        >
          −
        </button>
        <button type="button" onClick={() => show(first)}>
          First view
        </button>
        <button type="button" onClick={() => show(whole)}>
          Whole run
        </button>
        <Range />
      </div>
      <Overview sides={sides} whole={whole} />
      <div class="lanes">
        <div class="lane-names" aria-hidden="true" style={{ height: `${plan.height}px` }}>
          {plan.heads.map((top, nr) => (
            <div key={`h${top}`} class="lane-side" style={{ top: `${top}px`, height: `${HEAD}px` }}>
              <Letter side={nr} /> <span dir="auto">{format.short(report.sides[nr].label, 24)}</span>
            </div>
          ))}
          {plan.places.map((place) => (
            <div
              key={`${place.side}${place.lane}`}
              class="lane-name"
              style={{ top: `${place.top}px`, height: `${place.height}px` }}
            >
              {LANE_TITLES[place.lane]}
            </div>
          ))}
        </div>
        <div
          ref={box}
          class="lane-box"
          id="lanes"
          role="application"
          tabIndex={0}
          aria-label={`Timeline of ${sides.length === 2 ? "A above B" : "the run"} with the lanes ${LANE_NAMES.map((name) => LANE_TITLES[name]).join(", ")}`}
          aria-describedby="lane-help"
          onKeyDown={onKey}
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            box.current?.focus({ preventScroll: true });
            drag.current = { x: event.clientX, view: view.get(), moved: false };
            box.current?.setPointerCapture(event.pointerId);
            setTip(null);
          }}
          onPointerMove={onMove}
          onPointerUp={onUp}
          onPointerCancel={() => {
            drag.current = null;
          }}
          onPointerLeave={() => {
            setTip(null);
            if (!drag.current && !focus.get()?.pinned) focus.set(null);
          }}
        >
          <Canvas
            height={plan.height}
            label="Swim lanes; the list below has the same numbers"
            hidden
            listen={[view, focus]}
            onReady={(canvas) => canvas.addEventListener("wheel", onWheel, { passive: false })}
            draw={(context, wide) => {
              const now = view.get();
              const painted = paintTimeline(context, wide, sides, now, focus.get(), colour);
              if (box.current) {
                const { dataset } = box.current;
                dataset.from = String(now.from);
                dataset.to = String(now.to);
                dataset.painted = String(painted);
                sides.forEach((side, nr) => {
                  const stalled = stallsIn(side, now);
                  dataset[`stalls${nr}`] = String(stalled.count);
                  dataset[`stalled${nr}`] = String(stalled.ns);
                });
              }
            }}
          />
          {tip ? (
            <div class="tip" style={tipPlace(tip, width())}>
              {tip.text}
            </div>
          ) : null}
        </div>
      </div>
      <p id="lane-help" class="hint">
        Drag to move; click the lanes, then turn the wheel to zoom (or hold Ctrl). Keys: <kbd>←</kbd> <kbd>→</kbd> move,{" "}
        <kbd>+</kbd> <kbd>−</kbd> zoom, <kbd>Home</kbd> <kbd>End</kbd> begin and end, <kbd>n</kbd> <kbd>p</kbd> next and
        previous call, <kbd>↑</kbd> <kbd>↓</kbd> the same call on the other side, <kbd>d</kbd> first difference,{" "}
        <kbd>0</kbd> first view, <kbd>Esc</kbd> let go.
      </p>
      <Legend
        of={[
          ["read", "read"],
          ["write", "write"],
          ["sync", "sync"],
          ["hit", "pages hit"],
          ["miss", "pages missed"],
          ["added", "pages added"],
          ["removed", "pages removed"],
          ["window", "read-ahead window: first page + pages, ▸ async marker; below: used, unused, removed unused"],
          ["waste", "never used"],
          ["plug", "plug: requests let go"],
          ["queue", "in the queue"],
          ["stall", "stall"],
        ]}
      />
      <CallDetails report={report} sides={sides} goTo={goTo} />
      <LaneTables sides={sides} />
    </Section>
  );
}

function tipPlace(tip: { x: number; y: number }, width: number) {
  return tip.x > width / 2
    ? { right: `${width - tip.x + 12}px`, top: `${tip.y + 14}px` }
    : { left: `${tip.x + 12}px`, top: `${tip.y + 14}px` };
}

function Range() {
  const view = useValue(shared.view, 60);
  return (
    <span class="range" id="range" data-from={view.from} data-to={view.to}>
      {format.time(view.from, 4)} to {format.time(view.to, 4)} ({format.time(view.to - view.from)})
    </span>
  );
}

function Overview({ sides, whole }: { sides: readonly Side[]; whole: View }) {
  const grip = useRef(false);
  const box = useRef<HTMLDivElement>(null);
  const { view } = shared;
  const move = (event: PointerEvent) => {
    const rect = (box.current as HTMLDivElement).getBoundingClientRect();
    const x = linear(whole.from, whole.to, 0, rect.width);
    const at = x.invert(event.clientX - rect.left);
    const span = view.get().to - view.get().from;
    view.set(clamped({ from: at - span / 2, to: at + span / 2 }, whole));
  };
  return (
    <div class="overview">
      <div class="overview-name" aria-hidden="true">
        whole run: depth at the device, <b class="stall-word">stalls</b>
      </div>
      <div
        ref={box}
        class="overview-box"
        onPointerDown={(event) => {
          grip.current = true;
          box.current?.setPointerCapture(event.pointerId);
          move(event);
        }}
        onPointerMove={(event) => grip.current && move(event)}
        onPointerUp={() => {
          grip.current = false;
        }}
        onPointerCancel={() => {
          grip.current = false;
        }}
      >
        <Canvas
          height={26 * sides.length}
          label="The whole run: requests at the device and stalls; a frame marks the part in the lanes below. The keys of the lanes move it."
          listen={[view]}
          draw={(context, width, height) => paintOverview(context, width, height, sides, whole, view.get(), colour)}
        />
      </div>
    </div>
  );
}

/** One item in words. */
export function describe(side: Side, lane: LaneName, id: number): string {
  const { calls, pages, windows, plugs, requests, unplug_causes, window_kinds, contents } = side.timeline;
  const t = (at: number) => format.time(at, 5);
  switch (lane) {
    case "calls":
      return `call ${id}: ${OPS[calls.op[id]] ?? "call"} ${format.size(calls.bytes[id])} at ${format.size(calls.offset[id])}, ${t(calls.start[id])} to ${t(calls.end[id])}: ${format.time(calls.end[id] - calls.start[id])}`;
    case "pages":
      return `pages ${pages.first[id]} +${pages.nr[id]} ${PAGE_KINDS[pages.kind[id]] ?? ""} at ${t(pages.at[id])}`;
    case "windows": {
      const marker = windows.marker[id] < 0 ? "no async marker" : `async marker at ${windows.marker[id]}`;
      return `window ${windows.first[id]} +${windows.nr[id]} pages (${window_kinds[windows.kind[id]] ?? "read-ahead"}), ${marker}; ${windows.used[id]} used, ${windows.unused[id]} never used, ${windows.thrashed[id]} removed before use; at ${t(windows.at[id])}`;
    }
    case "plug":
      return `plug from ${t(plugs.start[id])} to ${t(plugs.end[id])}: ${format.time(plugs.end[id] - plugs.start[id])}, lets ${plugs.nr[id]} requests go (${unplug_causes[plugs.cause[id]] ?? "unknown"})`;
    default: {
      const points = (["q", "g", "i", "d", "c"] as const)
        .filter((name) => requests[name][id] >= 0)
        .map((name) => `${name.toUpperCase()} ${t(requests[name][id])}`);
      return `${DIRS[requests.dir[id]] ?? "request"} ${format.size(requests.sectors[id] * 512)} at sector ${requests.sector[id]} (${contents[requests.content[id]] ?? "data"}, ${requests.bios[id]} bios, depth ${requests.depth[id]}): ${points.join(", ")}`;
    }
  }
}

const inside = (intervals: readonly [number, number][], from: number, to: number) =>
  intervals.reduce((sum, [start, end]) => sum + Math.max(0, Math.min(end, to) - Math.max(start, from)), 0);

/** Consequences of the call in focus. */
function CallDetails({
  report,
  sides,
  goTo,
}: {
  report: Report;
  sides: readonly Side[];
  goTo: (side: number, call: number) => void;
}) {
  const focus = useValue(shared.focus);
  if (!focus) {
    return (
      <div class="call-details" id="call-details" aria-live="polite">
        <p class="hint">No call chosen. Point at one, or press n in the lanes.</p>
      </div>
    );
  }
  const side = sides[focus.side];
  const { calls, files, windows, pages, plugs, requests } = side.timeline;
  const of = side.ofCall(focus.call);
  const [from, to] = [calls.start[focus.call], calls.end[focus.call]];
  const counts = [0, 0, 0, 0];
  for (const id of of.pages) counts[pages.kind[id]] += pages.nr[id];
  const device = union(of.device.map((id) => [requests.d[id], requests.c[id]] as const));
  const busy = device.reduce((sum, [start, end]) => sum + end - start, 0);
  const held = of.plug.reduce((sum, id) => sum + plugs.end[id] - plugs.start[id], 0);
  const waiting = union(of.device.map((id) => [requests.q[id], requests.d[id]] as const).filter(([q]) => q >= 0));
  const stalled = inside(side.stalls, from, to);
  const other = sides[1 - focus.side]?.timeline.calls;
  const same =
    other &&
    focus.call < other.start.length &&
    other.offset[focus.call] === calls.offset[focus.call] &&
    other.op[focus.call] === calls.op[focus.call];
  const line = (name: string, title: string, words: string, value: number) => (
    <div class="fact" key={name}>
      <dt>{title}</dt>
      <dd data-fact={name} data-v={value}>
        {words}
      </dd>
    </div>
  );
  const some = (ids: number[], lane: LaneName) => (
    <ul class="items">
      {ids.slice(0, 12).map((id) => (
        <li key={id} data-lane={lane} data-id={id}>
          {describe(side, lane, id)}
        </li>
      ))}
      {ids.length > 12 ? <li>and {ids.length - 12} more</li> : null}
    </ul>
  );
  return (
    <div class="call-details" id="call-details" aria-live="polite" data-side={focus.side} data-call={focus.call}>
      <h3>
        <Letter side={focus.side} /> call {focus.call}: {OPS[calls.op[focus.call]] ?? "call"} of{" "}
        {format.size(calls.bytes[focus.call])} at {format.size(calls.offset[focus.call])} of{" "}
        <Text of={files[calls.file[focus.call]]?.name ?? "a file"} />
      </h3>
      <dl class="facts-row">
        {line("duration", "takes", format.time(to - from), to - from)}
        {line(
          "pages",
          "pages",
          `${counts[1]} hit, ${counts[2]} missed, ${counts[0]} added`,
          counts[1] + counts[2] + counts[0],
        )}
        {line(
          "windows",
          "read-ahead windows",
          `${of.windows.length} (${of.windows.reduce((sum, id) => sum + windows.nr[id], 0)} pages)`,
          of.windows.length,
        )}
        {line("plug", "plugged", `${of.plug.length} plugs, ${format.time(held)}`, of.plug.length)}
        {line(
          "requests",
          "requests",
          `${of.device.length}, waiting ${format.time(waiting.reduce((sum, [q, d]) => sum + d - q, 0))}`,
          of.device.length,
        )}
        {line("device", "device busy for it", format.time(busy), busy)}
        {line("stalled", "stalled meanwhile", format.time(stalled), stalled)}
      </dl>
      {same ? (
        <p>
          The same call in <Letter side={1 - focus.side} /> takes{" "}
          {format.time(other.end[focus.call] - other.start[focus.call])}.{" "}
          <button type="button" class="link" onClick={() => goTo(1 - focus.side, focus.call)}>
            Show it
          </button>
        </p>
      ) : null}
      <details open={of.windows.length + of.plug.length + of.device.length <= 12}>
        <summary>
          All of it: {of.windows.length} windows, {of.plug.length} plugs, {of.device.length} requests
        </summary>
        {some(of.windows, "windows")}
        {some(of.plug, "plug")}
        {some(of.device, "device")}
      </details>
      <p class="hint">
        {report.sides[focus.side].simulated ? "Simulated" : "Measured"}, run with seed {side.timeline.seed}.
      </p>
    </div>
  );
}

/** The lanes in view, as tables. */
function LaneTables({ sides }: { sides: readonly Side[] }) {
  const view = useValue(shared.view, 150);
  return (
    <details class="numbers" data-numbers="lanes">
      <summary>Numbers: the lanes in view, as tables</summary>
      <div class="tables">
        {sides.map((side, nr) =>
          LANE_NAMES.map((name) => {
            const lane = side.lanes[name];
            const rows = () => {
              const out: (number | string)[][] = [];
              for (let k = 0; k < lane.id.length; k++) {
                if (lane.start[k] > view.to) break;
                if (lane.end[k] < view.from) continue;
                out.push([lane.id[k], lane.start[k], lane.end[k], lane.call[k], describe(side, name, lane.id[k])]);
              }
              return out;
            };
            return (
              <Numbers
                key={`${nr}${name}`}
                id={`lane-${nr}-${name}`}
                caption={`${"AB"[nr]}: ${LANE_TITLES[name]} in view`}
                columns={["number", "from, ns", "to, ns", "call", "what"]}
                rows={rows}
                most={300}
              />
            );
          }),
        )}
      </div>
    </details>
  );
}
