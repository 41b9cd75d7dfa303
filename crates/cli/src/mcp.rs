//! `iowhy mcp`: verbs as tools of the Model Context Protocol, for programs and agents, on standard input and output.
//!
//! ```text
//! tools      an entry of `TOOLS` each; description and inputs come from the verb's arguments, as its help does
//! calls      this program again, without a shell: the verb's words, and one for each input; its JSON is the answer
//! mistakes   of one call are its result (`iowhy.error/1`), and end nothing else
//! cancelled  calls get SIGINT, which ends a run cleanly; so do those of a client that is gone
//! turns      tools that change something run alone, those that only read side by side
//! ```
//! Options that write files, and tools that run, trace or change something, are absent without `--allow-changes`.

mod inputs;

use std::path::PathBuf;
use std::pin::pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::CommandFactory;
use iowhy_text::diagnose::{Problem, Problems};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject, ListToolsResult,
    MetaObject, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, ToolAnnotations,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::RwLock;

use crate::output::Exit;

/// Options of `iowhy mcp`.
#[derive(clap::Args)]
#[command(about = "Serve the verbs as tools for programs and agents (MCP)")]
#[command(after_help = "Speaks the Model Context Protocol on standard input and output. A client starts it:\n\n  \
    {\"mcpServers\": {\"iowhy\": {\"command\": \"iowhy\", \"args\": [\"mcp\"]}}}\n\nWithout --allow-changes tools only \
    read, and simulate. With it an agent may also\nrun jobs and commands, trace, and change settings of disks \
    meanwhile, with the\nrights of this process. Nothing overwrites files that iowhy did not \
    create.\n\nExit codes: 0 the client is gone, 130 or 143 ended by a signal.")]
pub(crate) struct Arguments {
    /// Offer tools that run experiments, trace or change something, too
    #[arg(long)]
    allow_changes: bool,
}

/// A verb that is offered.
struct Tool {
    name: &'static str,
    /// The verb, as typed, with options that are part of the tool.
    words: &'static [&'static str],
    /// Options that the tool does not have: they are in `words`, they write, or the form of the answer is theirs.
    without: &'static [&'static str],
    /// It runs, traces or changes something.
    changes: bool,
    /// Schema of the answer.
    answer: &'static str,
}

const fn reads(
    name: &'static str,
    words: &'static [&'static str],
    without: &'static [&'static str],
    answer: &'static str,
) -> Tool {
    Tool { name, words, without, changes: false, answer }
}

const fn changes(
    name: &'static str,
    words: &'static [&'static str],
    without: &'static [&'static str],
    answer: &'static str,
) -> Tool {
    Tool { name, words, without, changes: true, answer }
}

/// Verbs as tools. A new verb is a line here.
const TOOLS: &[Tool] = &[
    reads("doctor", &["doctor"], &["fix"], "doctor"),
    reads("explain", &["explain"], &["prove", "openmetrics", "verbose"], "explain"),
    reads("compare", &["compare"], &["format", "verbose"], "compare"),
    reads("check", &["check"], &["junit", "openmetrics", "github", "verbose"], "check"),
    reads("history", &["history"], &[], "history"),
    reads("models", &["models"], &["markdown"], "models"),
    reads("incident", &["incident"], &["live", "quick", "report", "force"], "incident"),
    reads("store_list", &["store", "list"], &[], "store"),
    reads("store_show", &["store", "show"], &[], "store"),
    reads("trace_stat", &["trace", "stat"], &[], "trace-stat"),
    changes("prove", &["explain", "--prove"], &["prove", "verbose"], "explain"),
    changes("run", &["run"], &[], "run"),
    changes("trace_record", &["trace", "record"], &[], "trace"),
];

/// Time between two notes of progress.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// Runs the verb: serves until the client closes its end, or a signal.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let program = std::env::current_exe().context("cannot find this program again")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot serve")?;
    let ended =
        runtime.block_on(serve(Server { program, allow_changes: arguments.allow_changes, turn: Arc::default() }));
    // Standard input is read by a thread that waits for more.
    runtime.shutdown_background();
    ended
}

async fn serve(server: Server) -> anyhow::Result<Exit> {
    let turn = server.turn.clone();
    let mut ends = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    let [interrupt, terminate] = &mut ends;
    let begun = tokio::select! {
        begun = server.serve((tokio::io::stdin(), tokio::io::stdout())) => begun,
        _ = interrupt.recv() => return Ok(Exit::Signal(130)),
        _ = terminate.recv() => return Ok(Exit::Signal(143)),
    };
    let service = begun.context("the client does not speak the Model Context Protocol")?;
    let cancel = service.cancellation_token();
    let mut served = pin!(service.waiting());
    let exit = tokio::select! {
        ended = &mut served => ended.map(|_| Exit::Fine).context("cannot serve any more"),
        _ = interrupt.recv() => Ok(Exit::Signal(130)),
        _ = terminate.recv() => Ok(Exit::Signal(143)),
    };
    cancel.cancel();
    // Every call has its turn until its work has ended, cleanly.
    drop(turn.write().await);
    exit
}

struct Server {
    program: PathBuf,
    allow_changes: bool,
    turn: Arc<RwLock<()>>,
}

impl Server {
    fn tools(&self) -> impl Iterator<Item = &'static Tool> {
        let allow_changes = self.allow_changes;
        TOOLS.iter().filter(move |tool| allow_changes || !tool.changes)
    }

    /// A tool by its name.
    fn find(&self, name: &str) -> Result<&'static Tool, Problem> {
        match TOOLS.iter().find(|tool| tool.name == name) {
            Some(tool) if tool.changes && !self.allow_changes => {
                let problem = Problem::error(format!("the tool `{name}` runs or changes something"));
                Err(problem.help("start the server with iowhy mcp --allow-changes"))
            }
            Some(tool) => Ok(tool),
            None => {
                let names = self.tools().map(|tool| tool.name);
                Err(Problem::error(format!("unknown tool `{name}`")).near(name, names))
            }
        }
    }

    async fn call(&self, request: &CallToolRequestParams, context: RequestContext<RoleServer>) -> CallToolResult {
        let none = JsonObject::new();
        let words = self.find(&request.name).map_err(|problem| Problems { list: vec![problem] }).and_then(|tool| {
            let arguments = request.arguments.as_ref().unwrap_or(&none);
            inputs::words(tool, &verb(tool), arguments).map(|words| (tool, words))
        });
        match words {
            Ok((tool, words)) => self.work(tool, &words, context).await,
            Err(problems) => failed(USAGE, problems.list.iter().map(problem_json).collect()),
        }
    }

    /// Runs this program again, and interrupts it if the call is cancelled.
    async fn work(&self, tool: &Tool, words: &[String], context: RequestContext<RoleServer>) -> CallToolResult {
        let cancelled = || failed(INTERRUPTED, vec![message("the call was cancelled before it began")]);
        let turn = async {
            match tool.changes {
                true => (Some(self.turn.write().await), None),
                false => (None, Some(self.turn.read().await)),
            }
        };
        let _turn = tokio::select! {
            turn = turn => turn,
            () = context.ct.cancelled() => return cancelled(),
        };
        let mut command = Command::new(&self.program);
        // A terminal's ^C is passed on by the server alone.
        command.args(words).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return failed(MACHINE, vec![message(&format!("iowhy cannot be started: {error}"))]),
        };
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let mut work = pin!(child.wait_with_output());
        let (started, mut note) = (Instant::now(), tokio::time::interval(NOTE_EVERY));
        let token = context.meta.get_progress_token();
        let mut interrupted = false;
        let ended = loop {
            tokio::select! {
                ended = &mut work => break ended,
                () = context.ct.cancelled(), if !interrupted => {
                    interrupted = true;
                    // It has not been waited for, so its number is still its own.
                    let _ = pid.map(|pid| kill_process(pid, Signal::INT));
                }
                _ = note.tick() => if let Some(token) = &token {
                    let seconds = started.elapsed().as_secs();
                    let note = ProgressNotificationParam::new(token.clone(), seconds as f64);
                    let note = note.with_message(format!("{} runs, {seconds} s", tool.name));
                    // A client that is gone needs none.
                    let _ = context.peer.notify_progress(note).await;
                },
            }
        };
        match ended {
            Ok(ended) => answer(&ended),
            Err(error) => failed(MACHINE, vec![message(&format!("iowhy cannot be waited for: {error}"))]),
        }
    }
}

/// The verb of a tool in the table of the command line, with options that count for all verbs.
fn verb(tool: &Tool) -> clap::Command {
    let mut command = crate::Arguments::command();
    command.build();
    let path = tool.words.iter().take_while(|word| !word.starts_with('-'));
    path.fold(command, |command, word| command.find_subcommand(word).expect("TOOLS has verbs only").clone())
}

fn described(tool: &'static Tool) -> rmcp::model::Tool {
    let verb = verb(tool);
    let mut text = verb.get_about().map(ToString::to_string).unwrap_or_default();
    if tool.changes {
        text.push_str(" (`iowhy ");
        text.push_str(&tool.words.join(" "));
        text.push_str("`: runs or changes something)");
    }
    if let Some(more) = verb.get_after_help() {
        text.push_str(&format!(".\n\n{more}"));
    }
    text.push_str(&format!("\n\nAnswer: iowhy.{}/1.", tool.answer));
    let hints = ToolAnnotations::new().read_only(!tool.changes).destructive(tool.changes).open_world(false);
    rmcp::model::Tool::new(tool.name, text, inputs::schema(tool, &verb)).with_annotations(hints)
}

/// The output of a verb as the result of its call.
fn answer(ended: &std::process::Output) -> CallToolResult {
    let code = ended.status.code();
    let complaints = String::from_utf8_lossy(&ended.stderr);
    let complaints = complaints.trim();
    let answered = matches!(code, Some(0 | 1 | 3 | 4));
    match serde_json::from_slice::<Value>(&ended.stdout) {
        Ok(value) if value["schema"] != ERROR => {
            let mut result = CallToolResult::structured(value);
            if !complaints.is_empty() {
                result.content.push(ContentBlock::text(complaints));
            }
            result.is_error = Some(!answered);
            result.meta = Some(MetaObject(JsonObject::from_iter([("exit".to_owned(), json!(code))])));
            result
        }
        Ok(error) => CallToolResult::structured_error(error),
        Err(_) => {
            let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
            let exit = code.or(signal.map(|signal| 128 + signal)).unwrap_or(MACHINE);
            let text = if complaints.is_empty() { "iowhy has printed no answer" } else { complaints };
            failed(exit, vec![message(text)])
        }
    }
}

const ERROR: &str = "iowhy.error/1";
/// Exit codes of calls that were not begun.
const USAGE: i32 = 2;
const MACHINE: i32 = 5;
const INTERRUPTED: i32 = 130;

fn failed(exit: i32, problems: Vec<Value>) -> CallToolResult {
    CallToolResult::structured_error(json!({ "schema": ERROR, "exit": exit, "problems": problems }))
}

fn message(text: &str) -> Value {
    problem_json(&Problem::error(text))
}

fn problem_json(problem: &Problem) -> Value {
    json!({ "message": problem.message, "where": null, "nearest": problem.nearest, "try": problem.help })
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("iowhy", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "iowhy explains why storage I/O got slower. Begin with `doctor` (what this machine allows) and \
                 `store_list` (what was recorded). `compare` judges whether two sets of runs differ, `explain` names \
                 the mechanism with its evidence, `prove` (with --allow-changes) tests it. An answer that cannot tell \
                 says so: do not make a cause of it.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools().map(described).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(self.call(&request, context).await.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_verbs_and_leave_out_options_that_there_are() {
        for tool in TOOLS {
            let verb = verb(tool);
            for id in tool.without {
                assert!(verb.get_arguments().any(|arg| arg.get_id() == *id), "{}: no option {id}", tool.name);
            }
            let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema");
            let schema = std::path::Path::new(schema).join(format!("iowhy.{}.1.json", tool.answer));
            assert!(schema.exists(), "{}: no {}", tool.name, schema.display());
        }
    }
}
