//! `iowhy report --serve`: what it answers, whom it refuses, runs in flight, its end.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use iowhy_lab::report::html;
use serde_json::Value;

use super::{Folder, check_schema, json as json_of, refused};

/// The longest that anything takes, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

const JOB: &str = "dd if=/dev/sda bs=64k count=100";

/// A process that is ended with its value.
struct Process(Child);

impl Process {
    fn new(line: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iowhy"));
        let command = command.args(line.split_whitespace()).env("NO_COLOR", "1");
        Process(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command starts"))
    }

    /// Sends a signal, and waits for the end.
    fn signal(&mut self, name: &str) -> ExitStatus {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status();
        assert!(sent.expect("kill starts").success(), "{name}");
        let begun = Instant::now();
        loop {
            match self.0.try_wait().expect("it is ours") {
                Some(status) => return status,
                None => assert!(begun.elapsed() < PATIENCE, "it does not end at {name}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Server {
    process: Process,
    port: u16,
    token: String,
}

/// An answer.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Server {
    fn new(store: &str) -> Server {
        let mut process = Process::new(&format!("report --serve --store {store} --json"));
        let out = process.0.stdout.take().expect("it is piped");
        let said = serde_json::Deserializer::from_reader(out).into_iter::<Value>().next();
        let said = said.expect("it says where it is").expect("JSON");
        check_schema("report.serve", &said);
        let port = said["port"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
        let token = said["token"].as_str().expect("a token").to_owned();
        assert_eq!(said["url"], format!("http://127.0.0.1:{port}/?token={token}"));
        assert!(token.len() >= 32 && token.chars().all(|c| c.is_ascii_hexdigit()), "{token}");
        Server { process, port, token }
    }

    /// A connection on which this has been sent.
    fn sent(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        // A server that refuses need not read everything.
        let _ = stream.write_all(text.as_bytes());
        stream
    }

    /// What it answers to a request in so many words; nothing if it hangs up.
    fn raw(&self, text: &str) -> Option<Answer> {
        let mut bytes = Vec::new();
        // What came before a reset counts.
        let _ = self.sent(text).read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Some(Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
    }

    fn asked(&self, first: &str, headers: &[String]) -> Answer {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        self.raw(&format!("{first} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n")).expect("an answer")
    }

    fn host(&self) -> String {
        format!("Host: 127.0.0.1:{}", self.port)
    }

    fn key(&self) -> String {
        format!("X-Iowhy-Token: {}", self.token)
    }

    /// What it answers to whoever may ask.
    fn get(&self, path: &str) -> Answer {
        self.asked(&format!("GET {path}"), &[self.host(), self.key()])
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        // A body of unknown length would come in chunks.
        assert!(!answer.head.contains("chunked"), "{}", answer.head);
        serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

/// A store with runs of some labels, and where it is.
fn store(name: &str, labels: &[(&str, &str)]) -> (Folder, String) {
    let folder = Folder::new(name);
    let store = folder.0.join("store").display().to_string();
    for (label, more) in labels {
        json_of(&format!("run {JOB} --on sim:linux-4.4{more} --label {label} --store {store} --json"));
    }
    (folder, store)
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

const HOSTILE: &str = "<script>alert(1)</script>&a=\"+%\u{202e}";

#[test]
fn it_serves_the_page_the_sets_and_what_the_report_says_of_them() {
    // Labels that mean something else everywhere but in the store: an incident, a place, a file that is there.
    let (_folder, store) = store(
        "serve-answers",
        &[
            ("Cargo.toml", " --repeat 3 --trace"),
            ("2012-plugged-readahead", ",read_ahead_kb=16 --repeat 2 --trace --warm-up 1"),
            ("sim:linux-6.18", " --trace"),
            (HOSTILE, ",read_ahead_kb=16 --repeat 2 --trace"),
            ("bare", ""),
        ],
    );
    let server = Server::new(&store);
    let page = server.asked(&format!("GET /?token={}", server.token), &[server.host()]);
    let (expected, policy) = html::served();
    assert_eq!((page.status, &page.body), (200, &expected));
    let policy = format!("content-security-policy: {}; frame-ancestors 'none'", policy.to_ascii_lowercase());
    assert!(page.head.contains(&policy) && page.head.contains("content-type: text/html"), "{}", page.head);
    let head = server.asked(&format!("HEAD /?token={}", server.token), &[server.host()]);
    assert_eq!((head.status, head.body.len()), (200, 0));

    let sets = server.json("/api/sets");
    let of =
        |key: &str| -> Vec<&Value> { sets["sets"].as_array().expect("sets").iter().map(|set| &set[key]).collect() };
    // The latest first; without events there is nothing to explain.
    assert_eq!(of("id"), [HOSTILE, "sim:linux-6.18", "2012-plugged-readahead", "Cargo.toml"]);
    assert_eq!((of("label"), of("runs")), (of("id"), [2, 1, 2, 3].map(Value::from).iter().collect()));
    assert!(of("job").iter().all(|job| **job == JOB) && of("at").iter().all(|at| at.is_string()), "{sets}");
    let listed = json_of(&format!("store list bare --last 1 --store {store} --json"));
    let last = listed["runs"][0]["started_ns"].as_u64().expect("a time");
    assert!(of("at")[0].as_str() <= Some(&iowhy_lab::store::moment(last)), "{sets}");

    // The same as the command prints, where the command can be asked: it takes two of the labels for other things.
    json_of(&format!("store tag Cargo.toml mine --store {store} --json"));
    let [a, b] = ["Cargo.toml", HOSTILE].map(escaped);
    let mut served = server.json(&format!("/api/report?a={a}&b={b}"));
    check_schema("report", &served);
    let printed = json_of(&format!("report mine {HOSTILE} --store {store} --json"));
    assert_eq!(served["sides"][0]["label"], "Cargo.toml");
    // There the first side has the name of the tag.
    let renamed = served.to_string().replace("Cargo.toml", "mine");
    served = serde_json::from_str(&renamed).expect("JSON");
    assert!(served == printed, "the server tells something else than the command");
    let alone = server.json(&format!("/api/report?a={a}"));
    // Three runs have one mode: one side.
    assert_eq!(
        (alone["sides"].as_array().map(Vec::len), alone["headline"]["verdict"].as_str()),
        (Some(1), Some("none"))
    );
    for name in ["2012-plugged-readahead", "sim:linux-6.18"] {
        let side = &server.json(&format!("/api/report?b={}&a={a}", escaped(name)))["sides"][1];
        assert!(side["label"] == name && side["facts"].to_string().contains("4.4"), "{name}: {}", side["label"]);
    }

    // Any moment of a run, whether the report has it in detail or not.
    let elapsed = served["sides"][1]["timeline"]["elapsed_ns"].as_u64().expect("a time");
    let part = format!("/api/slice?a={a}&b={b}&side=1&from={}&to={}", elapsed / 2, elapsed / 2 + 1_000_000);
    let slice = server.json(&part);
    assert_eq!(server.json(&part), slice);
    assert_eq!(server.json(&format!("/api/report?a={a}&b={b}"))["sides"][1]["timeline"]["calls"], slice["calls"]);
    for (query, status, words) in [
        ("a=Cargo.toml&side=2&from=0&to=1", 400, "side 0 or 1"),
        ("a=Cargo.toml&side=0&from=1&to=1", 400, "ends after it begins"),
        ("a=Cargo.toml&side=0&from=1", 400, "has a number `to`"),
        ("a=Cargo.toml&side=0&from=-1&to=1", 400, "has a number `from`"),
        ("side=0&from=0&to=1", 400, "a report is of one set"),
        ("a=nobody&side=0&from=0&to=1", 404, "`nobody`"),
        ("a=%zz&side=0&from=0&to=1", 400, "escape"),
    ] {
        let answer = server.get(&format!("/api/slice?{query}"));
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
        assert!(answer.body.contains(words), "{query}: {}", answer.body);
    }

    for (query, status, words) in [
        ("", 400, "a report is of one set"),
        ("?", 400, "a report is of one set"),
        ("?b=mine", 400, "a report is of one set"),
        ("?a=&b=mine", 400, "a report is of one set"),
        ("?a=%zz", 400, "escape"),
        ("?a=%F", 400, "escape"),
        ("?a=%FF", 400, "escape"),
        ("?a=mine&b=%", 400, "escape"),
        ("?a=sim%3Alinux-6.18", 400, "single run"),
        ("?a=nobody", 404, "`nobody`"),
        ("?a=bare", 404, "`bare`"),
        ("?a=Cargo.toml&b=2012-direct-io-stale-cache", 404, "`2012-direct-io-stale-cache`"),
        ("?a=Cargo.toml&b=sim%3Alinux-4.4", 404, "`sim:linux-4.4`"),
        ("?a=src%2Fmain.rs", 404, "`src/main.rs`"),
        ("?a=Cargo.toml,Cargo.toml", 404, "`Cargo.toml,Cargo.toml`"),
    ] {
        let answer = server.get(&format!("/api/report{query}"));
        assert_eq!(answer.status, status, "{query}: {}", answer.body);
        assert!(answer.body.contains(words) && answer.head.contains("text/plain"), "{query}: {}", answer.body);
    }
}

#[test]
fn it_listens_here_only_and_refuses_everybody_else() {
    let (_folder, store) = store("serve-refuses", &[("a", " --repeat 2 --trace")]);
    let mut server = Server::new(&store);
    let (host, key, port) = (server.host(), server.key(), server.port);
    // /proc/net/tcp: local address, remote address, state; 0A is one that listens.
    let mut listening = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let fields = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ours = fields.filter(|fields| fields.get(3) == Some(&"0A"));
        let local = ours.filter_map(|fields| fields.get(1).map(|local| (*local).to_owned()));
        listening.extend(local.filter(|local| local.ends_with(&format!(":{port:04X}"))));
    }
    assert_eq!(listening, [format!("{:08X}:{port:04X}", u32::from_ne_bytes([127, 0, 0, 1]))]);

    // Half a request, and a connection without any, keep nobody waiting.
    let _half = server.sent(&format!("GET /api/sets HTTP/1.1\r\n{host}\r\nX-Iowhy-Tok"));
    let _none = server.sent("");
    let paths = ["/api/sets", "/api/live", "/api/report?a=a", "/api/slice?a=a&side=0&from=0&to=9"].map(str::to_owned);
    let page = format!("/?token={}", server.token);
    let wrong = "0".repeat(server.token.len());
    for path in &paths {
        assert_eq!(server.get(path).status, 200, "{path}");
        for keys in [
            vec![],
            vec![format!("X-Iowhy-Token: {wrong}")],
            vec!["X-Iowhy-Token:".to_owned()],
            vec![format!("X-Iowhy-Token: {}", &server.token[1..])],
            vec![format!("{key}0")],
        ] {
            let headers: Vec<String> = [host.clone()].into_iter().chain(keys).collect();
            let answer = server.asked(&format!("GET {path}"), &headers);
            assert_eq!((answer.status, answer.body.as_str()), (403, ""), "{path}: {headers:?}");
        }
        let in_query = format!("{path}{}token={}", if path.contains('?') { '&' } else { '?' }, server.token);
        assert_eq!(server.asked(&format!("GET {in_query}"), std::slice::from_ref(&host)).status, 403, "{path}");
    }
    for query in ["", "?token=", "?token", &format!("?token={wrong}"), &format!("?Token={}", server.token), "?token=%"]
    {
        let answer = server.asked(&format!("GET /{query}"), &[host.clone(), key.clone()]);
        assert_eq!((answer.status, answer.body.as_str()), (403, ""), "{query}");
    }
    for path in paths.iter().chain([&page]) {
        for other in [
            "Host: evil.example".to_owned(),
            format!("Host: evil.example:{port}"),
            "Host: 127.0.0.1".to_owned(),
            format!("Host: 127.0.0.1:{}", port ^ 1),
            format!("Host: 127.0.0.1:{port}.evil.example"),
            format!("Host: [::1]:{port}"),
            "Host:".to_owned(),
            format!("{host}\r\nHost: evil.example"),
            "X-Forwarded-Host: 127.0.0.1".to_owned(),
        ] {
            let answer = server.asked(&format!("GET {path}"), &[other.clone(), key.clone()]);
            assert!(matches!(answer.status, 400 | 421) && answer.body.is_empty(), "{path}: {other}: {}", answer.status);
        }
        let localhost = server.asked(&format!("GET {path}"), &[format!("Host: localhost:{port}"), key.clone()]);
        assert_eq!(localhost.status, 200, "{path}");
        let absolute = server.asked(&format!("GET http://evil.example{path}"), &[host.clone(), key.clone()]);
        assert_eq!(absolute.status, 421, "{path}");
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"] {
            let answer = server.asked(&format!("{method} {path}"), &[host.clone(), key.clone()]);
            assert_eq!(answer.status, 405, "{method} {path}");
            let stranger = server.asked(&format!("{method} {path}"), &["Host: evil.example".to_owned()]);
            assert_eq!(stranger.status, 421, "{method} {path}");
        }
    }
    for path in ["/../", "/../../etc/passwd", "/%2e%2e/etc/passwd", "/api/", "/api/../api/sets", "//", "/index.html"] {
        assert_eq!(server.asked(&format!("GET {path}"), std::slice::from_ref(&host)).status, 403, "{path}");
        let answer = server.get(path);
        assert_eq!((answer.status, answer.body.as_str()), (404, ""), "{path}");
    }
    // What is no HTTP, or too much of it.
    for text in [
        format!("GET /api/sets HTTP/1.1\r\n{host}\r\n{key}\r\nX-Long: {}\r\n\r\n", "x".repeat(1 << 20)),
        format!("GET /{} HTTP/1.1\r\n{host}\r\n{key}\r\n\r\n", "x".repeat(1 << 20)),
        format!("GET /api/sets HTTP/1.1\r\n{host}\r\n{key}\r\n{}\r\n", "X-Many: x\r\n".repeat(1000)),
        "\u{0}\u{1}\u{2}\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
    ] {
        let status = server.raw(&text).map(|answer| answer.status);
        assert!(matches!(status, None | Some(400 | 414 | 431)), "{status:?} to {:.60}", text);
    }
    // Refusals have the headers, too.
    for answer in [server.get("/api/sets"), server.get("/nothing"), server.asked("GET /", &[]), server.get("/")] {
        for header in [
            "content-security-policy: default-src 'none';",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(answer.head.contains(header), "{}: no {header} in\n{}", answer.status, answer.head);
        }
        assert!(!answer.head.contains("access-control"), "{}", answer.head);
    }
    // The connections that hang do not keep it from ending.
    assert_eq!(server.process.signal("TERM").code(), Some(0));
}

#[test]
fn a_run_in_flight_is_seen_and_one_that_was_killed_is_not() {
    let (_folder, store) = store("serve-live", &[("before", "")]);
    let mut server = Server::new(&store);
    let live = || server.json("/api/live")["run"].clone();
    assert_eq!(live(), Value::Null, "the run has ended");
    let line = format!("run {JOB} --on sim:linux-4.4 --repeat 5000 --label flying --store {store} --json");
    let mut run = Process::new(&line);
    let begun = Instant::now();
    let seen = loop {
        let run = live();
        if run["done"].as_u64() > Some(0) {
            break run;
        }
        assert!(begun.elapsed() < PATIENCE, "no run is in flight: {run}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!((seen["label"].as_str(), seen["total"].as_u64()), (Some("flying"), Some(5000)));
    assert!(seen["text"].as_str().is_some_and(|text| text.starts_with(&format!("runs of {JOB}, for "))), "{seen}");
    assert_eq!(run.signal("KILL").code(), None);
    assert_eq!(live(), Value::Null, "it is dead");
    assert_eq!(server.process.signal("INT").code(), Some(0));
}

#[test]
fn mistakes_are_told_and_nothing_is_served() {
    let (folder, store) = store("serve-mistakes", &[("a", "")]);
    let nowhere = folder.0.join("nowhere").display().to_string();
    let mut server = Server::new(&store);
    let taken = server.port;
    for (line, words) in [
        (format!("report --serve a b --store {store}"), "cannot be used with"),
        (format!("report --serve -o x.html --store {store}"), "cannot be used with"),
        (format!("report --serve --prove --store {store}"), "cannot be used with"),
        (format!("report a b --port 80 -o {nowhere}"), "cannot be used with"),
        ("report --port 80 --json".to_owned(), "--serve"),
        (format!("report --serve --port 65536 --store {store}"), "65536"),
        (format!("report --serve --store {nowhere}"), "no store in"),
        (format!("report --serve --port {taken} --store {store}"), "cannot listen on 127.0.0.1"),
    ] {
        let message = refused(&line);
        assert!(message.contains(words), "{line}: no `{words}` in\n{message}");
    }
    assert!(!folder.0.join("nowhere").exists());
    assert_eq!(server.process.signal("INT").code(), Some(0));
    // Without --json the first line is the address; the port is free again.
    let mut process = Process::new(&format!("report --serve --port {taken} --store {store}"));
    let mut said = [0; 24];
    process.0.stdout.take().expect("it is piped").read_exact(&mut said).expect("it says where it is");
    assert!(said.starts_with(format!("http://127.0.0.1:{taken}/").as_bytes()), "{said:?}");
    assert_eq!(process.signal("TERM").code(), Some(0));
}
