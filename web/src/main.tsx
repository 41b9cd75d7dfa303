// The page: unpacks the data, puts the sections in order, and keeps the colour scheme.

import { render } from "preact";
import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";
import { Histories, Latencies, Samples } from "./charts.tsx";
import { firstView, prepare } from "./lanes.ts";
import { Disk, FileMaps, Requests } from "./maps.tsx";
import { Text } from "./parts.tsx";
import { Reproduce } from "./reproduce.tsx";
import { Served, served } from "./serve.tsx";
import { shared } from "./store.ts";
import { Timeline } from "./timeline.tsx";
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

const PARTS = [
  ["verdict", "Verdict"],
  ["timeline", "Timeline"],
  ["findings", "Findings"],
  ["layers", "Layers"],
  ["comparison", "Comparison"],
  ["latency", "Latency"],
  ["samples", "Runs"],
  ["history", "History"],
  ["files", "File map"],
  ["disk", "Disk"],
  ["requests", "Requests"],
  ["reproduce", "Reproduce"],
] as const;

function Page({ unpacked }: { unpacked: Unpacked }) {
  const { report } = unpacked;
  const prepared = useMemo(() => {
    const sides = report.sides.slice(0, 2).map((side) => prepare(side.timeline));
    const whole = { from: 0, to: Math.max(1000, ...sides.map((side) => side.timeline.elapsed_ns)) };
    const first = firstView(sides, whole);
    shared.view.set(first);
    shared.focus.set(null);
    return { sides, whole, first };
  }, [report]);
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
        <Verdict report={report} />
        {events ? <Timeline report={report} {...prepared} /> : null}
        {report.explanation ? <Findings explanation={report.explanation} /> : null}
        {report.explanation ? <Waterfall explanation={report.explanation} /> : null}
        {comparison ? <Comparisons comparison={comparison} /> : null}
        <Latencies report={report} />
        <Samples report={report} />
        {report.history ? <Histories history={report.history} /> : null}
        <FileMaps report={report} sides={prepared.sides} />
        {events ? <Disk report={report} sides={prepared.sides} whole={prepared.whole} /> : null}
        {events ? <Requests report={report} sides={prepared.sides} /> : null}
        <Reproduce report={report} json={unpacked.json} />
      </main>
    </>
  );
}

function App({ first, problem }: { first: Unpacked | null; problem: string | null }) {
  const [unpacked, show] = useState(first);
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
        <Page key={unpacked.json.length} unpacked={unpacked} />
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
