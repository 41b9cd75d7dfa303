// Builds dist/report.html (one file: style, script, placeholder for the data) and dist/SOURCES (a hash of what it was
// built from). `node build.mjs --check` writes nothing and fails if dist is not what the sources give.
//
// Rule of the hash in dist/SOURCES: take build.mjs, package.json, package-lock.json and every regular file below src/,
// each named by its path from this folder with `/` between parts (`src/app.tsx`). Sort the names by their bytes. Feed one
// SHA-256 with, for each file: the name in UTF-8, one zero byte, the length of the file in decimal digits, one zero byte,
// the bytes of the file. SOURCES is the digest in lower-case hex and one newline.
//
// The page has one line with `<script type="application/octet-stream" id="iowhy-data" ...></script>`. Whoever writes a
// report puts base64 of gzip of the JSON between its tags. A server puts `<meta name="iowhy-serve" content="1">` before
// `</head>` and `connect-src 'self'` where the policy says `connect-src 'none'`; nothing else changes.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, transform } from "esbuild";
import { types } from "./types.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const placeholder = '<script type="application/octet-stream" id="iowhy-data" data-encoding="gzip+base64"></script>';

function below(folder) {
  return readdirSync(join(here, folder), { withFileTypes: true }).flatMap((entry) => {
    const name = `${folder}/${entry.name}`;
    if (entry.isDirectory()) return below(name);
    return entry.isFile() ? [name] : [];
  });
}

export function sourcesHash() {
  const names = ["build.mjs", "package.json", "package-lock.json", ...below("src")];
  names.sort((x, y) => Buffer.compare(Buffer.from(x), Buffer.from(y)));
  const hash = createHash("sha256");
  for (const name of names) {
    const bytes = readFileSync(join(here, name));
    hash.update(name).update("\0").update(String(bytes.length)).update("\0").update(bytes);
  }
  return `${hash.digest("hex")}\n`;
}

const policyHash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

async function page() {
  const bundle = await build({
    entryPoints: [join(here, "src/main.tsx")],
    absWorkingDir: here,
    bundle: true,
    write: false,
    minify: true,
    format: "iife",
    target: "es2022",
    jsx: "automatic",
    jsxImportSource: "preact",
    charset: "utf8",
    legalComments: "none",
  });
  const script = bundle.outputFiles[0].text.trim();
  const css = await transform(readFileSync(join(here, "src/style.css"), "utf8"), {
    loader: "css",
    minify: true,
    charset: "utf8",
  });
  const style = css.code.trim();
  for (const [text, end] of [
    [script, /<\/script|<!--/i],
    [style, /<\/style/i],
  ]) {
    if (end.test(text)) throw new Error(`the bundle would end its own element: ${end}`);
  }
  const policy = [
    "default-src 'none'",
    `script-src ${policyHash(script)}`,
    `style-src ${policyHash(style)}`,
    "connect-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>iowhy report</title>
<style>${style}</style>
</head>
<body>
<div id="app"><main class="plain"><h1>iowhy report</h1><p>Unpacking the report. It needs JavaScript.</p></main></div>
${placeholder}
<script>${script}</script>
</body>
</html>
`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const made = { "report.html": await page(), SOURCES: sourcesHash() };
  if (made["report.html"].split(placeholder).length !== 2) throw new Error("not exactly one placeholder");
  const dist = join(here, "dist");
  if (readFileSync(join(here, "src/types.ts"), "utf8") !== types()) {
    throw new Error("src/types.ts is not what ../schema gives: npm run types");
  }
  if (process.argv.includes("--check")) {
    for (const [name, text] of Object.entries(made)) {
      if (readFileSync(join(dist, name), "utf8") !== text) {
        console.error(`dist/${name} is stale: npm run build`);
        process.exitCode = 1;
      }
    }
  } else {
    mkdirSync(dist, { recursive: true });
    for (const [name, text] of Object.entries(made)) writeFileSync(join(dist, name), text);
    console.log(`dist/report.html ${(made["report.html"].length / 1024).toFixed(1)} KiB`);
  }
}
