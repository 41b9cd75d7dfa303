// The page: unpacks the data, puts the sections in order, and keeps the colour scheme.

import { render } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { aligned, rowOf, typicalRows, viewOf, wholeOf } from "./align.ts";
import { Histories, Latencies, Samples } from "./charts.tsx";
import type { Timeline as Lanes } from "./data.ts";
import { Incident } from "./incident.tsx";
import { firstView, type Side as Prepared, prepare } from "./lanes.ts";
import * as link from "./link.ts";
import { Disk, FileMaps, Requests, Windows } from "./maps.tsx";
import { LANES_OF } from "./matrix.tsx";
import { Text } from "./parts.tsx";
import { coverage } from "./pyramid.ts";
import { Reproduce } from "./reproduce.tsx";
import { Served, served, slice } from "./serve.tsx";
import { Stacks } from "./stacks.tsx";
import { shared } from "./store.ts";
import { slowSide, Timeline } from "./timeline.tsx";
import { type Unpacked, unpack } from "./unpack.ts";
import { Comparisons, Findings, Verdict, Waterfall } from "./verdict.tsx";

type Scheme = "auto" | "light" | "dark";

function useScheme(): [Scheme, (next: Scheme) => void] {
  const [scheme, set] = useState<Scheme>("auto");
  useLayoutEffect(() => {
    const { dataset } = document.documentElement;
    const media = matchMedia("(prefers-color-scheme: dark)");
    // Canvases are painted again in the colours of the look.
    const changed = () => {
      const dark = scheme === "dark" || (scheme === "auto" && media.matches);
      dataset.look = dark && !dataset.print ? "dark" : "light";
      shared.scheme.set(shared.scheme.get() + 1);
    };
    // Paper is white, and does not wait.
    const printing = () => {
      dataset.print = "1";
      changed();
      window.dispatchEvent(new Event("iowhy-print"));
    };
    const printed = () => {
      delete dataset.print;
      changed();
    };
    changed();
    media.addEventListener("change", changed);
    window.addEventListener("beforeprint", printing);
    window.addEventListener("afterprint", printed);
    return () => {
      media.removeEventListener("change", changed);
      window.removeEventListener("beforeprint", printing);
      window.removeEventListener("afterprint", printed);
    };
  }, [scheme]);
  return [scheme, set];
}

/** The address follows what is shown, and what an address says is shown. */
function useLink(sides: readonly ReturnType<typeof prepare>[]) {
  const opened = useRef(false);
  const known = useRef("");
  useEffect(() => {
    const open = () => {
      known.current = location.hash;
      const moment = link.read(location.hash);
      const rule = /^#find=(.+)$/.exec(location.hash)?.[1];
      let target: Element | null | undefined;
      if (moment) {
        link.show(moment, sides);
        target = document.getElementById("timeline");
      } else if (rule) {
        const wanted = decodeURIComponent(rule);
        target = [...document.querySelectorAll<HTMLElement>("[data-rule]")].find((of) => of.dataset.rule === wanted);
      } else if (location.hash.length > 1) {
        // The content has come after the address was looked at.
        target = document.getElementById(location.hash.slice(1));
      }
      target?.scrollIntoView({ block: "start" });
    };
    if (!opened.current) open();
    opened.current = true;
    let timer = 0;
    const follow = () => {
      window.clearTimeout(timer);
      timer = window.setTimeout(() => {
        // A new address whose event is still on its way is shown, not written over.
        if (location.hash !== known.current) return;
        known.current = link.written(link.current(sides));
        if (known.current !== location.hash) history.replaceState(null, "", known.current);
      }, 250);
    };
    // What is only pointed at is not kept.
    const pinned = () => shared.focus.get()?.pinned && follow();
    const off = [shared.view.listen(follow), shared.align.listen(follow), shared.focus.listen(pinned)];
    window.addEventListener("hashchange", open);
    return () => {
      window.clearTimeout(timer);
      window.removeEventListener("hashchange", open);
      for (const stop of off) stop();
    };
  }, [sides]);
}

/** Bins in view from which on detail is asked for. */
const BINS = 2000;

/** A served page asks for the detail of what is in view, once the view is still. */
function useSlices(sides: readonly Prepared[], show: (side: number, next: Lanes) => void) {
  const asked = useRef(new Set<string>());
  const again = useRef<{ side: number; nr: number } | null>(null);
  useLayoutEffect(() => {
    // The call in focus is in another row now.
    const kept = again.current;
    again.current = null;
    const row = kept && sides[kept.side] ? rowOf(sides[kept.side] as Prepared, kept.nr) : -1;
    if (kept && row >= 0) shared.focus.set({ side: kept.side, call: row, pinned: true });
  }, [sides]);
  useEffect(() => {
    if (!served()) return;
    let timer = 0;
    const look = () => {
      window.clearTimeout(timer);
      timer = window.setTimeout(() => {
        sides.forEach(({ timeline }, side) => {
          const own = viewOf(shared.view.get(), shared.align.get().origin[side] ?? 0);
          const span = own.to - own.from;
          if (coverage(timeline, own).unknown <= 0.001 || span > BINS * timeline.pyramid.bin_ns) return;
          const [from, to] = [Math.max(0, Math.floor(own.from - span / 4)), Math.ceil(own.to + span / 4)];
          const key = `${side} ${from} ${to}`;
          if (to <= from || asked.current.has(key)) return;
          asked.current.add(key);
          slice(side, from, to)
            .then((next) => {
              const focus = shared.focus.get();
              const nr = focus ? sides[focus.side]?.timeline.calls.nr[focus.call] : undefined;
              again.current = focus?.pinned && nr !== undefined ? { side: focus.side, nr } : null;
              shared.focus.set(null);
              show(side, { ...next, pyramid: timeline.pyramid });
            })
            .catch((error: unknown) => shared.align.set({ ...shared.align.get(), note: String(error) }));
        });
      }, 250);
    };
    look();
    const off = [shared.view.listen(look), shared.align.listen(look)];
    return () => {
      window.clearTimeout(timer);
      for (const stop of off) stop();
    };
  }, [sides]);
}

const PARTS = [
  ["verdict", "Verdict"],
  ["timeline", "Timeline"],
  ["findings", "Findings"],
  ["incident", "Incident"],
  ["layers", "Layers"],
  ["comparison", "Comparison"],
  ["latency", "Latency"],
  ["stacks", "Waits"],
  ["samples", "Runs"],
  ["history", "History"],
  ["files", "File map"],
  ["windows", "Windows"],
  ["disk", "Disk"],
  ["requests", "Requests"],
  ["reproduce", "Reproduce"],
] as const;

function Page({ unpacked }: { unpacked: Unpacked }) {
  const { report } = unpacked;
  const [unfolded, unfold] = useState(false);
  const [timelines, setTimelines] = useState(() => report.sides.slice(0, 2).map((side) => side.timeline));
  const sides = useMemo(() => timelines.map((timeline) => prepare(timeline, unfolded)), [timelines, unfolded]);
  useSlices(sides, (side, next) => setTimelines((now) => now.map((of, nr) => (nr === side ? next : of))));
  const slow = slowSide(report);
  const first = useMemo(() => {
    const by = sides.some((side) => side.timeline.course.typical) ? ("typical" as const) : ("clock" as const);
    const start = aligned(sides, by, slow, typicalRows(sides)[slow] ?? -1);
    const view = firstView(sides, wholeOf(report, start.origin));
    shared.align.set(start);
    shared.view.set(view);
    const row = start.by === "typical" ? (typicalRows(sides)[slow] ?? -1) : -1;
    shared.focus.set(row < 0 ? null : { side: slow, call: row, pinned: false });
    return { view, by };
  }, [report]);
  useLink(sides);
  const showMe = (layer: string) => {
    link.showExample(sides, slow, LANES_OF[layer] ?? []);
    document.getElementById("timeline")?.scrollIntoView({ block: "start" });
  };
  const comparison = report.comparison ?? report.explanation?.comparison ?? null;
  // Files of samples have no events.
  const events = report.sides.some((side) => side.timeline.nr_events > 0);
  const [parts, setParts] = useState<readonly (readonly [string, string])[]>([]);
  useEffect(() => setParts(PARTS.filter(([id]) => document.getElementById(id))), [report]);
  return (
    <>
      <nav aria-label="Parts of the report">
        {parts.map(([id, name]) => (
          <a key={id} href={`#${id}`}>
            {name}
          </a>
        ))}
      </nav>
      <main>
        <Verdict report={report} sides={sides} events={events} />
        {events ? <Timeline report={report} sides={sides} first={first} unfold={unfold} unfolded={unfolded} /> : null}
        {report.explanation ? <Findings explanation={report.explanation} showMe={showMe} /> : null}
        {report.incident ? <Incident of={report.incident} /> : null}
        {report.explanation ? <Waterfall explanation={report.explanation} /> : null}
        {comparison ? <Comparisons comparison={comparison} /> : null}
        <Latencies report={report} />
        <Stacks report={report} />
        <Samples report={report} />
        {report.history ? <Histories history={report.history} /> : null}
        <FileMaps sides={sides} />
        {events ? <Windows report={report} sides={sides} /> : null}
        {events ? <Disk report={report} sides={sides} /> : null}
        {events ? <Requests report={report} sides={sides} /> : null}
        <Reproduce report={report} json={unpacked.json} />
      </main>
    </>
  );
}

function App({ first, problem }: { first: Unpacked | null; problem: string | null }) {
  // Each report has a state of its own.
  const [{ unpacked, nr }, set] = useState({ unpacked: first, nr: 0 });
  const show = (next: Unpacked) => set((now) => ({ unpacked: next, nr: now.nr + 1 }));
  const [scheme, setScheme] = useScheme();
  const title = unpacked?.report.title;
  useEffect(() => {
    document.title = title ? `${title.slice(0, 200)} - iowhy report` : "iowhy report";
  }, [title]);
  return (
    <>
      <header>
        <span class="brand">iowhy report</span>
        <span class="title">{title ? <Text of={title} /> : null}</span>
        <label class="scheme">
          Colours{" "}
          <select id="scheme" value={scheme} onChange={(event) => setScheme(event.currentTarget.value as Scheme)}>
            <option value="auto">as the system</option>
            <option value="light">light</option>
            <option value="dark">dark</option>
          </select>
        </label>
      </header>
      {served() ? <Served show={show} /> : null}
      {unpacked ? (
        <Page key={nr} unpacked={unpacked} />
      ) : (
        <main class="plain">
          <h1>{problem ? "This report cannot be read" : served() ? "Choose runs" : "No report in this page"}</h1>
          <p>
            {problem ? (
              <Text of={problem} />
            ) : served() ? (
              "Choose a base and a candidate above."
            ) : (
              "This is the empty page. `iowhy report A B -o report.html` writes one with data in it."
            )}
          </p>
        </main>
      )}
    </>
  );
}

async function start() {
  const block = document.getElementById("iowhy-data");
  let first: Unpacked | null = null;
  let problem: string | null = null;
  try {
    first = await unpack(block?.textContent ?? "");
  } catch (error) {
    problem = `The data in this page is damaged, or of another version: ${error instanceof Error ? error.message : String(error)}`;
  }
  const root = document.getElementById("app") as HTMLElement;
  root.replaceChildren();
  render(<App first={first} problem={problem} />, root);
  document.documentElement.dataset.ready = "1";
}

void start();
