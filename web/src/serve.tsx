// The page as `iowhy report --serve` gives it: the same page over the store. The server marks it by
// `<meta name="iowhy-serve">`; the token stands in the page's own address (`?token=...`) and goes back with each request in
// the header `X-Iowhy-Token`. Its requests, always below the page's folder:
//   GET ./api/sets                {sets: [{id, label, runs, job, at}]}: groups of runs that can be compared, newest first
//   GET ./api/report?a=ID&b=ID    iowhy.report/1 (without b: of one side)
//   GET ./api/slice?a=ID&b=ID&side=0&from=NS&to=NS   the timeline of a side with this part of its run in detail
//   GET ./api/live                {run: null} or {run: {label, done, total, text}}: a run in flight; asked every second

import { useEffect, useState } from "preact/hooks";
import type { Timeline } from "./data.ts";
import { Text } from "./parts.tsx";
import { checked, type Unpacked } from "./unpack.ts";

export interface RunSet {
  id: string;
  label: string;
  runs: number;
  job: string;
  at: string;
}

export interface Live {
  run: null | { label: string; done: number; total: number; text: string };
}

export function served(): boolean {
  return /^https?:$/.test(location.protocol) && document.querySelector('meta[name="iowhy-serve"]') !== null;
}

async function ask(path: string): Promise<string> {
  const token = new URLSearchParams(location.search).get("token") ?? "";
  const answer = await fetch(`./api/${path}`, { headers: { "X-Iowhy-Token": token }, cache: "no-store" });
  if (!answer.ok) throw new Error(`the server says ${answer.status} to ${path}`);
  return await answer.text();
}

/** A part of the run of a side of the report that is shown, in detail: its timeline with this part, ns of its run. */
export async function slice(side: number, from: number, to: number): Promise<Timeline> {
  const asked = new URLSearchParams(location.search);
  const words = new URLSearchParams({
    a: asked.get("a") ?? "",
    side: String(side),
    from: String(from),
    to: String(to),
  });
  if (asked.get("b")) words.set("b", asked.get("b") ?? "");
  return JSON.parse(await ask(`slice?${words}`)) as Timeline;
}

export function Served({ show }: { show: (unpacked: Unpacked) => void }) {
  const [sets, setSets] = useState<RunSet[]>([]);
  const [chosen, choose] = useState<[string, string]>(["", ""]);
  const [live, setLive] = useState<Live>({ run: null });
  const [state, tell] = useState("");
  useEffect(() => {
    let stop = false;
    const list = () =>
      ask("sets")
        .then((json) => {
          const found = (JSON.parse(json) as { sets: RunSet[] }).sets;
          setSets(found);
          choose((now) => (now[0] || !found[0] ? now : found[1] ? [found[1].id, found[0].id] : [found[0].id, ""]));
        })
        .catch((error: unknown) => tell(String(error)));
    void list();
    let running = false;
    const timer = window.setInterval(() => {
      ask("live")
        .then((json) => {
          if (stop) return;
          const now = JSON.parse(json) as Live;
          // A run has just ended: there is something new to choose.
          if (running && now.run === null) void list();
          running = now.run !== null;
          setLive(now);
        })
        .catch(() => {});
    }, 1000);
    return () => {
      stop = true;
      window.clearInterval(timer);
    };
  }, []);
  const load = ([a, b]: readonly [string, string]) => {
    tell("Loading.");
    ask(`report?a=${encodeURIComponent(a)}${b ? `&b=${encodeURIComponent(b)}` : ""}`)
      .then((json) => {
        // The choice stands in the address, so that loading the page again shows it again.
        const url = new URL(location.href);
        url.searchParams.set("a", a);
        if (b) url.searchParams.set("b", b);
        else url.searchParams.delete("b");
        history.replaceState(null, "", url);
        show(checked(json));
        tell("");
      })
      .catch((error: unknown) => tell(String(error)));
  };
  useEffect(() => {
    const asked = new URLSearchParams(location.search);
    const again: [string, string] = [asked.get("a") ?? "", asked.get("b") ?? ""];
    if (!again[0]) return;
    choose(again);
    load(again);
  }, []);
  const select = (side: 0 | 1, label: string) => (
    <label>
      {label}{" "}
      <select
        value={chosen[side]}
        onChange={(event) => {
          const id = event.currentTarget.value;
          choose((now) => (side === 0 ? [id, now[1]] : [now[0], id]));
        }}
      >
        {side === 1 ? <option value="">none</option> : null}
        {sets.map((of) => (
          <option key={of.id} value={of.id}>
            {`${of.label.slice(0, 60)} (${of.runs} runs, ${of.job.slice(0, 40)}, ${of.at})`}
          </option>
        ))}
      </select>
    </label>
  );
  return (
    <form
      class="served"
      aria-label="Runs in the store"
      onSubmit={(event) => {
        event.preventDefault();
        load(chosen);
      }}
    >
      {select(0, "A, the base")} {select(1, "B, the candidate")}{" "}
      <button type="submit" disabled={!chosen[0]}>
        Show
      </button>
      <p aria-live="polite">
        {live.run ? (
          <span class="live">
            Running: <Text of={live.run.label} />{" "}
            <progress value={live.run.done} max={Math.max(1, live.run.total)} aria-label="Runs done" /> {live.run.done}{" "}
            of {live.run.total} <Text of={live.run.text} />
          </span>
        ) : null}{" "}
        {state}
      </p>
    </form>
  );
}
