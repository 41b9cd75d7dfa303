// The page in a real browser: Debian's headless Chromium, over file://.
//   node tests/browser.mjs [--reports DIR] [--iowhy PROGRAM] [--out DIR]
//                                                                     samples made here (plugged, busy, hostile, empty),
//                                                                     every NAME.html beside a NAME.json in DIR, and the
//                                                                     server of PROGRAM
//   node tests/browser.mjs REPORT.html --json REPORT.json [--out DIR] one report that iowhy wrote
// Prints one line for each check (with --failures for those that failed), and exits with 1 if one failed. CHROMIUM names another browser. Pictures of every page,
// light and dark, are left in DIR of --out.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { availableParallelism, tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { samples } from "./make-samples.mjs";
import { packed } from "./pack.mjs";

const args = process.argv.slice(2);
const option = (name) => {
  const at = args.indexOf(name);
  return at < 0 ? undefined : args.splice(at, 2)[1];
};
const jsonFile = option("--json");
const reportsFolder = option("--reports");
const iowhy = option("--iowhy");
const onlyFailures = args.includes("--failures");
if (onlyFailures) args.splice(args.indexOf("--failures"), 1);
const out = resolve(option("--out") ?? "out");
const htmlFile = args[0];
mkdirSync(out, { recursive: true });
const axe = readFileSync(new URL(import.meta.resolve("axe-core/axe.min.js")), "utf8");

/** Most drawing calls in a frame while the view moves: the first view, then an eighth of the run. */
const CALLS = [4_000, 25_000];

let checks = 0;
let failed = 0;
function check(what, ok, more = "") {
  checks++;
  if (!ok) failed++;
  if (ok && onlyFailures) return;
  console.log(`${ok ? "ok  " : "FAIL"} ${what}${more === "" ? "" : `: ${more}`}`);
}
/** What `--json` printed, beside the page. */
const read = (html) => JSON.parse(readFileSync(html.replace(/\.html$/, ".json"), "utf8"));
const close = (x, y) => Math.abs(x - y) <= 1e-9 * Math.max(1, Math.abs(x), Math.abs(y));

/** Opens a page and keeps what it complains about and asks for. */
async function open(browser, url, { scheme = "light", width = 1440, height = 900 } = {}) {
  const context = await browser.newContext({
    colorScheme: scheme,
    viewport: { width, height },
    acceptDownloads: true,
  });
  const page = await context.newPage();
  const seen = { requests: [], errors: [] };
  page.on("request", (request) => seen.requests.push(request.url()));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) seen.errors.push(message.text());
  });
  page.on("pageerror", (error) => seen.errors.push(error.message));
  await page.goto(url);
  await page.waitForSelector("html[data-ready]", { timeout: 20_000 });
  const ready = await page.evaluate(() => performance.now());
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  return { context, page, seen, ready };
}

/** The cells of a table by its name: exact values where the cell has one, else its text. */
async function table(page, name) {
  await page.evaluate((of) => {
    for (
      let at = document.querySelector(`[data-numbers="${of}"], table[data-table="${of}"]`);
      at;
      at = at.parentElement
    ) {
      if (at instanceof HTMLDetailsElement) at.open = true;
    }
  }, name);
  const found = page.locator(`table[data-table="${name}"]`);
  await found.waitFor({ state: "attached", timeout: 30_000 });
  return await found.evaluate((of) =>
    [...of.tBodies[0].rows].map((row) =>
      [...row.cells].map((one) => ("v" in one.dataset ? one.dataset.v : one.textContent)),
    ),
  );
}

/** Drawn numbers against the data. */
async function numbers(page, report) {
  const same = async (name, expected, most = 2000) => {
    const got = await table(page, name);
    const wanted = expected.slice(0, most);
    const bad = wanted.findIndex((row, i) =>
      row.some(
        (value, k) =>
          value !== undefined &&
          (typeof value === "number" ? !close(Number(got[i]?.[k]), value) : String(value ?? "null") !== got[i]?.[k]),
      ),
    );
    check(
      `${name}: ${wanted.length} rows as in the data`,
      got.length === wanted.length && bad < 0,
      bad < 0
        ? ""
        : `row ${bad}: ${JSON.stringify(got[bad])?.slice(0, 200)} for ${JSON.stringify(wanted[bad]).slice(0, 200)}`,
    );
  };
  const { explanation } = report;
  const comparison = report.comparison ?? explanation?.comparison;
  if (explanation) {
    const fact = (name) => page.locator(`#verdict [data-fact="${name}"]`).getAttribute("data-v").then(Number);
    if (explanation.change_pct != null) {
      check("verdict: change", close(await fact("change"), explanation.change_pct));
      const ends = await page
        .locator('#verdict [data-fact="interval"]')
        .evaluate((of) => [of.dataset.low, of.dataset.high, of.textContent]);
      const known = explanation.ci_low_pct != null;
      check(
        "verdict: the interval is that of the change, or there is none",
        known
          ? close(Number(ends[0]), explanation.ci_low_pct) && close(Number(ends[1]), explanation.ci_high_pct)
          : ends[2].startsWith("no interval"),
        ends.join(" "),
      );
    }
    check(
      "verdict: times",
      close(await fact("time-0"), explanation.a_ns) && close(await fact("time-1"), explanation.b_ns),
    );
    const layers = explanation.layers.filter((of) => Math.abs(of.a) + Math.abs(of.b) >= 0.5);
    await same("layers", [
      ...layers.map((of) => [of.layer, of.a, of.b, of.delta]),
      ["all", explanation.a_ns, explanation.b_ns],
    ]);
    const bars = await page.$$eval('[data-chart="waterfall"] rect', (all) =>
      all.map((of) => [Number(of.dataset.from), Number(of.dataset.to)]),
    );
    check(
      "waterfall: begins with A, ends with B",
      close(bars[0][1], explanation.a_ns) && close(bars.at(-1)[1], explanation.b_ns),
    );
    check(
      "waterfall: one bar for each layer",
      layers.every(
        (of, i) => Math.abs(bars[i + 1][1] - bars[i + 1][0] - of.delta) <= 1e-6 * Math.max(1, explanation.b_ns),
      ),
    );
    for (const [nr, finding] of explanation.findings.entries()) {
      if (finding.evidence.length > 0)
        await same(
          `evidence-${nr}`,
          finding.evidence.map((of) => [undefined, of.a, of.b]),
        );
    }
  }
  const { matrix } = report;
  if (matrix) {
    const rows = await table(page, "matrix");
    const cells = rows.map((row) => row.slice(1).map(Number));
    const of = [[...matrix.ns, matrix.total_ns], ...matrix.rows.map((row) => [...row.ns, row.sum_ns])];
    check(
      "matrix: cells as in the data",
      cells.every((row, layer) => row.every((ns, cause) => close(ns, of[cause][layer]))) &&
        cells.length === matrix.layers.length + 1,
    );
    const least = 1e-6 * Math.max(1, Math.abs(matrix.total_ns));
    check(
      "matrix: causes add up to layers, and layers to the difference",
      cells.every(([all, ...causes]) => Math.abs(causes.reduce((sum, ns) => sum + ns, 0) - all) <= least) ||
        matrix.rows.length === 0,
      JSON.stringify(cells.at(-1)),
    );
    for (const [layer, lane] of Object.entries({ device: "device", plug: "plug", "read-ahead": "windows" })) {
      if (!matrix.layers.includes(layer)) continue;
      await page.getByRole("button", { name: layer, exact: true }).first().hover();
      await still(page);
      check(`matrix: ${layer} lights its lane`, (await page.$eval("#lanes", (of) => of.dataset.lit)) === lane);
    }
    await page.mouse.move(5, 5);
  }
  if (comparison) {
    await same(
      "comparison",
      comparison.metrics.map((of) => [
        of.name,
        of.verdict,
        of.a.median,
        of.b.median,
        of.change_pct,
        undefined,
        of.p,
        of.p_adjusted,
        undefined,
        `${of.a.cv},${of.b.cv}`,
      ]),
    );
    const told = comparison.metrics.flatMap((row) => row.warnings.map((of) => [row.name, of]));
    const texts = new Set([...comparison.warnings, ...told.map(([, of]) => of)].map((of) => `${of.text} ${of.next}`));
    const shown = await page.$$eval("#comparison [data-warning]", (all) => all.map((of) => of.textContent));
    const named = told.every(([name, of]) => shown.some((text) => text.includes(name) && text.includes(of.text)));
    check("comparison: warnings", shown.length === texts.size && named, String(shown.length));
  }
  const known = new Set(["read", "write", "sync"]);
  for (const [nr, side] of report.sides.entries()) {
    for (const of of side.latency) {
      if (of.n > 0 && known.has(of.op))
        await same(
          `ecdf-${of.op}-${nr}`,
          of.ns.map((ns, i) => [ns, of.share[i], of.low[i], of.high[i]]),
        );
    }
    for (const of of side.request_sizes) {
      if (of.bytes.length > 0)
        await same(
          `sizes-${of.dir}-${nr}`,
          of.bytes.map((bytes, i) => [bytes, of.count[i]]),
        );
    }
    if (side.stacks.length > 0) {
      await same(
        `stacks-${nr}`,
        side.stacks.map((of) => [of.frames.join(";"), of.ns, of.count]),
      );
      // Each row of frames is as wide as the waits of the stacks that reach it.
      const drawn = await page.$$eval(`[data-chart="flame-${nr}"] rect`, (all) =>
        all.map((of) => Number(of.dataset.ns)),
      );
      const prefixes = new Set(
        side.stacks.flatMap((of) => of.frames.map((_, i) => of.frames.slice(0, i + 1).join(";"))),
      );
      const deep = side.stacks.reduce((sum, of) => sum + of.ns * of.frames.length, 0);
      check(
        `flame-${nr}: a frame for each caller, as wide as its waits`,
        drawn.length === prefixes.size && drawn.reduce((sum, ns) => sum + ns, 0) === deep,
        `${drawn.length} of ${prefixes.size}`,
      );
    }
    const { overview, map } = side.timeline;
    await same(
      `overview-${nr}`,
      overview.depth_max.map((depth, i) => [
        i,
        overview.depth_min[i],
        depth,
        overview.read_bytes[i],
        overview.write_bytes[i],
        overview.calls[i],
        overview.starved[i],
      ]),
    );
    if (map.length > 0) {
      const rows = await table(page, `map-${nr}-0`);
      const drawn = rows.flatMap((row) =>
        new Array(Math.round(Number(row[1]) / map[0].strip_pages)).fill(Number(row[2])),
      );
      check(
        `map-${nr}-0: states of all strips`,
        drawn.length > 0 && drawn.every((state, i) => state === map[0].state[i]),
      );
    }
  }
  for (const of of report.shift) {
    if (of.quantile.length > 0)
      await same(
        `shift-${of.op}`,
        of.quantile.map((q, i) => [q, of.shift_ns[i], of.low_ns[i], of.high_ns[i]]),
      );
  }
  await same(
    "samples",
    report.sides.flatMap((side) =>
      side.runs.map((run) => [undefined, run.seed, run.time_per_operation_ns, run.rate_bytes_per_s, run.operations]),
    ),
    400,
  );
  if (report.differences.length > 0)
    await same(
      "differences",
      report.differences.map((of) => [of.key, of.a, of.b]),
      400,
    );
  const views = await Promise.all(report.sides.map((_, nr) => own(page, nr)));
  const columns = {
    calls: ["calls", "start", "end"],
    windows: ["windows", "at", null],
    plug: ["plugs", "start", "end"],
    device: ["requests", "d", "c"],
  };
  for (const [nr, { timeline }] of report.sides.entries()) {
    const { from, to } = views[nr];
    for (const [lane, [of, start, end]] of Object.entries(columns)) {
      const rows = await table(page, `lane-${nr}-${lane}`);
      const wrong = rows.find(
        (row) =>
          !close(Number(row[1]), timeline[of][start][row[0]]) ||
          (end && !close(Number(row[2]), Math.max(timeline[of][start][row[0]], timeline[of][end][row[0]]))),
      );
      const expected = end
        ? timeline[of][start].filter(
            (at, i) =>
              at >= 0 &&
              at <= to &&
              Math.max(at, timeline[of][end][i]) >= from &&
              (lane !== "device" || timeline[of][end][i] >= 0),
          ).length
        : rows.length;
      check(
        `lane-${nr}-${lane}: ${rows.length} items in view`,
        !wrong && rows.length === Math.min(300, expected),
        wrong ? JSON.stringify(wrong) : "",
      );
    }
  }
}

const view = (page) => page.$eval("#lanes", (of) => ({ from: Number(of.dataset.from), to: Number(of.dataset.to) }));
/** The view on a side's own clock. */
const own = (page, nr) =>
  page.$eval(
    "#lanes",
    (of, nr) => {
      const origin = Number(of.dataset[`origin${nr}`]);
      return { from: Number(of.dataset.from) + origin, to: Number(of.dataset.to) + origin };
    },
    nr,
  );
const still = (page) =>
  page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** Pointing at a call links it through the lanes; all of it works by keys alone. */
async function linking(page, report) {
  await page.locator("#lanes").scrollIntoViewIfNeeded();
  const chosen = report.sides.length - 1;
  const { timeline } = report.sides[chosen];
  if (timeline.calls.start.length === 0) return;
  const before = await own(page, chosen);
  const call = timeline.calls.start.findIndex((at, i) => timeline.calls.end[i] > before.from && at < before.to);
  if (call >= 0) {
    const canvas = await page.locator("#lanes canvas").boundingBox();
    const top = await page.locator(".lane-name", { hasText: "application calls" }).nth(chosen).boundingBox();
    const threads = new Set(timeline.calls.thread).size;
    const rows = threads > 4 ? 1 : Math.max(1, threads);
    const middle =
      (Math.max(timeline.calls.start[call], before.from) + Math.min(timeline.calls.end[call], before.to)) / 2;
    const row = Math.min([...new Set(timeline.calls.thread)].indexOf(timeline.calls.thread[call]), rows - 1);
    await page.mouse.move(
      canvas.x + ((middle - before.from) / (before.to - before.from)) * canvas.width,
      top.y + (top.height * (row + 0.5)) / rows,
    );
    const details = page.locator("#call-details[data-call]");
    await details.waitFor({ timeout: 10_000 }).catch(() => {});
    const got = (await details.count()) ? Number(await details.getAttribute("data-call")) : -1;
    const overlapping =
      got >= 0 &&
      timeline.calls.start[got] <= middle &&
      timeline.calls.end[got] >= middle - (before.to - before.from) * 0.01;
    check("hover: a call is linked", overlapping, `call ${got}`);
    if (got >= 0) {
      const fact = (name) => page.locator(`#call-details [data-fact="${name}"]`).getAttribute("data-v").then(Number);
      const count = (column) => column.filter((of) => of === got).length;
      check("hover: its windows", (await fact("windows")) === count(timeline.windows.call));
      check("hover: its plugs", (await fact("plug")) === count(timeline.plugs.call));
      const done = timeline.requests.call.filter(
        (of, i) => of === got && timeline.requests.d[i] >= 0 && timeline.requests.c[i] >= 0,
      ).length;
      check("hover: its requests", (await fact("requests")) === done, String(done));
    }
    await page.mouse.move(5, 5);
  }
  // From the top of the page.
  await page.focus("#scheme");
  let reached = false;
  for (let i = 0; i < 80 && !reached; i++) {
    await page.keyboard.press("Tab");
    reached = await page.evaluate(() => document.activeElement?.id === "lanes");
  }
  check("keys: Tab reaches the lanes", reached);
  const press = async (key) => {
    await page.keyboard.press(key);
    await still(page);
    return await view(page);
  };
  await page.locator('[data-align="clock"]').click();
  await page.focus("#lanes");
  const start = await view(page);
  const closer = await press("+");
  check("keys: + zooms in", closer.to - closer.from < start.to - start.from);
  const right = await press("ArrowRight");
  check("keys: the arrow moves", right.from > closer.from || right.to >= timeline.elapsed_ns);
  await press("-");
  const end = await press("End");
  const longest = Math.max(...report.sides.map((side) => side.timeline.elapsed_ns));
  check("keys: End is the end", close(end.to, Math.max(1000, longest)), `${end.to}`);
  check("keys: Home is the begin", (await press("Home")).from === 0);
  await press("n");
  const details = page.locator("#call-details[data-call]");
  const first = Number(await details.getAttribute("data-call"));
  await press("n");
  const second = Number(await details.getAttribute("data-call"));
  check("keys: n is the next call", second !== first || timeline.calls.start.length === 1, `${first} then ${second}`);
  const { from, to } = await view(page);
  check("keys: and it is in view", timeline.calls.start[second] < to && timeline.calls.end[second] > from);
  check("keys: details are announced", (await page.locator("#call-details").getAttribute("aria-live")) === "polite");
  const difference = report.sides.map((side) => side.timeline.first_difference).find((at) => at != null);
  if (difference != null) {
    await press("f");
    check("keys: f is the first difference", Number(await details.getAttribute("data-call")) === difference);
  }
  const { typical } = timeline.course;
  if (typical?.row != null) {
    await press("t");
    const shown = await own(page, chosen);
    const all = report.sides.every(({ timeline: { course } }) => course.typical?.row != null);
    check(
      "keys: t shows the typical call of each side, whole",
      shown.from <= typical.start_ns && shown.to >= typical.start_ns + typical.took_ns && all,
      JSON.stringify([shown, typical]),
    );
  }
  await press("Escape");
  check("keys: Esc lets go", (await page.locator("#call-details[data-call]").count()) === 0);
  await press("0");
}

/** What a chart must not do: labels on labels, titles on labels, the same label twice in a row. */
async function legible(page, name) {
  const faults = await page.$$eval("svg.chart", (all) =>
    all.flatMap((svg) => {
      const boxes = (of) =>
        [...svg.querySelectorAll(of)].map((text) => [text.getBoundingClientRect(), text.textContent]);
      const over = ([x], [y]) =>
        x.left < y.right - 0.5 && y.left < x.right - 0.5 && x.top < y.bottom - 3 && y.top < x.bottom - 3;
      const chart = svg.dataset.chart ?? svg.getAttribute("aria-label");
      const [xs, ys, titles] = [boxes(".x-tick"), boxes(".y-tick"), boxes(".y-title")];
      const pairs = [xs, ys].flatMap((ticks) => ticks.slice(1).map((tick, i) => [ticks[i], tick]));
      const crossed = [...pairs, ...titles.flatMap((title) => ys.map((tick) => [title, tick]))];
      return crossed
        .filter(([x, y]) => over(x, y) || x[1] === y[1])
        .map(([x, y]) => `${chart}: "${x[1]}" and "${y[1]}"`);
    }),
  );
  check(`${name}: labels of charts stand apart`, faults.length === 0, faults.slice(0, 4).join("; "));
}

/** Faults that axe calls serious or critical. */
async function accessible(page, name) {
  await page.evaluate(() => {
    for (const of of document.querySelectorAll("details")) if (!of.closest('[data-numbers="lanes"]')) of.open = true;
  });
  await still(page);
  // Long tables are of the same make as short ones, and the tables of hundreds of files are alike: they cost axe most
  // of its time.
  await page.evaluate(() => {
    for (const of of document.querySelectorAll("details"))
      if (Number(of.querySelector("table")?.dataset.rows ?? 0) > 60) of.open = false;
    for (const of of document.querySelectorAll("details > details:nth-of-type(n + 9)")) of.open = false;
  });
  await still(page);
  await page.evaluate(axe);
  const faults = await page.evaluate(() =>
    window.axe.run(document, { resultTypes: ["violations"] }).then((of) => of.violations),
  );
  const bad = faults.filter((of) => ["serious", "critical"].includes(of.impact));
  check(
    `${name}: axe finds nothing serious`,
    bad.length === 0,
    bad
      .map((of) => `${of.id} (${of.nodes.length}: ${of.nodes[0].target} ${of.nodes[0].html.slice(0, 120)})`)
      .join("; "),
  );
}

/** What is called while the view is dragged and moved by keys: the most in one frame, and the time between frames. */
async function panned(page, y, box) {
  await page.evaluate(() => {
    window.frames_ = [];
    window.calls_ = [];
    let calls = 0;
    const of = CanvasRenderingContext2D.prototype;
    window.plain_ ??= ["fillRect", "fillText", "fill", "stroke"].map((name) => [name, of[name]]);
    for (const [name, plain] of window.plain_)
      of[name] = function (...all) {
        calls++;
        return plain.apply(this, all);
      };
    let last = performance.now();
    const tick = (now) => {
      window.frames_.push(now - last);
      window.calls_.push(calls);
      calls = 0;
      last = now;
      window.ticking = requestAnimationFrame(tick);
    };
    window.ticking = requestAnimationFrame(tick);
  });
  const drawn = async () => Number(await page.locator("#lanes canvas").getAttribute("data-draws"));
  const before = await drawn();
  await page.mouse.move(box.x + box.width * 0.8, y);
  await page.mouse.down();
  for (let i = 0; i < 60; i++) await page.mouse.move(box.x + box.width * (0.8 - 0.01 * i), y);
  await page.mouse.up();
  for (let i = 0; i < 15; i++) await page.keyboard.press("ArrowRight");
  await page.waitForTimeout(300);
  const draws = (await drawn()) - before;
  return await page.evaluate((draws) => {
    cancelAnimationFrame(window.ticking);
    for (const [name, plain] of window.plain_) CanvasRenderingContext2D.prototype[name] = plain;
    const frames = window.frames_.slice(1);
    frames.sort((x, y) => x - y);
    const p95 = frames[Math.floor(frames.length * 0.95)];
    return {
      longest: Math.max(...frames),
      p95,
      frames: window.frames_.length,
      calls: Math.max(...window.calls_),
      draws,
    };
  }, draws);
}

/**
 * A frame costs what its pixels cost, however much there is to show: one drawing a frame, and a bounded number of calls.
 * Times depend on who else is on the machine; they are printed and not judged.
 */
async function smooth(page, name) {
  await page.locator("#lanes").scrollIntoViewIfNeeded();
  const box = await page.locator("#lanes canvas").boundingBox();
  for (const [whole, most] of [
    [false, CALLS[0]],
    [true, CALLS[1]],
  ]) {
    if (whole) await page.getByRole("button", { name: "Whole run" }).click();
    await page.focus("#lanes");
    if (whole) for (let i = 0; i < 3; i++) await page.keyboard.press("+");
    await page.waitForTimeout(400);
    const of = await panned(page, box.y + 12, box);
    const ms = await page.locator("#lanes canvas").getAttribute("data-draw-ms");
    check(
      `${name}: panning ${whole ? "an eighth or more of the run" : "the first view"}, one drawing a frame, at most ${most} calls`,
      of.draws > 0 && of.draws <= of.frames && of.calls <= most,
      `${of.draws} drawings in ${of.frames} frames, at most ${of.calls} calls; frames of ${of.p95.toFixed(1)} ms (p95), ${of.longest.toFixed(0)} ms at most, last drawing ${ms} ms`,
    );
  }
}

/** When something was first seen, in ms since the page was asked for. */
const painted = (page) =>
  page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Number.POSITIVE_INFINITY);

/** In the first view: the typical call of each side, whole, each from its own zero; numbers of calls from 1 on. */
async function firstScreen(page, name, report) {
  const lines = await page.$$eval("#verdict [data-line]", (all) => all.map((of) => of.dataset.line));
  check(
    `${name}: the lines of the data`,
    lines.join() === report.headline.first.lines.map((of) => of.name).join(),
    lines.join(),
  );
  const proved = report.explanation?.findings.find((of) => of.counterfactual?.outcome !== "refuted")?.counterfactual;
  const outcomes = ["confirmed", "partly"];
  if (lines.includes("Proof"))
    check(`${name}: Proof only where something was proved`, outcomes.includes(proved?.outcome));
  const courses = report.sides.map(({ timeline }) => timeline.course);
  if (courses.every((of) => of.typical)) {
    for (const [nr, { typical }] of courses.entries()) {
      const shown = await own(page, nr);
      check(
        `${name}: the first view has the typical call of ${"AB"[nr]}`,
        shown.from <= typical.start_ns && shown.to >= typical.start_ns + typical.took_ns,
        JSON.stringify([shown, typical]),
      );
    }
  }
  const onset = courses.findIndex((of) => of.onset);
  if (onset >= 0) {
    const nr = Number(await page.locator(`[data-onset="${onset}"]`).getAttribute("data-v"));
    check(`${name}: the onset is marked`, nr === courses[onset].onset.at.nr, String(nr));
  }
  const { calls } = report.sides[0].timeline;
  if (calls.nr[0] === 1) {
    await page.locator('[data-align="clock"]').click();
    await page.focus("#lanes");
    await page.keyboard.press("Home");
    await page.keyboard.press("n");
    await still(page);
    const side = report.sides.length - 1;
    const row = Number(await page.locator("#call-details").getAttribute("data-call"));
    const words = await page.locator("#call-details h3").textContent();
    const number = report.sides[side].timeline.calls.nr[row];
    check(`${name}: calls are numbered from 1`, words.includes(`call ${number}:`) && number > row, words.slice(0, 40));
    await page.keyboard.press("Escape");
    await page.keyboard.press("0");
  }
  for (const [nr, side] of report.sides.entries())
    check(
      `${name}: modes of ${"AB"[nr]} are told`,
      (await page.locator(`[data-modes="${nr}"]`).count()) === Number(side.modes.length > 1),
    );
  if (courses.some((of) => of.calls > 20)) {
    const chart = page.locator('[data-chart="course"]');
    await chart.scrollIntoViewIfNeeded();
    await page.waitForTimeout(300);
    const box = await chart.boundingBox();
    await page.mouse.move(box.x + box.width * 0.5, box.y + box.height / 2);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.7, box.y + box.height / 2, { steps: 4 });
    await page.mouse.up();
    await still(page);
    const by = await page.locator("#lanes").getAttribute("data-align");
    check(`${name}: a range of calls is shown in the timeline`, by === "call", by);
    await page.mouse.move(5, 5);
    await page.focus("#lanes");
    await page.keyboard.press("0");
    await still(page);
  }
}

/** What a side's part of the first view has: its typical call, and what happens for it. */
function inFirstView({ timeline }, { from, to }) {
  const { requests, windows, course, calls } = timeline;
  const rows = (column) => column.map((_, i) => i);
  const mine = rows(requests.d).filter((i) => requests.d[i] >= 0 && requests.c[i] >= from && requests.d[i] <= to);
  const sum = (of) => mine.reduce((sum, i) => sum + of(i), 0);
  const end = (i) => requests.sector[i] + requests.sectors[i];
  const took = course.typical?.took_ns ?? to - from;
  const row = course.typical?.row ?? -1;
  const inside = rows(calls.start).filter((i) => calls.start[i] < to && calls.end[i] > from);
  const asked = windows.at.map((_, i) => i).filter((i) => windows.at[i] >= from && windows.at[i] <= to);
  const busy = mine
    .map((i) => [Math.max(from, requests.d[i]), Math.min(to, requests.c[i])])
    .sort((x, y) => x[0] - y[0]);
  let [device, until] = [0, Number.NEGATIVE_INFINITY];
  for (const [start, end] of busy) {
    device += Math.max(0, end - Math.max(start, until));
    until = Math.max(until, end);
  }
  return {
    took,
    bytes: calls.bytes[row] ?? 0,
    calls: inside.length,
    // Requests at the device on average, over the part of the view in which the run goes on.
    depth: sum((i) => Math.min(to, requests.c[i]) - Math.max(from, requests.d[i])) / Math.max(1, device),
    requests: mine.length,
    bytesEach: mine.length ? (512 * sum((i) => requests.sectors[i])) / mine.length : 0,
    service: mine.length ? sum((i) => requests.c[i] - requests.d[i]) / mine.length : 0,
    held: mine.length ? sum((i) => requests.d[i] - requests.q[i]) / mine.length : 0,
    // The square root of the way from the end of one request to the begin of the next.
    way: mine.length ? sum((i) => (i ? Math.sqrt(Math.abs(requests.sector[i] - end(i - 1))) : 0)) / mine.length : 0,
    device: Math.min(device, took),
    windows: asked.length,
    pagesEach: asked.length ? asked.reduce((sum, i) => sum + windows.nr[i], 0) / asked.length : 0,
    ofCall: requests.call.filter((call) => call === row).length,
  };
}

/** What the first view has to show of a cause: of the slow side, of the fast one, of the shares of stalls in their
 *  views. */
const MECHANISMS = {
  "plug-around-read": (slow, fast) => slow.stalled > 2 * fast.stalled && slow.stalls >= 2,
  "shared-readahead-state": (slow, fast) => slow.ofCall > fast.ofCall || slow.pagesEach < fast.pagesEach,
  "async-queue-per-task": (slow, fast) => slow.held > 1.5 * fast.held || slow.stalled > 2 * fast.stalled,
  "stale-pages-under-direct-io": (slow, fast) => slow.took - slow.device > 1.5 * (fast.took - fast.device),
  "idling-for-the-wrong-reader": (slow, fast) => slow.stalled > 1.5 * fast.stalled || slow.held > 1.5 * fast.held,
  "slice-idling": (slow, fast) => slow.stalled > 1.5 * fast.stalled || slow.held > 1.5 * fast.held,
  "window-too-small": (slow, fast) => slow.pagesEach < fast.pagesEach || slow.bytesEach < fast.bytesEach / 2,
  "readahead-off": (slow, fast) => slow.windows < fast.windows || slow.bytesEach < fast.bytesEach / 2,
  "queue-depth-one": (slow, fast) => slow.depth < 0.75 * fast.depth,
  "changed-job": (slow, fast) =>
    Math.abs(Math.log2(slow.depth / fast.depth)) > 0.4 ||
    Math.abs(Math.log2((slow.bytesEach || 1) / (fast.bytesEach || 1))) > 0.4 ||
    slow.windows > 0 !== fast.windows > 0,
  "device-latency": (slow, fast) => slow.service > 1.2 * fast.service,
  "device-bandwidth": (slow, fast) => slow.service > 1.2 * fast.service,
  "read-larger-than-window": (slow, fast) => slow.ofCall > fast.ofCall,
  "lost-locality": (slow, fast) => slow.way > 1.2 * fast.way,
  "cold-cache": (slow, fast) => slow.requests > fast.requests,
};

/** The median call drawn shows the mechanism of the first finding that stands. */
async function mechanism(page, name, report) {
  const { explanation } = report;
  const first = explanation?.findings.find((of) => of.counterfactual?.outcome !== "refuted");
  if (report.sides.length < 2 || !first) return;
  const slow = Number(explanation.b_ns >= explanation.a_ns);
  const data = await page.$eval("#lanes", (of) => ({ ...of.dataset }));
  const sides = [];
  for (const nr of [0, 1]) {
    const shown = await own(page, nr);
    const stalled = Number(data[`stalled${nr}`]) / (shown.to - shown.from);
    sides.push({ ...inFirstView(report.sides[nr], shown), stalled, stalls: Number(data[`stalls${nr}`]) });
  }
  const shows = MECHANISMS[first.rule];
  const figures = JSON.stringify({ slow: sides[slow], fast: sides[1 - slow] }, (_, of) =>
    typeof of === "number" ? Number(of.toPrecision(3)) : of,
  );
  if (!shows) return console.log(`     ${name}: nothing is asked of a view of ${first.rule}: ${figures}`);
  check(`${name}: the first view shows ${first.rule}`, shows(sides[slow], sides[1 - slow]), figures);
}

/** The address follows the view; opening it shows the same. */
async function linked(browser, name, url, report) {
  const { page, context } = await open(browser, url);
  await page.focus("#lanes");
  for (const key of ["+", "+", "ArrowRight", "n"]) await page.keyboard.press(key);
  await page.waitForFunction(() => location.hash.startsWith("#t="), null, { timeout: 10_000 }).catch(() => {});
  await page.waitForTimeout(600);
  const [hash, before] = [new URL(page.url()).hash, await page.$eval("#lanes", (of) => ({ ...of.dataset }))];
  const call = await page.locator("#call-details").getAttribute("data-call");
  await context.close();
  const again = await open(browser, `${url}${hash}`);
  const after = await again.page.$eval("#lanes", (of) => ({ ...of.dataset }));
  const near = (key) => Math.abs(Number(before[key]) - Number(after[key])) <= 1;
  check(
    `${name}: a link shows the moment`,
    hash.startsWith("#t=") && ["from", "to", "origin0"].every(near) && before.align === after.align,
    `${hash} ${after.from} ${after.to}`,
  );
  check(
    `${name}: and its call`,
    (await again.page.locator("#call-details").getAttribute("data-call")) === call,
    String(call),
  );
  await again.context.close();
  if (!report.explanation?.findings.length) return;
  const found = await open(browser, `${url}#findings`);
  await found.page.waitForTimeout(700);
  const top = await found.page.$eval("#findings", (of) => of.getBoundingClientRect().top);
  check(`${name}: #findings leads to the findings`, top > -5 && top < 200, `${top.toFixed(0)} px`);
  await found.page.getByRole("button", { name: "Show me" }).first().click();
  await still(found.page);
  check(`${name}: "show me" shows`, (await found.page.locator("#call-details[data-call]").count()) === 1);
  await found.context.close();
}

/** Everything about one page; what its first view says of stalls. */
async function one(browser, name, html, report) {
  const url = pathToFileURL(html).href;
  const { context, page, seen, ready } = await open(browser, url);
  if (!onlyFailures) {
    const heap = await page.evaluate(() => performance.memory?.usedJSHeapSize ?? 0);
    console.log(
      `     ${name}: first paint after ${(await painted(page)).toFixed(0)} ms, ready after ${ready.toFixed(0)} ms, heap ${(heap / 2 ** 20).toFixed(1)} MiB, file ${(statSync(html).size / 2 ** 20).toFixed(2)} MiB`,
    );
  }
  check(`${name}: the page is drawn`, (await page.locator("#verdict-title").count()) === 1);
  const stalls = await page.$eval("#lanes", (of) => ({ ...of.dataset }));
  if (!onlyFailures)
    console.log(
      `     ${name}: first view ${stalls.from} to ${stalls.to} ns, stalls ${stalls.stalls0 ?? "-"} (${stalls.stalled0 ?? "-"} ns) and ${stalls.stalls1 ?? "-"} (${stalls.stalled1 ?? "-"} ns)`,
    );
  await page.screenshot({ path: join(out, `${name}-first.png`) });
  await page.screenshot({ path: join(out, `${name}-light.png`), fullPage: true });
  await mechanism(page, name, report);
  await legible(page, name);
  await firstScreen(page, name, report);
  await numbers(page, report);
  await linking(page, report);
  await accessible(page, name);
  const waiting = page.waitForEvent("download", { timeout: 10_000 });
  await page.click("#download");
  const text = readFileSync(await (await waiting).path(), "utf8");
  check(`${name}: the download is the data`, JSON.stringify(JSON.parse(text)) === JSON.stringify(report));
  await context.close();
  const dark = await open(browser, url, { scheme: "dark" });
  await dark.page.screenshot({ path: join(out, `${name}-dark.png`), fullPage: true });
  await accessible(dark.page, `${name}, dark`);
  await dark.page.selectOption("#scheme", "light");
  await still(dark.page);
  await dark.page.waitForTimeout(100);
  check(
    `${name}: the toggle changes colours`,
    (await dark.page.evaluate(() => getComputedStyle(document.body).backgroundColor)) === "rgb(246, 247, 249)",
  );
  await dark.context.close();
  const all = [seen, dark.seen];
  for (const width of [360, 390]) {
    const narrow = await open(browser, url, { width, height: 844 });
    const wide = await narrow.page.evaluate(() => document.documentElement.scrollWidth);
    check(`${name}: fits ${width} px`, wide <= width, `${wide} px`);
    const head = await narrow.page.$eval("header", (of) => of.getBoundingClientRect().height);
    check(`${name}: the header leaves room at ${width} px`, head < 170, `${head.toFixed(0)} px tall`);
    await legible(narrow.page, `${name}, ${width} px`);
    if (width === 390) {
      await narrow.page.screenshot({ path: join(out, `${name}-390-first.png`) });
      await narrow.page.screenshot({ path: join(out, `${name}-390.png`), fullPage: true });
    }
    all.push(narrow.seen);
    await narrow.context.close();
  }
  await linked(browser, name, url, report);
  const asked = all.flatMap((of) => of.requests).filter((of) => of !== url && !of.startsWith("blob:"));
  check(`${name}: no request to anything`, asked.length === 0, asked.join(" "));
  const errors = all.flatMap((of) => of.errors);
  check(`${name}: no console error`, errors.length === 0, errors.slice(0, 3).join(" | "));
  return stalls;
}

/** However far the view is moved, what has no detail is drawn from bins, and the page says so. */
async function everywhere(page, name, report) {
  await page.focus("#lanes");
  await page.locator('[data-align="clock"]').click();
  await page.focus("#lanes");
  await page.keyboard.press("Home");
  for (let i = 0; i < 3; i++) await page.keyboard.press("-");
  const whole = Math.max(...report.sides.map((side) => side.timeline.elapsed_ns));
  let silent = 0;
  let views = 0;
  for (let i = 0; i < 60; i++) {
    await page.waitForTimeout(170);
    const now = await view(page);
    const words = await page.locator("#coverage").textContent();
    const unknown = (await page.locator("#coverage").getAttribute("data-unknown")).split(" ").map(Number);
    for (const [nr, { timeline }] of report.sides.entries()) {
      const inside = Math.min(now.to, timeline.elapsed_ns) - Math.max(now.from, 0);
      const known = timeline.detail.reduce(
        (sum, part) => sum + Math.max(0, Math.min(part.to_ns, now.to) - Math.max(part.from_ns, now.from)),
        0,
      );
      const lacking = (inside - known) / (now.to - now.from);
      views++;
      if (lacking > 0.01 && !(words.includes(`${"AB"[nr]}: `) && Math.abs(unknown[nr] - lacking) < 0.01)) silent++;
    }
    if (Number(await page.locator("#lanes").getAttribute("data-painted")) === 0 && now.from < whole) silent++;
    if (now.to >= whole * 0.999) break;
    for (let k = 0; k < 3; k++) await page.keyboard.press("ArrowRight");
  }
  check(`${name}: no view without detail that is not said`, silent === 0 && views > 1, `${silent} of ${views}`);
}

/** Strings that try to be more than text. */
async function hostility(browser, html, report, strings) {
  const { context, page } = await open(browser, pathToFileURL(html).href);
  await page.evaluate(() => {
    for (const of of document.querySelectorAll("details")) of.open = true;
  });
  await still(page);
  check("hostile: nothing ran", (await page.evaluate(() => window.hacked)) === undefined);
  check(
    "hostile: no element came of a string",
    (await page.locator("#app img, #app script, #app [onerror]").count()) === 0,
  );
  const text = await page.evaluate(() => document.getElementById("app").textContent);
  for (const of of strings) check(`hostile: shown as text: ${of.slice(0, 30)}`, text.includes(of));
  check("hostile: the title is text", (await page.title()).startsWith(report.title.slice(0, 20)));
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  check("hostile: 10 kB do not break the layout", wide <= 1440, `${wide} px wide`);
  const tall = await page.$eval("#verdict", (of) => of.getBoundingClientRect().height);
  check("hostile: the verdict stays readable", tall < 1700, `${tall.toFixed(0)} px tall`);
  await context.close();
}

/** A server of our own, which remembers what it was asked for; a run is in flight when it is first asked. */
async function counterfeit(report, whole = []) {
  const seen = [];
  let polls = 0;
  const server = createServer((request, response) => {
    const url = new URL(request.url, "http://x");
    const send = (type, body) => response.writeHead(200, { "content-type": type }).end(body);
    const json = (value) => send("application/json", JSON.stringify(value));
    if (url.pathname === "/") {
      const page = readFileSync(new URL("../dist/report.html", import.meta.url), "utf8");
      return send(
        "text/html",
        page
          .replace("connect-src 'none'", "connect-src 'self'")
          .replace("</head>", '<meta name="iowhy-serve" content="1"></head>'),
      );
    }
    seen.push([url.pathname + url.search, request.headers["x-iowhy-token"]]);
    if (url.pathname === "/api/sets")
      return json({
        sets: [1, 2].map((id) => ({ id: `s${id}`, label: `set ${id}`, runs: 3, job: "<b>", at: "2026-11-22" })),
      });
    if (url.pathname === "/api/report") return json(report);
    if (url.pathname === "/api/slice") return json(whole[Number(url.searchParams.get("side"))]);
    if (url.pathname === "/api/live")
      return json({ run: polls++ < 2 ? { label: "now", done: polls, total: 5, text: "running" } : null });
    return response.writeHead(204).end();
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const close = () =>
    new Promise((done) => {
      server.closeAllConnections();
      server.close(done);
    });
  return { url: `http://127.0.0.1:${server.address().port}/?token=s3cret`, seen, close };
}

/** Opens the page of a server, has two sets of its store shown, and gives both to `then` before it is closed. */
async function shown(browser, name, url, last, then) {
  const { context, page, seen } = await open(browser, url);
  await page.waitForSelector(`.served option[value="${last}"]`, { state: "attached" });
  await then.before?.(page);
  await page.getByRole("button", { name: "Show" }).click();
  await page.waitForSelector("#verdict-title", { timeout: 60_000 });
  await then.after?.(page);
  check(`${name}: no console error`, seen.errors.length === 0, seen.errors.join(" | "));
  const { origin } = new URL(url);
  const others = seen.requests.filter((of) => !of.startsWith(`${origin}/`) && !of.startsWith("blob:"));
  check(`${name}: asks nobody else`, others.length === 0, others.join(" "));
  await context.close();
}

/** The page of a server: lists, shows, follows a run; with the token of its address. */
async function serving(browser, report) {
  const { url, seen, close } = await counterfeit(report);
  await shown(browser, "serve", url, "s2", {
    before: async (page) => {
      await page.waitForSelector(".live progress", { timeout: 20_000 });
      check("serve: a run in flight shows", (await page.locator(".live progress").getAttribute("max")) === "5");
    },
  });
  check(
    "serve: asks for the chosen report",
    seen.some(([path]) => path === "/api/report?a=s2&b=s1"),
    seen.map(([path]) => path).join(" "),
  );
  const chosen = seen.length;
  const { page, context } = await open(browser, url.replace("?", "?a=s2&b=s1&"));
  await page.waitForSelector("#verdict-title");
  check(
    "serve: the choice in the address is shown",
    seen.slice(chosen).some(([path]) => path === "/api/report?a=s2&b=s1"),
  );
  await context.close();
  check(
    "serve: each request has the token",
    seen.every(([, token]) => token === "s3cret"),
  );
  await close();
}

/** A moment without detail is asked for once the view is still. */
async function sliced(browser, report, whole) {
  const { url, seen, close } = await counterfeit(report, whole);
  const { page, context } = await open(browser, url.replace("?", "?a=s2&b=s1&"));
  await page.waitForSelector("#lanes");
  await page.locator('[data-align="clock"]').click();
  await page.evaluate((end) => {
    location.hash = `#t=${Math.floor(end * 0.25)},${Math.floor(end * 0.3)}&align=clock&zero=0,0`;
  }, report.sides[1].timeline.elapsed_ns);
  const slices = () => seen.filter(([path]) => path.startsWith("/api/slice?"));
  // The first view asks as well if it was still for long enough, for the slow side alone.
  const sides = () => new Set(slices().map(([path]) => path.match(/side=\d/)?.[0])).size;
  for (let waits = 0; waits < 100 && sides() < 2; waits += 1) await page.waitForTimeout(100);
  const clear = () => document.getElementById("coverage")?.dataset.unknown === "0.000 0.000";
  await page.waitForFunction(clear, null, { timeout: 10_000 }).catch(() => {});
  const asked = slices();
  check("slice: detail comes for both sides", await page.evaluate(clear), asked.map(([path]) => path).join(" "));
  check(
    "slice: both sides, nothing twice, with the token and the choice",
    sides() === 2 &&
      new Set(asked.map(([path]) => path)).size === asked.length &&
      asked.every(([path, token]) => token === "s3cret" && /a=s2/.test(path) && /b=s1/.test(path)),
    asked.map(([path]) => path).join(" "),
  );
  await page.focus("#lanes");
  await page.keyboard.press("n");
  check("slice: its calls can be chosen", (await page.locator("#call-details[data-call]").count()) === 1);
  await context.close();
  await close();
}

/** The same with iowhy's own server, over a store with two sets. */
async function served(browser, iowhy) {
  const store = mkdtempSync(join(tmpdir(), "iowhy-served-"));
  const call = (line) => execFileSync(iowhy, line, { encoding: "utf8", maxBuffer: 1 << 28 });
  const job = [
    "dd",
    "if=/dev/sda",
    "bs=64k",
    "count=200",
    "--disk",
    "sata-2014",
    "--repeat",
    "2",
    "--trace",
    "--store",
    store,
  ];
  call(["run", ...job, "--on", "sim:linux-4.4", "--label", "before"]);
  call(["run", ...job, "--on", "sim:linux-4.4,read_ahead_kb=16", "--label", "after"]);
  const wanted = JSON.parse(call(["report", "before", "after", "--store", store, "--json"]));
  const server = spawn(iowhy, ["report", "--serve", "--store", store], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((done) => server.on("exit", done));
  try {
    const line = await Promise.race([
      new Promise((done) => createInterface(server.stdout).once("line", done)),
      ended.then((code) => Promise.reject(new Error(`iowhy report --serve ended with ${code}`))),
    ]);
    await shown(browser, "served", line.match(/http:\S+/)?.[0], "before", {
      after: (page) => numbers(page, wanted),
    });
  } finally {
    server.kill("SIGTERM");
    check("served: ends when it is told to", (await ended) === 0);
    rmSync(store, { recursive: true });
  }
}

/** Does all of it, as many at once as there are processors: each has pages of its own. */
async function atOnce(tasks) {
  const left = tasks.values();
  const worker = async () => {
    for (const task of left) await task();
  };
  await Promise.all(Array.from({ length: availableParallelism() }, worker));
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--headless=new", "--no-sandbox"],
});
try {
  if (htmlFile) {
    const name = basename(htmlFile).replace(/\.html$/, "");
    const report = jsonFile ? JSON.parse(readFileSync(jsonFile, "utf8")) : read(htmlFile);
    await one(browser, name, resolve(htmlFile), report);
    const { page, context } = await open(browser, pathToFileURL(resolve(htmlFile)).href);
    await smooth(page, name);
    await context.close();
  } else {
    const { reports, whole, hostileStrings } = await samples();
    const file = (name, json) => {
      const path = join(out, `${name}.html`);
      writeFileSync(path, json === null ? readFileSync(new URL("../dist/report.html", import.meta.url)) : packed(json));
      return path;
    };
    const sample = (name) => one(browser, name, file(name, JSON.stringify(reports[name])), reports[name]);
    /** Opens a page that has been made, for `then`. */
    const opened = async (name, then) => {
      const { context, page, seen } = await open(browser, pathToFileURL(join(out, `${name}.html`)).href);
      await then(page, seen);
      await context.close();
    };
    const written = reportsFolder ? readdirSync(reportsFolder).filter((of) => of.endsWith(".html")) : [];
    await atOnce([
      async () => {
        await sample("plugged");
        await opened("plugged", async (page) => {
          const first = await page.$eval("#lanes", (of) => ({ ...of.dataset }));
          check(
            "plugged: stalls of B are seen at first, A has next to none",
            Number(first.stalls1) >= 3 && Number(first.stalled0) < Number(first.stalled1) / 20,
            JSON.stringify(first),
          );
          await page.emulateMedia({ media: "print" });
          await page.pdf({ path: join(out, "plugged.pdf"), printBackground: true });
        });
      },
      async () => {
        await sample("busy");
        await opened("busy", (page) => smooth(page, "busy"));
      },
      async () => {
        await sample("hostile");
        await hostility(browser, join(out, "hostile.html"), reports.hostile, hostileStrings);
      },
      async () => {
        await sample("gaps");
        await opened("gaps", (page) => everywhere(page, "gaps", reports.gaps));
        await sliced(browser, reports.gaps, whole);
      },
      async () => {
        file("empty", null);
        await opened("empty", async (page, seen) => {
          check("empty: says so", (await page.locator("h1").textContent()) === "No report in this page");
          check("empty: asks for nothing", seen.requests.length === 1 && seen.errors.length === 0);
          const refused = await page.evaluate(
            () =>
              new Promise((done) => {
                document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
                fetch("http://127.0.0.1:9/").catch(() => setTimeout(() => done("none"), 1000));
              }),
          );
          check("empty: the policy refuses a request", refused === "connect-src", refused);
        });
        file("alone", JSON.stringify(reports.alone));
        await opened("alone", async (page, seen) => {
          const letters = await page.$$eval("#verdict .letter", (all) => all.map((of) => of.textContent).join(""));
          check("alone: one set of runs is one side", !letters.includes("B") && letters.includes("A"), letters);
          check("alone: no half is drawn twice", (await page.locator(".lane-side").count()) === 1);
          check("alone: no console error", seen.errors.length === 0, seen.errors.join(" | "));
          await page.screenshot({ path: join(out, "alone-first.png") });
        });
        await serving(browser, reports.plugged);
        if (iowhy) await served(browser, resolve(iowhy));
      },
      ...written.sort().map((html) => async () => {
        const path = join(resolve(reportsFolder), html);
        const stalls = await one(browser, html.replace(/\.html$/, ""), path, read(path));
        if (html.startsWith("2012-plugged"))
          check(
            "2012: the first view shows stalls between the windows of B, and none of A",
            Number(stalls.stalls0) === 0 && Number(stalls.stalls1) >= 2,
            JSON.stringify(stalls),
          );
      }),
    ]);
  }
} finally {
  await browser.close();
}
console.log(failed === 0 ? `all ${checks} checks passed` : `${failed} of ${checks} checks failed`);
process.exitCode = failed === 0 ? 0 : 1;
