// `node tests/make-samples.mjs DIR` writes sample reports, as JSON and packed into the page.
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { packed } from "./pack.mjs";

const here = dirname(fileURLToPath(import.meta.url));

export async function samples() {
  const bundle = await build({ entryPoints: [join(here, "sample.ts")], bundle: true, write: false, format: "esm" });
  const url = `data:text/javascript;base64,${Buffer.from(bundle.outputFiles[0].text).toString("base64")}`;
  const { sample, hostile, gaps, HOSTILE } = await import(url);
  const kept = gaps();
  const whole = sample();
  const alone = {
    ...whole,
    sides: whole.sides.slice(0, 1),
    explanation: null,
    comparison: null,
    matrix: null,
    shift: [],
    differences: [],
  };
  alone.headline = {
    ...whole.headline,
    verdict: "none",
    first: { title: "Reading 40 MiB takes 0.05 s.", factor: null, lines: [] },
  };
  return {
    whole: kept.whole,
    reports: {
      plugged: sample(),
      gaps: kept.report,
      alone,
      busy: sample({ kind: "busy", calls: 4000, seed: 3 }),
      hostile: hostile(),
    },
    hostileStrings: HOSTILE,
  };
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const folder = process.argv[2];
  if (!folder) throw new Error("usage: node tests/make-samples.mjs DIR");
  mkdirSync(folder, { recursive: true });
  for (const [name, report] of Object.entries((await samples()).reports)) {
    const json = JSON.stringify(report);
    writeFileSync(join(folder, `${name}.json`), json);
    writeFileSync(join(folder, `${name}.html`), packed(json));
  }
}
