//! `iowhy mcp` as a client drives it: requests on its standard input, a line each.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::compare::{Folder, values};
use super::{check_schema, iowhy};

struct Client {
    server: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last: u64,
    /// Notes of progress so far.
    notes: Vec<Value>,
}

impl Client {
    fn start(options: &[&str]) -> Client {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        command.arg("mcp").args(options).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().expect("the server starts");
        let (input, output) = (server.stdin.take(), server.stdout.take().expect("a pipe"));
        let mut client = Client { server, input, output: BufReader::new(output), last: 0, notes: Vec::new() };
        let about = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about});
        let answer = client.request("initialize", &hello);
        assert_eq!(answer["result"]["serverInfo"]["name"], "iowhy", "{answer}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().expect("it is open"), "{message}").expect("the server reads");
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the server writes");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: `{line}`"))
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}));
        id
    }

    fn request(&mut self, method: &str, parameters: &Value) -> Value {
        let id = self.ask(method, parameters);
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message;
            }
            self.notes.push(message);
        }
    }

    /// The result of a call.
    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        let meta = json!({"progressToken": name});
        let answer = self.request("tools/call", &json!({"name": name, "arguments": arguments, "_meta": meta}));
        let result = answer["result"].clone();
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer:#}"));
        let text: Value = serde_json::from_str(text).expect("the text is JSON");
        assert_eq!(text, result["structuredContent"]);
        result
    }

    fn tools(&mut self) -> Vec<Value> {
        self.request("tools/list", &json!({}))["result"]["tools"].as_array().expect("tools").clone()
    }

    fn end(mut self) -> Option<i32> {
        self.input.take();
        self.server.wait().expect("it ends").code()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It has ended, or a test has failed.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn answers_are_those_of_the_verbs() {
    let folder = Folder::new("tools");
    let (base, slower) = (folder.file("base", &values(40, 100.0)), folder.file("slower", &values(40, 110.0)));
    let job = ["dd", "if=big", "bs=64k", "count=200"];
    let places = ["sim:linux-4.4", "sim:linux-4.4,read_ahead_kb=16"];
    let mut client = Client::start(&[]);
    for (name, arguments, line, exit) in [
        ("explain", json!({"what": ["2012-plugged-readahead"], "runs": 2}), "2012-plugged-readahead --runs 2", 0),
        ("explain", json!({"what": places, "job": job}), &format!("{} -- {}", places.join(" "), job.join(" ")), 0),
        ("check", json!({"samples": true, "files": [base, slower]}), &format!("--samples {base} {slower}"), 1),
        (
            "compare",
            json!({"samples": true, "what": [base, slower], "draws": 99, "metric": "value"}),
            &format!("--samples {base} {slower} --draws 99 --metric value"),
            1,
        ),
        ("models", json!({"kind": "device"}), "device", 0),
        ("incident", json!({}), "list", 0),
    ] {
        let (verb, job) = line.split_once(" -- ").map_or((line, None), |(verb, job)| (verb, Some(job)));
        let output = iowhy(&format!("{name} {verb} --json{}", job.map(|job| format!(" -- {job}")).unwrap_or_default()));
        let expected: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let result = client.call(name, &arguments);
        assert_eq!(result["structuredContent"], expected, "{name} {arguments}");
        assert_eq!((&result["isError"], &result["_meta"]["exit"]), (&json!(false), &json!(exit)), "{name} {arguments}");
        check_schema(name, &expected);
    }
    let begun = |of: &&Value| of["method"] == "notifications/progress" && of["params"]["progress"] == 0.0;
    assert_eq!(client.notes.iter().filter(begun).count(), 6, "{:#?}", client.notes);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn mistakes_end_their_call_only() {
    let mut client = Client::start(&[]);
    for (name, arguments, expected) in [
        ("explane", json!({}), &["unknown tool `explane`", "explain"][..]),
        ("prove", json!({"what": ["2012-plugged-readahead"]}), &["--allow-changes"]),
        ("explain", json!({}), &["`explain` needs the input `what`"]),
        (
            "explain",
            json!({"wat": 1, "runs": "x", "disk": ["y"], "what": {}}),
            &["has no input `wat`", "\"what\"", "`disk` takes text", "`what` takes text"],
        ),
        ("explain", json!({"what": ["2012-plugged-readahead", "--prove"]}), &["do not begin with `-`"]),
        ("explain", json!({"what": ["2012-plugged-readahead"], "prove": true}), &["has no input `prove`"]),
        ("explain", json!({"what": ["2012-plugged-readahed"]}), &["2012-plugged-readahead"]),
        ("explain", json!({"what": ["2012-plugged-readahead"], "runs": 0}), &["--runs"]),
        ("explain", json!({"what": ["x"], "job": ["--allow-write=/"]}), &["by people only"]),
        (
            "explain",
            json!({"what": ["sim:linux-4.4", "sim:linux-6.1"], "job": ["dd", "if=big", "count=8", "--on", "live"]}),
            &["one `--on`"],
        ),
        ("compare", json!({"samples": "yes", "what": ["a", "b"]}), &["`samples` takes true or false"]),
        ("check", json!({"samples": true, "files": ["/no/such", "/nor/this"]}), &["/no/such", "/nor/this"]),
        ("check", json!({"samples": true, "files": ["a", "b"], "junit": "x.xml"}), &["has no input `junit`"]),
        ("store_show", json!({"what": "a\u{0}b"}), &["zero bytes"]),
    ] {
        let result = client.call(name, &arguments);
        let error = &result["structuredContent"];
        assert_eq!(result["isError"], true, "{name} {arguments}: {result:#}");
        assert_eq!((&error["schema"], &error["exit"]), (&json!("iowhy.error/1"), &json!(2)), "{name} {arguments}");
        let problems = error["problems"].as_array().expect("problems");
        assert!(!problems.is_empty() && problems.iter().all(|of| of["message"].is_string()), "{error:#}");
        for words in expected {
            assert!(error.to_string().contains(words), "{name}: no `{words}` in {error:#}");
        }
    }
    assert_eq!(client.call("models", &json!({}))["isError"], false);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn without_permission_every_tool_only_reads() {
    let names = |tools: &[Value]| tools.iter().map(|of| of["name"].as_str().expect("a name").to_owned()).collect();
    let mut client = Client::start(&[]);
    let tools = client.tools();
    let reading: Vec<String> = names(&tools);
    for expected in ["doctor", "explain", "compare", "check", "history"] {
        assert!(reading.iter().any(|name| name == expected), "{reading:?}");
    }
    for tool in &tools {
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool:#}");
        let inputs = &tool["inputSchema"];
        assert_eq!((&inputs["type"], &inputs["additionalProperties"]), (&json!("object"), &json!(false)));
        let inputs = inputs["properties"].as_object().expect("inputs");
        assert!(inputs.values().all(|of| of["description"].as_str().is_some_and(|text| !text.is_empty())), "{tool:#}");
        for writes in ["fix", "junit", "openmetrics", "report", "output", "live", "prove", "force", "allow_write"] {
            assert!(!inputs.contains_key(writes), "{writes}: {tool:#}");
        }
    }
    let explain = tools.iter().find(|tool| tool["name"] == "explain").expect("it is there");
    assert_eq!(explain["inputSchema"]["required"], json!(["what"]));
    assert_eq!(explain["inputSchema"]["properties"]["what"]["maxItems"], 2);
    assert_eq!(explain["inputSchema"]["properties"]["runs"]["type"], "integer");
    client.end();

    let mut client = Client::start(&["--allow-changes"]);
    let tools = client.tools();
    let more: Vec<String> = names(&tools);
    let added: Vec<&String> = more.iter().filter(|name| !reading.contains(name)).collect();
    assert_eq!(added, ["prove", "run", "trace_record"]);
    assert!(tools.iter().all(|of| of["annotations"]["readOnlyHint"] == !added.iter().any(|name| of["name"] == **name)));
    let result = client.call("prove", &json!({"what": ["2012-plugged-readahead"], "runs": 3}));
    let outcome = &result["structuredContent"]["findings"][0]["counterfactual"]["outcome"];
    assert_eq!(outcome, "confirmed", "{result:#}");
    let words = ["dd", "if=big", "bs=64k", "count=20", "--on", "sim:linux-4.4"];
    let result = client.call("run", &json!({"arguments": words}));
    check_schema("run", &result["structuredContent"]);
    let result = client.call("run", &json!({"arguments": ["dd", "if=big", "--allow-write=/dev/sda"]}));
    assert_eq!(result["isError"], true);
    client.end();
}

/// Whether a process has this word in its command line.
fn is_alive(word: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("there are processes").flatten();
    let mut lines = processes.filter_map(|of| fs::read(of.path().join("cmdline")).ok());
    lines.any(|line| line.windows(word.len()).any(|part| part == word.as_bytes()))
}

#[test]
fn cancelled_calls_end_and_so_do_those_of_a_client_that_is_gone() {
    for (how, code) in [("cancelled", 0), ("closed", 0), ("SIGTERM", 143)] {
        let word = format!("--store=/iowhy-{how}-{}", std::process::id());
        let store = word.trim_start_matches("--store=");
        let mut client = Client::start(&[]);
        let arguments = json!({"what": ["2004-random-read-split"], "runs": 1000, "store": store});
        let meta = json!({"progressToken": how});
        let id = client.ask("tools/call", &json!({"name": "explain", "arguments": arguments, "_meta": meta}));
        let note = client.receive();
        assert_eq!(note["params"]["progressToken"], how, "{note}");
        let until = |what: &str, alive: bool| {
            let started = Instant::now();
            while is_alive(&word) != alive {
                assert!(started.elapsed() < Duration::from_secs(60), "{how}: the call has not {what}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        until("begun", true);
        match how {
            "cancelled" => {
                let of = json!({"requestId": id, "reason": "enough"});
                client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": of}));
                until("ended", false);
                assert_eq!(client.call("models", &json!({}))["isError"], false, "others go on");
            }
            "SIGTERM" => {
                let sent = Command::new("kill").args(["-s", "TERM", &client.server.id().to_string()]).status();
                assert!(sent.expect("kill starts").success());
            }
            _ => {}
        }
        assert_eq!(client.end(), Some(code), "{how}");
        assert!(!is_alive(&word), "{how}: the server has ended before its call");
    }
}
