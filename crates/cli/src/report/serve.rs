//! `iowhy report --serve`: the page over the store, for the user who started it.
//!
//! ```text
//! GET /?token=T               the page
//! GET /api/sets               {sets: [{id, label, runs, job, at}]}, the latest first
//! GET /api/report?a=ID&b=ID   iowhy.report/1 of two sets; without b of the modes of one
//! GET /api/slice?a=ID&b=ID&side=0&from=NS&to=NS   `timeline` of a side of that report, with this part of the run in
//!                             detail, as far as 48,000 events reach; without `pyramid`
//! GET /api/live               {run: null} or {run: {label, done, total, text}}
//! ```
//! It listens on 127.0.0.1 only. Other users of the machine, and pages of other sites in the same browser, reach that
//! as well. So every request has to bring the token that is printed at the start: the page in its query, where a
//! browser can be given it, and the others in `X-Iowhy-Token`, which other sites cannot send. And it has to name this
//! server as its host, so that another name that is bound to 127.0.0.1 later ("DNS rebinding") fails. A request may
//! name labels of the store, never files or places.
//!
//! Reports are made one at a time, on another thread than the loop that answers. Known limit: a local program that
//! keeps a thousand connections open without asking anything keeps others out.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use iowhy_lab::explain::gathered::Gathered;
use iowhy_lab::report::{Shown, html};
use iowhy_lab::store::{Set, Store, moment, nanoseconds};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

use crate::explain::Sources;
use crate::output;
use crate::report;

/// Bytes of randomness in the token.
const TOKEN_BYTES: usize = 32;
/// Where requests of the page have it.
const TOKEN_HEADER: &str = "x-iowhy-token";
/// Headers of every answer, besides the page's policy.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

struct Server {
    directory: PathBuf,
    token: String,
    /// Its legitimate host names.
    hosts: Vec<String>,
    page: String,
    policy: HeaderValue,
    /// Held by who makes a report.
    turn: Arc<Mutex<()>>,
    /// The sides of the report that was made last.
    kept: std::sync::Mutex<Option<Kept>>,
}

/// Sides of a report, and what its lanes are cut out of, once that was asked for.
struct Kept {
    names: Vec<String>,
    sides: [Gathered; 2],
    shown: Option<Shown>,
}

/// The status and the reason of a refusal.
type Refused = (StatusCode, String);

impl Server {
    /// Why a request is not looked at any further.
    fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<StatusCode> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().filter(|host| self.hosts.iter().any(|known| known.as_bytes() == host.as_bytes()));
        // Two hosts are as bad as none, and so is one that stands in the first line.
        if host.is_none() || hosts.next().is_some() || uri.authority().is_some() {
            return Some(StatusCode::MISDIRECTED_REQUEST);
        }
        let given = if uri.path() == "/" {
            let pairs = pairs(uri.query().unwrap_or_default()).unwrap_or_default();
            pairs.into_iter().find(|(key, _)| key == "token").map(|(_, value)| value.into_bytes())
        } else {
            headers.get(TOKEN_HEADER).map(|value| value.as_bytes().to_owned())
        };
        let known = given.is_some_and(|given| given.ct_eq(self.token.as_bytes()).into());
        (!known).then_some(StatusCode::FORBIDDEN)
    }
}

/// Keys and values of a query; nothing if an escape is invalid, or its bytes are not UTF-8.
fn pairs(query: &str) -> Option<Vec<(String, String)>> {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((unescape(key)?, unescape(value)?))
    };
    query.split('&').filter(|text| !text.is_empty()).map(pair).collect()
}

fn unescape(text: &str) -> Option<String> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => (digit(rest.next())? * 16 + digit(rest.next())?) as u8,
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Looks at every request first, and gives every answer its headers.
async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let mut response = match server.refusal(request.uri(), request.headers()) {
        None => next.run(request).await,
        // Sends nothing, and keeps nothing open.
        Some(status) => (status, [(header::CONNECTION, "close")]).into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, server.policy.clone());
    response
}

/// Answers with the result of another thread: the one of the loop has to go on listening.
async fn beside(work: impl FnOnce() -> Result<Value, Refused> + Send + 'static) -> Response {
    let found = tokio::task::spawn_blocking(|| work().map(|value| value.to_string())).await;
    match found {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Ok(Err(refused)) => refused.into_response(),
        // It has told standard error of its panic.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Something is wrong with the store.
fn failed(error: impl std::fmt::Display) -> Refused {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

async fn page(State(server): State<Arc<Server>>) -> Html<String> {
    Html(server.page.clone())
}

async fn sets(State(server): State<Arc<Server>>) -> Response {
    beside(move || {
        let sets = Store::open_existing(&server.directory).and_then(|store| store.sets()).map_err(failed)?;
        let one = |set: &Set| {
            let at = moment(set.started_ns);
            json!({ "id": set.label, "label": set.label, "runs": set.runs, "job": set.job, "at": at })
        };
        Ok(json!({ "sets": sets.iter().map(one).collect::<Vec<_>>() }))
    })
    .await
}

async fn live(State(server): State<Arc<Server>>) -> Response {
    beside(move || {
        let said = Store::open_existing(&server.directory).map_err(failed)?.in_flight();
        let run = said.map(|said| {
            let since = nanoseconds(SystemTime::now()).saturating_sub(said.started_ns);
            let text = format!("{}, for {} s", said.text, Duration::from_nanos(since).as_secs());
            json!({ "label": said.label, "done": said.done, "total": said.total, "text": text })
        });
        Ok(json!({ "run": run }))
    })
    .await
}

async fn compared(State(server): State<Arc<Server>>, RawQuery(query): RawQuery) -> Response {
    let turn = server.turn.clone().lock_owned().await;
    beside(move || {
        let _turn = turn;
        made(&server, &query.unwrap_or_default())
    })
    .await
}

async fn slice(State(server): State<Arc<Server>>, RawQuery(query): RawQuery) -> Response {
    let turn = server.turn.clone().lock_owned().await;
    beside(move || {
        let _turn = turn;
        sliced(&server, &query.unwrap_or_default())
    })
    .await
}

fn wrong(text: &str) -> Refused {
    (StatusCode::BAD_REQUEST, text.to_owned())
}

fn asked(query: &str) -> Result<Vec<(String, String)>, Refused> {
    pairs(query).ok_or_else(|| wrong("the query has an escape that is none"))
}

fn take(pairs: &mut Vec<(String, String)>, key: &str) -> Option<String> {
    let at = pairs.iter().position(|pair| pair.0 == key)?;
    Some(pairs.swap_remove(at).1).filter(|value| !value.is_empty())
}

/// The sets of runs that a query names, which have to be there.
fn named(directory: &Path, pairs: &mut Vec<(String, String)>) -> Result<Vec<String>, Refused> {
    let a = take(pairs, "a").ok_or_else(|| wrong("a report is of one set of runs, a, or of two, a and b"))?;
    let names: Vec<String> = [Some(a), take(pairs, "b")].into_iter().flatten().collect();
    let known = Store::open_existing(directory).and_then(|store| store.sets()).map_err(failed)?;
    for name in &names {
        let set = known.iter().find(|set| set.label == *name);
        let set = set.ok_or_else(|| (StatusCode::NOT_FOUND, format!("no runs with events have the label `{name}`")))?;
        if names.len() == 1 && set.runs < 2 {
            return Err(wrong("a single run has nothing to be set against: ask for b as well"));
        }
    }
    Ok(names)
}

/// The data of the report that a query asks for.
fn made(server: &Server, query: &str) -> Result<Value, Refused> {
    let names = named(&server.directory, &mut asked(query)?)?;
    let sources = Sources::stored(names.clone(), &server.directory);
    let (report, _, sides) = report::of(&sources, true, None).map_err(|problems| failed(problems.render()))?;
    kept(server).replace(Kept { names, sides, shown: None });
    Ok(report.data)
}

/// A part of a run of the report that was made last, in detail.
fn sliced(server: &Server, query: &str) -> Result<Value, Refused> {
    let mut pairs = asked(query)?;
    let mut number = |key: &str| {
        let value = take(&mut pairs, key).and_then(|value| value.parse::<u64>().ok());
        value.ok_or_else(|| {
            wrong(&format!("a slice has a number `{key}`: side, 0 or 1, and from and to, ns of its run"))
        })
    };
    let (side, from, to) = (number("side")? as usize, number("from")?, number("to")?);
    if side > 1 || from >= to {
        return Err(wrong("a slice is of side 0 or 1, and ends after it begins"));
    }
    let names = named(&server.directory, &mut pairs)?;
    let mut kept = kept(server);
    if kept.as_ref().is_none_or(|kept| kept.names != names) {
        let sides = Sources::stored(names.clone(), &server.directory).gather(true, true);
        *kept = Some(Kept { names, sides: sides.map_err(|problems| failed(problems.render()))?, shown: None });
    }
    let Some(Kept { sides, shown, .. }) = kept.as_mut() else { return Err(failed("nothing is kept")) };
    let shown = match shown {
        Some(shown) => shown,
        None => shown.insert(Shown::of(sides).map_err(|problems| failed(problems.render()))?),
    };
    shown.slice(sides, side, from, to).map_err(|problem| failed(problem.render()))
}

fn kept(server: &Server) -> std::sync::MutexGuard<'_, Option<Kept>> {
    server.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Serves until a signal ends it.
pub(crate) fn run(sources: &Sources, port: u16, json: bool) -> anyhow::Result<()> {
    let directory = sources.open()?.directory().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot serve")?;
    let ended = runtime.block_on(serve(directory, port, json));
    // Nobody waits any more for a report that is being made.
    runtime.shutdown_background();
    ended
}

async fn serve(directory: PathBuf, port: u16, json: bool) -> anyhow::Result<()> {
    let mut random = [0; TOKEN_BYTES];
    getrandom::fill(&mut random).context("the kernel gives no random numbers")?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let listener = listener.with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?;
    let port = listener.local_addr().context("cannot listen")?.port();
    let (page, policy) = html::served();
    // Only as a header does a policy say who may put the page into a frame.
    let policy = HeaderValue::from_str(&format!("{policy}; frame-ancestors 'none'"))?;
    let names = ["127.0.0.1", "localhost"];
    let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
    if port == 80 {
        // Browsers leave out the usual port.
        hosts.extend(names.map(str::to_owned));
    }
    let url = format!("http://127.0.0.1:{port}/?token={token}");
    let mut ends = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    if json {
        let schema = "iowhy.report.serve/1";
        output::print_json(&json!({ "schema": schema, "url": url, "token": token, "port": port }))?;
    } else {
        output::print(&format!("{url}\nThe runs of {}; Ctrl-C ends it.\n", directory.display()))?;
    }
    let server = Arc::new(Server {
        directory,
        token,
        hosts,
        page,
        policy,
        turn: Arc::default(),
        kept: std::sync::Mutex::default(),
    });
    let router = Router::new()
        .route("/", get(self::page))
        .route("/api/sets", get(sets))
        .route("/api/report", get(compared))
        .route("/api/slice", get(slice))
        .route("/api/live", get(live))
        .layer(from_fn_with_state(server.clone(), guard))
        .with_state(server);
    let [interrupt, terminate] = &mut ends;
    tokio::select! {
        ended = async { axum::serve(listener, router).await } => ended.context("cannot serve any more"),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}
