// The timeline: swim lanes of both sides over aligned clocks, the overview that moves them, and the list of what a call led
// to. Its first view is the typical call of each side, each from its own zero.

import { useMemo, useRef, useState } from "preact/hooks";
import { ALIGNS, type Align, aligned, found, rowOf, typicalRows, viewOf, wholeOf } from "./align.ts";
import { Canvas, colour } from "./canvas.tsx";
import { startOf } from "./course.tsx";
import { at, type Report } from "./data.ts";
import * as format from "./format.ts";
import { DIRS, firstView, hit, LANE_NAMES, LANE_TITLES, type LaneName, OPS, PAGE_KINDS, type Side } from "./lanes.ts";
import { HEAD, layout, paintOverview, paintTimeline, stallsIn } from "./paint.ts";
import { Legend, Letter, Numbers, Section, Text } from "./parts.tsx";
import { coverage } from "./pyramid.ts";
import { clamped, linear, panned, union, type View, zoomed } from "./scale.ts";
import { served } from "./serve.tsx";
import { shared, useValue } from "./store.ts";

const LEAST = 500;

export function Timeline({
  report,
  sides,
  first,
  unfold,
  unfolded,
}: {
  report: Report;
  sides: readonly Side[];
  /** The first view, and its alignment. */
  first: { view: View; by: Align };
  /** Gives each thread a row, or not. */
  unfold: (each: boolean) => void;
  unfolded: boolean;
}) {
  const [tip, setTip] = useState<{ x: number; y: number; text: string } | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const drag = useRef<{ x: number; view: View; moved: boolean; range: number | null } | null>(null);
  const [range, setRange] = useState<[number, number] | null>(null);
  const fingers = useRef(new Map<number, number>());
  const pinch = useRef<[number, number] | null>(null);
  const plan = useMemo(() => layout(sides), [sides]);
  const { view, focus, align } = shared;
  const now = useValue(align);
  const origin = (side: number) => align.get().origin[side] ?? 0;
  const own = (side: number) => viewOf(view.get(), origin(side));
  const whole = () => wholeOf(report, align.get().origin);
  const show = (next: View) => view.set(clamped(next, whole()));
  const slow = slowSide(report);

  const width = () => Math.max(1, box.current?.clientWidth ?? 1);
  const pointer = (event: MouseEvent) => {
    const rect = (box.current as HTMLDivElement).getBoundingClientRect();
    return { px: event.clientX - rect.left, py: event.clientY - rect.top };
  };
  const find = (px: number, py: number): { side: number; lane: LaneName; id: number; call: number } | null => {
    const place = plan.places.find((of) => py >= of.top && py < of.top + of.height);
    if (!place) return null;
    const of = at(sides, place.side).lanes[place.lane];
    const row = Math.min(of.rows - 1, Math.floor(((py - place.top) / place.height) * of.rows));
    const shown = own(place.side);
    const perPixel = (shown.to - shown.from) / width();
    const k = hit(of, shown.from + px * perPixel, row, 4 * perPixel);
    return k < 0 ? null : { side: place.side, lane: place.lane, id: at(of.id, k), call: at(of.call, k) };
  };
  const choose = (side: number, call: number, pinned: boolean) => focus.set({ side, call, pinned });
  const goTo = (side: number, call: number) => {
    const { calls } = at(sides, side).timeline;
    const shown = own(side);
    const [start, end] = [at(calls.start, call), at(calls.end, call)];
    if (start < shown.from || end > shown.to) {
      const span = Math.max(shown.to - shown.from, (end - start) * 1.2);
      const from = start - origin(side) - span * 0.1;
      show({ from, to: from + span });
    }
    choose(side, call, true);
  };
  /** Another alignment, by the call in focus or the typical one; the view shows it whole. */
  const alignBy = (by: Align) => {
    const chosen = focus.get();
    const side = chosen && by !== "typical" ? chosen.side : slow;
    const row = chosen && by !== "typical" ? chosen.call : at(typicalRows(sides), side);
    const next = aligned(sides, by, side, row);
    align.set(next);
    if (by === "typical") view.set(firstView(sides, whole()));
    else if (row >= 0) {
      const { calls } = at(sides, side).timeline;
      const span = Math.max((at(calls.end, row) - at(calls.start, row)) * 1.1, LEAST);
      const from = at(calls.start, row) - (next.origin[side] ?? 0) - 0.03 * span;
      view.set({ from, to: from + span });
    }
  };
  const difference = sides.findIndex((side) => side.timeline.first_difference != null);
  const toDifference = () => {
    if (difference < 0) return;
    const rows = sides.map((side) => side.timeline.first_difference ?? 0);
    if (rows.some((row, nr) => row >= at(sides, nr).timeline.calls.start.length)) return;
    const starts = sides.map(({ timeline }, nr) => at(timeline.calls.start, at(rows, nr)));
    const took = sides.map(({ timeline }, nr) => at(timeline.calls.end, at(rows, nr)) - at(starts, nr));
    const span = Math.max(LEAST, ...took) * 1.2;
    align.set({ by: "call", origin: starts, note: "" });
    show({ from: -span / 12, to: span * (11 / 12) });
    const longest = took.indexOf(Math.max(...took));
    choose(longest, at(rows, longest), true);
  };
  const toOnset = () => {
    const side = sides.findIndex(({ timeline }) => timeline.course.onset?.at.row != null);
    const onset = sides[side]?.timeline.course.onset;
    if (!onset || onset.at.row == null) return;
    align.set(aligned(sides, "call", side, onset.at.row));
    const span = onset.at.took_ns * 3;
    show({ from: -span * 0.4, to: span * 0.6 });
    choose(side, onset.at.row, true);
  };
  const search = (words: string) => {
    const hit = found(sides, words);
    if (!hit) return align.set({ ...align.get(), note: `Nothing is found for ${format.short(words, 40)}` });
    align.set({ ...align.get(), note: hit.row < 0 ? `Call ${hit.nr} is not kept in detail` : "" });
    if (hit.row >= 0) return goTo(hit.side, hit.row);
    const start = startOf(at(sides, hit.side).timeline.course, hit.nr);
    const from = start - origin(hit.side) - span() / 2;
    show({ from, to: from + span() });
  };
  const step = (by: number) => {
    const now = focus.get();
    const side = now?.side ?? Math.max(0, sides.length - 1);
    const order = at(sides, side).lanes.calls;
    if (order.id.length === 0) return;
    let next = 0;
    if (now) next = order.id.indexOf(now.call) + by;
    else while (next + 1 < order.id.length && at(order.start, next) < own(side).from) next++;
    if (next >= 0 && next < order.id.length) goTo(side, at(order.id, next));
  };
  const otherSide = () => {
    const now = focus.get();
    if (!now || sides.length < 2) return;
    const side = 1 - now.side;
    const row = rowOf(at(sides, side), at(at(sides, now.side).timeline.calls.nr, now.call));
    if (row >= 0) goTo(side, row);
  };
  const toFirst = () => {
    align.set(aligned(sides, first.by, slow, at(typicalRows(sides), slow)));
    view.set(first.view);
  };
  const middle = () => (view.get().from + view.get().to) / 2;
  const span = () => view.get().to - view.get().from;

  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys: Record<string, () => void> = {
      ArrowLeft: () => show(panned(view.get(), -span() * 0.15, whole())),
      ArrowRight: () => show(panned(view.get(), span() * 0.15, whole())),
      a: () => show(panned(view.get(), -span() * 0.15, whole())),
      d: () => show(panned(view.get(), span() * 0.15, whole())),
      w: () => view.set(zoomed(view.get(), 0.7, middle(), whole(), LEAST)),
      s: () => view.set(zoomed(view.get(), 1 / 0.7, middle(), whole(), LEAST)),
      "?": () => {
        const help = document.getElementById("lane-help");
        if (help instanceof HTMLDetailsElement) help.open = !help.open;
      },
      ArrowUp: otherSide,
      ArrowDown: otherSide,
      "+": () => view.set(zoomed(view.get(), 0.7, middle(), whole(), LEAST)),
      "=": () => view.set(zoomed(view.get(), 0.7, middle(), whole(), LEAST)),
      "-": () => view.set(zoomed(view.get(), 1 / 0.7, middle(), whole(), LEAST)),
      Home: () => show({ from: whole().from, to: whole().from + span() }),
      End: () => show({ from: whole().to - span(), to: whole().to }),
      "0": toFirst,
      n: () => step(1),
      p: () => step(-1),
      f: toDifference,
      o: toOnset,
      t: () => alignBy("typical"),
      Escape: () => {
        focus.set(null);
        shared.lit.set(null);
      },
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
      show(panned(view.get(), ((event.deltaX || event.deltaY) / width()) * span(), whole()));
    } else if (inUse) {
      event.preventDefault();
      const { px } = pointer(event);
      const now = view.get();
      const factor = Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.002);
      view.set(zoomed(now, factor, now.from + (px / width()) * (now.to - now.from), whole(), LEAST));
    }
  };
  const onMove = (event: PointerEvent) => {
    const { px, py } = pointer(event);
    const held = drag.current;
    if (fingers.current.has(event.pointerId)) fingers.current.set(event.pointerId, px);
    if (fingers.current.size === 2 && pinch.current) {
      // Two fingers keep the times under them.
      const [one = 0, two = 0] = [...fingers.current.values()].sort((x, y) => x - y);
      const [from, to] = pinch.current;
      const perPixel = (to - from) / Math.max(8, two - one);
      const span = Math.max(LEAST, perPixel * width());
      show({ from: from - one * perPixel, to: from - one * perPixel + span });
      return;
    }
    if (held) {
      if (Math.abs(event.clientX - held.x) > 3) held.moved = true;
      if (held.range) setRange([held.range, px]);
      else if (held.moved)
        show(panned(held.view, (-(event.clientX - held.x) / width()) * (held.view.to - held.view.from), whole()));
      return;
    }
    const found = find(px, py);
    setTip(found ? { x: px, y: py, text: describe(at(sides, found.side), found.lane, found.id) } : null);
    const now = focus.get();
    if (now?.pinned) return;
    if (found && found.call >= 0) {
      if (now?.side !== found.side || now.call !== found.call) choose(found.side, found.call, false);
    } else if (now) focus.set(null);
  };
  const onUp = (event: PointerEvent) => {
    const held = drag.current;
    drag.current = null;
    fingers.current.delete(event.pointerId);
    if (fingers.current.size < 2) pinch.current = null;
    if (held?.range && range && Math.abs(range[1] - range[0]) > 4) {
      const now = view.get();
      const time = (px: number) => now.from + (px / width()) * (now.to - now.from);
      show({ from: time(Math.min(...range)), to: time(Math.max(...range)) });
    }
    setRange(null);
    if (!held || held.moved) return;
    const { px, py } = pointer(event);
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
          {now.by === "typical"
            ? `A typical call of ${sides.length === 2 ? "each side, each from its own zero" : "the run"}: where half of the time goes by. `
            : "One run of each side, the one with the median time. "}
          Point at a call: what it led to lights up. <b class="stall-word">Red</b> is a stall: the device has nothing to
          do while a request waits.
        </>
      }
    >
      <div class="tools" role="group" aria-label="Timeline view">
        <fieldset class="aligns">
          <legend>Align</legend>
          {(Object.keys(ALIGNS) as Align[]).map((by) => (
            <button
              key={by}
              type="button"
              data-align={by}
              aria-pressed={now.by === by}
              disabled={by === "typical" && typicalRows(sides).every((row) => row < 0)}
              onClick={() => alignBy(by)}
            >
              {ALIGNS[by]}
            </button>
          ))}
        </fieldset>
        <button type="button" id="first-difference" onClick={toDifference} disabled={difference < 0}>
          First difference
        </button>
        {sides.some(({ timeline }) => timeline.course.onset?.at.row != null) ? (
          <button type="button" id="onset" onClick={toOnset}>
            Onset
          </button>
        ) : null}
        <button type="button" onClick={() => step(-1)}>
          Previous call
        </button>
        <button type="button" onClick={() => step(1)}>
          Next call
        </button>
        <button
          type="button"
          aria-label="Zoom in"
          onClick={() => view.set(zoomed(view.get(), 0.5, middle(), whole(), LEAST))}
        >
          +
        </button>
        <button
          type="button"
          aria-label="Zoom out"
          onClick={() => view.set(zoomed(view.get(), 2, middle(), whole(), LEAST))}
        >
          −
        </button>
        <button type="button" onClick={() => show(whole())}>
          Whole run
        </button>
        {sides.some((side) => side.threads > 4) ? (
          <button type="button" id="unfold" aria-pressed={unfolded} onClick={() => unfold(!unfolded)}>
            {unfolded ? "Fold" : "Unfold"} {Math.max(...sides.map((side) => side.threads))} threads
          </button>
        ) : null}
        <form
          class="search"
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            search(String(new FormData(event.currentTarget).get("words") ?? ""));
          }}
        >
          <input
            name="words"
            aria-label="Search: number of a call, sector and a number, name of a file"
            placeholder="call, sector N, file"
          />
          <button type="submit">Find</button>
        </form>
        <Range />
      </div>
      {now.note ? (
        <p class="hint" role="status">
          {now.note}
        </p>
      ) : null}
      <Coverage sides={sides} />
      <Overview report={report} sides={sides} />
      <div class="lanes">
        <div class="lane-names" aria-hidden="true" style={{ height: `${plan.height}px` }}>
          {plan.heads.map((top, nr) => (
            <div key={`h${top}`} class="lane-side" style={{ top: `${top}px`, height: `${HEAD}px` }}>
              <Letter side={nr} /> <span dir="auto">{format.short(report.sides[nr]?.label ?? "", 24)}</span>
            </div>
          ))}
          {plan.places.map((place) => (
            <div
              key={`${place.side}${place.lane}`}
              class="lane-name"
              style={{ top: `${place.top}px`, height: `${place.height}px` }}
            >
              {LANE_TITLES[place.lane]}
              {laneNote(at(sides, place.side), place.lane)}
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
            shared.lit.set(null);
            const { px } = pointer(event);
            fingers.current.set(event.pointerId, px);
            if (fingers.current.size === 2) {
              const [one = 0, two = 0] = [...fingers.current.values()].sort((x, y) => x - y);
              const now = view.get();
              const time = (px: number) => now.from + (px / width()) * (now.to - now.from);
              pinch.current = [time(one), time(two)];
              drag.current = null;
              return;
            }
            drag.current = { x: event.clientX, view: view.get(), moved: false, range: event.shiftKey ? px : null };
            box.current?.setPointerCapture(event.pointerId);
            setTip(null);
          }}
          onPointerMove={onMove}
          onPointerUp={onUp}
          onPointerCancel={(event) => {
            drag.current = null;
            fingers.current.delete(event.pointerId);
            pinch.current = null;
            setRange(null);
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
            listen={[view, focus, align, shared.lit]}
            onReady={(canvas) => canvas.addEventListener("wheel", onWheel, { passive: false })}
            draw={(context, wide) => {
              const now = view.get();
              const lit = shared.lit.get();
              const painted = paintTimeline(context, wide, sides, now, align.get().origin, focus.get(), colour, lit);
              if (box.current) {
                const { dataset } = box.current;
                dataset.from = String(now.from);
                dataset.to = String(now.to);
                dataset.painted = String(painted);
                dataset.align = align.get().by;
                dataset.lit = lit?.join(" ") ?? "";
                sides.forEach((side, nr) => {
                  dataset[`origin${nr}`] = String(origin(nr));
                  const stalled = stallsIn(side, own(nr));
                  dataset[`stalls${nr}`] = String(stalled.count);
                  dataset[`stalled${nr}`] = String(stalled.ns);
                });
              }
            }}
          />
          {range ? (
            <div
              class="picked"
              style={{ left: `${Math.min(...range)}px`, width: `${Math.abs(range[1] - range[0])}px` }}
            />
          ) : null}
          {tip ? (
            <div class="tip" style={tipPlace(tip, width())}>
              {tip.text}
            </div>
          ) : null}
        </div>
      </div>
      <details id="lane-help" class="hint">
        <summary>Keys and gestures (?)</summary>
        Drag to move, drag with Shift to choose a range; click the lanes, then turn the wheel to zoom (or hold Ctrl);
        pinch with two fingers. Keys: <kbd>←</kbd> <kbd>→</kbd> or <kbd>a</kbd> <kbd>d</kbd> move, <kbd>+</kbd>{" "}
        <kbd>−</kbd> or <kbd>w</kbd> <kbd>s</kbd> zoom, <kbd>Home</kbd> <kbd>End</kbd> begin and end, <kbd>n</kbd>{" "}
        <kbd>p</kbd> next and previous call, <kbd>↑</kbd> <kbd>↓</kbd> the same call on the other side, <kbd>t</kbd>{" "}
        typical calls, <kbd>f</kbd> first difference, <kbd>o</kbd> onset, <kbd>0</kbd> first view, <kbd>Esc</kbd> let
        go.
      </details>
      <Legend of={legend(sides)} />
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

/** What of the view is not drawn item by item, in words. */
function Coverage({ sides }: { sides: readonly Side[] }) {
  const view = useValue(shared.view, 120);
  const align = useValue(shared.align, 120);
  const parts = sides.map(({ timeline }, nr) => ({
    timeline,
    ...coverage(timeline, viewOf(view, align.origin[nr] ?? 0)),
  }));
  const percent = (of: number) => format.percent(Math.min(1, of));
  const words = parts.flatMap(({ timeline, unknown, outside }, nr) => [
    ...(unknown > 0.001
      ? [
          `${"AB"[nr]}: ${percent(unknown)} of this view has no detail here and is drawn from bins of ${format.time(timeline.pyramid.bin_ns)} or more, as the fewest and the most at once.`,
        ]
      : []),
    ...(outside > 0.1 ? [`${"AB"[nr]}: ${percent(outside)} of this view is outside of the run.`] : []),
  ]);
  const lacking = parts.some((of) => of.unknown > 0.001);
  const more = served() ? "Zoom in: the server sends the detail." : "iowhy report --serve shows any moment in detail.";
  return (
    <p class="hint" id="coverage" role="status" data-unknown={parts.map((of) => of.unknown.toFixed(3)).join(" ")}>
      {words.join(" ")} {lacking ? more : ""}
    </p>
  );
}

function Range() {
  const view = useValue(shared.view, 60);
  return (
    <span class="range" id="range" data-from={view.from} data-to={view.to}>
      {format.time(view.from, 4)} to {format.time(view.to, 4)} ({format.time(view.to - view.from)})
    </span>
  );
}

/** The side that takes longer: its calls are what the difference is about. */
export function slowSide(report: Report): number {
  const { explanation } = report;
  if (report.sides.length < 2) return 0;
  return explanation ? Number((explanation.b_ns ?? 0) >= (explanation.a_ns ?? 0)) : report.sides.length - 1;
}

/** What the rows of a lane leave out. */
const laneNote = (side: Side, lane: LaneName): string =>
  side.lanes[lane].depth ? (lane === "calls" ? ` (${side.threads} threads)` : " (depth)") : "";

/** Only what is drawn somewhere. */
export function legend(sides: readonly Side[]): (readonly [string, string])[] {
  const any = (of: (timeline: Side["timeline"]) => boolean) => sides.some((side) => of(side.timeline));
  const all: (readonly [string, string, boolean])[] = [
    ["read", "read", any((of) => of.calls.op.includes(0) || of.requests.dir.includes(0))],
    ["write", "write", any((of) => of.calls.op.includes(1) || of.requests.dir.includes(1))],
    ["sync", "sync", any((of) => of.calls.op.some((op) => op > 1))],
    ["hit", "pages hit", any((of) => of.pages.kind.includes(1))],
    ["miss", "pages missed", any((of) => of.pages.kind.includes(2))],
    ["added", "pages added", any((of) => of.pages.kind.includes(0))],
    ["removed", "pages removed", any((of) => of.pages.kind.includes(3))],
    [
      "window",
      "read-ahead window: first page + pages, ▸ async marker; below: used, unused, removed unused",
      any((of) => of.windows.at.length > 0),
    ],
    ["waste", "never used", any((of) => of.windows.unused.some((nr) => nr > 0))],
    ["plug", "plug: requests let go", any((of) => of.plugs.start.length > 0)],
    ["queue", "in the queue", sides.some((side) => side.lanes.queue.id.length > 0)],
    ["stall", "stall", any((of) => of.stalls.count > 0)],
  ];
  return all.filter(([, , used]) => used).map(([name, words]) => [name, words] as const);
}

function Overview({ report, sides }: { report: Report; sides: readonly Side[] }) {
  const grip = useRef<number | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const { view, align } = shared;
  const longest = Math.max(1, ...sides.map((side) => side.timeline.elapsed_ns));
  const move = (event: PointerEvent) => {
    const rect = (box.current as HTMLDivElement).getBoundingClientRect();
    const when = linear(0, longest, 0, rect.width).invert(event.clientX - rect.left);
    // The side under the pointer when it was pressed goes to this time of its clock.
    grip.current ??= Math.min(sides.length - 1, Math.max(0, Math.floor((event.clientY - rect.top) / 26)));
    const { origin } = align.get();
    const span = view.get().to - view.get().from;
    const from = when - (origin[grip.current] ?? 0) - span / 2;
    view.set(clamped({ from, to: from + span }, wholeOf(report, origin)));
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
          grip.current = null;
          box.current?.setPointerCapture(event.pointerId);
          move(event);
        }}
        onPointerMove={(event) => event.buttons > 0 && move(event)}
      >
        <Canvas
          height={26 * sides.length}
          label="The whole run: requests at the device and stalls; a frame marks the part in the lanes below. The keys of the lanes move it."
          listen={[view, align]}
          draw={(context, width, height) =>
            paintOverview(context, width, height, sides, view.get(), align.get().origin, colour)
          }
        />
      </div>
    </div>
  );
}

/** One item in words. */
export function describe(side: Side, lane: LaneName, id: number): string {
  const { calls, pages, windows, plugs, requests, unplug_causes, window_kinds, contents } = side.timeline;
  const t = (when: number) => format.time(when, 5);
  switch (lane) {
    case "calls":
      return `call ${at(calls.nr, id)}: ${OPS[at(calls.op, id)] ?? "call"} ${format.size(at(calls.bytes, id))} at ${format.size(at(calls.offset, id))}, ${t(at(calls.start, id))} to ${t(at(calls.end, id))}: ${format.time(at(calls.end, id) - at(calls.start, id))}`;
    case "pages":
      return `pages ${at(pages.first, id)} +${at(pages.nr, id)} ${PAGE_KINDS[at(pages.kind, id)] ?? ""} at ${t(at(pages.at, id))}`;
    case "windows": {
      const marker = at(windows.marker, id) < 0 ? "no async marker" : `async marker at ${at(windows.marker, id)}`;
      return `window ${at(windows.first, id)} +${at(windows.nr, id)} pages (${window_kinds[at(windows.kind, id)] ?? "read-ahead"}), ${marker}; ${at(windows.used, id)} used, ${at(windows.unused, id)} never used, ${at(windows.thrashed, id)} removed before use; at ${t(at(windows.at, id))}`;
    }
    case "plug":
      return `plug from ${t(at(plugs.start, id))} to ${t(at(plugs.end, id))}: ${format.time(at(plugs.end, id) - at(plugs.start, id))}, lets ${at(plugs.nr, id)} requests go (${unplug_causes[at(plugs.cause, id)] ?? "unknown"})`;
    default: {
      const points = (["q", "g", "i", "d", "c"] as const)
        .filter((name) => at(requests[name], id) >= 0)
        .map((name) => `${name.toUpperCase()} ${t(at(requests[name], id))}`);
      return `${DIRS[at(requests.dir, id)] ?? "request"} ${format.size(at(requests.sectors, id) * 512)} at sector ${at(requests.sector, id)} (${contents[at(requests.content, id)] ?? "data"}, ${at(requests.bios, id)} bios, depth ${at(requests.depth, id)}): ${points.join(", ")}`;
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
  const side = at(sides, focus.side);
  const { calls, files, windows, pages, plugs, requests } = side.timeline;
  const of = side.ofCall(focus.call);
  const [from, to] = [at(calls.start, focus.call), at(calls.end, focus.call)];
  const [added, hits, missed] = [0, 1, 2].map((kind) =>
    of.pages.reduce((sum, id) => sum + (at(pages.kind, id) === kind ? at(pages.nr, id) : 0), 0),
  ) as [number, number, number];
  const device = union(of.device.map((id) => [at(requests.d, id), at(requests.c, id)] as const));
  const busy = device.reduce((sum, [start, end]) => sum + end - start, 0);
  const held = of.plug.reduce((sum, id) => sum + at(plugs.end, id) - at(plugs.start, id), 0);
  const waiting = union(
    of.device.map((id) => [at(requests.q, id), at(requests.d, id)] as const).filter(([q]) => q >= 0),
  );
  const stalled = inside(side.stalls, from, to);
  const other = sides[1 - focus.side];
  const row = other ? rowOf(other, at(calls.nr, focus.call)) : -1;
  const theirs = other?.timeline.calls;
  const same =
    theirs &&
    row >= 0 &&
    theirs.offset[row] === at(calls.offset, focus.call) &&
    theirs.op[row] === at(calls.op, focus.call);
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
        <Letter side={focus.side} /> call {at(calls.nr, focus.call)}: {OPS[at(calls.op, focus.call)] ?? "call"} of{" "}
        {format.size(at(calls.bytes, focus.call))} at {format.size(at(calls.offset, focus.call))} of{" "}
        <Text of={files[at(calls.file, focus.call)]?.name ?? "a file"} />
      </h3>
      <dl class="facts-row">
        {line("duration", "takes", format.time(to - from), to - from)}
        {line("pages", "pages", `${hits} hit, ${missed} missed, ${added} added`, hits + missed + added)}
        {line(
          "windows",
          "read-ahead windows",
          `${of.windows.length} (${of.windows.reduce((sum, id) => sum + at(windows.nr, id), 0)} pages)`,
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
          {format.time(at(theirs.end, row) - at(theirs.start, row))}.{" "}
          <button type="button" class="link" onClick={() => goTo(1 - focus.side, row)}>
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
        {report.sides[focus.side]?.simulated ? "Simulated" : "Measured"}, run with seed {side.timeline.seed}.
      </p>
    </div>
  );
}

/** The lanes in view, as tables. */
function LaneTables({ sides }: { sides: readonly Side[] }) {
  const view = useValue(shared.view, 150);
  const align = useValue(shared.align, 150);
  return (
    <details class="numbers" data-numbers="lanes">
      <summary>Numbers: the lanes in view, as tables</summary>
      <div class="tables">
        {sides.map((side, nr) =>
          LANE_NAMES.map((name) => {
            const lane = side.lanes[name];
            const own = viewOf(view, align.origin[nr] ?? 0);
            const rows = () => {
              const out: (number | string)[][] = [];
              for (let k = 0; k < lane.id.length; k++) {
                const [start, end, id, call] = [at(lane.start, k), at(lane.end, k), at(lane.id, k), at(lane.call, k)];
                if (start > own.to) break;
                if (end < own.from) continue;
                out.push([
                  id,
                  start,
                  end,
                  call < 0 ? "none" : at(side.timeline.calls.nr, call),
                  describe(side, name, id),
                ]);
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
