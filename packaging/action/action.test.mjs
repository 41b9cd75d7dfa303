// The steps of the action, run as GitHub runs them, against a stand-in of its API.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";

const here = fileURLToPath(new URL(".", import.meta.url));
const action = parse(readFileSync(join(here, "action.yml"), "utf8"));

// Comments of pull requests, as GitHub keeps them. A page is full once, so that the second one is asked for.
function github(comments, calls) {
    return createServer((request, response) => {
        let text = "";
        request.on("data", (part) => (text += part));
        request.on("end", () => {
            const url = new URL(request.url, "http://localhost");
            const answer = (code, value) => response.writeHead(code).end(JSON.stringify(value));
            calls.push(`${request.method} ${url.pathname}`);
            if (request.headers.authorization !== "Bearer secret") return answer(403, { message: "Forbidden" });
            if (url.pathname === "/repos/me/mine/issues/7/comments" && request.method === "GET") {
                const [page, size] = [url.searchParams.get("page"), url.searchParams.get("per_page")].map(Number);
                return answer(200, comments.slice((page - 1) * size, page * size));
            }
            if (url.pathname === "/repos/me/mine/issues/7/comments" && request.method === "POST") {
                comments.push({ id: 1000 + comments.length, ...JSON.parse(text) });
                return answer(201, comments.at(-1));
            }
            const id = Number(url.pathname.match(/^\/repos\/me\/mine\/issues\/comments\/(\d+)$/)?.[1]);
            const found = comments.find((comment) => comment.id === id);
            if (!found || request.method !== "PATCH") return answer(404, { message: "Not Found" });
            answer(200, Object.assign(found, JSON.parse(text)));
        });
    });
}

// Runs the steps that have a command. Steps of other actions only move the store, which stays where it is here.
async function run(temp, port, inputs, more) {
    const output = join(temp, "output");
    for (const file of [output, join(temp, "summary")]) writeFileSync(file, "");
    writeFileSync(join(temp, "event"), JSON.stringify(more.event ?? {}));
    const given = { ...Object.fromEntries(Object.entries(action.inputs).map(([key, it]) => [key, it.default])), ...inputs };
    const context = { "github.event.repository.default_branch": "main", "github.token": "secret" };
    for (const [key, value] of Object.entries(given)) context[`inputs.${key}`] = value;
    const fill = (text) =>
        String(text).replace(/\$\{\{ ([\w.-]+) \}\}/g, (_, key) => {
            assert.ok(context[key] !== undefined, key);
            return fill(context[key]);
        });
    let [code, said] = [0, ""];
    for (const step of action.runs.steps.filter((step) => step.run)) {
        const env = Object.fromEntries(Object.entries(step.env).map(([key, value]) => [key, fill(value)]));
        const child = spawn(step.shell, ["-e", "-c", step.run], {
            env: {
                PATH: process.env.PATH, RUNNER_TEMP: temp, GITHUB_ACTION_PATH: here, GITHUB_OUTPUT: output,
                GITHUB_STEP_SUMMARY: join(temp, "summary"), GITHUB_EVENT_PATH: join(temp, "event"),
                GITHUB_API_URL: `http://127.0.0.1:${port}`, GITHUB_REPOSITORY: "me/mine", GITHUB_RUN_ID: String(more.id),
                GITHUB_EVENT_NAME: more.event ? "pull_request" : "push", GITHUB_REF_NAME: more.event ? "x" : "main",
                ...env,
            },
        });
        for (const stream of [child.stdout, child.stderr]) stream.on("data", (part) => (said += part));
        code = await new Promise((resolve) => child.on("close", resolve));
        if (code !== 0) break;
    }
    const outputs = Object.fromEntries(readFileSync(output, "utf8").trim().split("\n").map((line) => line.split("=")));
    return { code, said, outputs };
}

test("baseline, gate, one comment that is changed, badge", async () => {
    const temp = mkdtempSync(join(tmpdir(), "iowhy-action-"));
    const comments = Array.from({ length: 100 }, (_, id) => ({ id, body: `comment ${id}` }));
    const calls = [];
    const server = github(comments, calls);
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    try {
        const job = (ahead) => ({
            iowhy: process.env.IOWHY, repeat: "6", name: "reads", metrics: "elapsed_s read_mib_s",
            job: `fio --name=j --rw=randread --bs=4k --size=1m --on sim:linux-6.18 --disk ${ahead}`,
        });
        const go = (disk, id, event, more) => run(temp, server.address().port, { ...job(disk), ...more }, { id, event });
        const request = { pull_request: { number: 7 } };
        const [same, slow] = ["ssd-sata-2011", "ide-2004"];

        const first = await go(same, 1, request);
        assert.deepEqual([first.code, first.outputs.outcome, first.outputs.updated], [0, "first", "false"], first.said);
        assert.equal(comments.length, 101);
        assert.match(comments[100].body, /^<!-- iowhy: reads -->\n.*no baseline yet/);

        const push = await go(same, 2);
        assert.deepEqual([push.code, push.outputs.updated], [0, "true"], push.said);

        const slower = await go(slow, 3, request);
        assert.deepEqual([slower.code, slower.outputs.outcome], [1, "fail"], slower.said);
        assert.equal(comments.length, 101, "the comment is changed, and there is not a second one");
        assert.match(comments[100].body, /slower than the baseline/);
        assert.match(comments[100].body, /\| elapsed_s \|.*\| regression \|/);
        assert.match(comments[100].body, /```mermaid\nxychart-beta\n[^`]*bar \[\d/);
        assert.deepEqual(JSON.parse(readFileSync(slower.outputs.badge, "utf8")), {
            schemaVersion: 1, label: "I/O reads", message: "slower", color: "red",
        });

        const fine = await go(same, 4, request);
        assert.deepEqual([fine.code, fine.outputs.outcome], [0, "pass"], fine.said);
        assert.match(comments[100].body, /passed/);
        assert.deepEqual(calls.filter((call) => !call.startsWith("GET")).map((call) => call.split(" ")[0]), [
            "POST", "PATCH", "PATCH",
        ]);

        const fork = await go(same, 5, request, { token: "of a fork" });
        assert.equal(fork.code, 0, fork.said);
        assert.match(fork.said, /::warning title=iowhy reads::the comment could not be written/);

        const push_slow = await go(slow, 6);
        assert.deepEqual([push_slow.code, push_slow.outputs.updated], [1, "false"], "a regression is no baseline");
    } finally {
        server.close();
        rmSync(temp, { recursive: true });
    }
});
