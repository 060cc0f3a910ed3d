//! `vramscope mcp DIR…`: answers an agent's questions through the Model Context Protocol on standard input and output, one
//! JSON-RPC message per line.
//!
//! One thread reads and one works. A slow question delays the next one, but not `ping` or the list of tools. A tool is a
//! subcommand with `--json`, so its keys are those of the command line. `bound` limits the size of each answer, and `folders`
//! restricts access to the named folders.

mod bound;
mod folders;
mod picture;
mod tools;

use std::collections::HashSet;
use std::io::{self, BufRead, Read as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use self::folders::Folders;
use self::tools::Tools;
use super::args::McpArgs;
use super::{Failure, kept, terminal};

/// Supported versions of the protocol, newest first.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];
/// The largest message in bytes. Questions are short.
const LONGEST: u64 = 1 << 20;
const WAITING: usize = 64;

/// Error codes of JSON-RPC.
const PARSE_ERROR: i64 = -32_700;
const INVALID_REQUEST: i64 = -32_600;
const METHOD_NOT_FOUND: i64 = -32_601;
const INVALID_PARAMS: i64 = -32_602;
const BUSY: i64 = -32_000;

/// Instructions that an agent receives first.
const INSTRUCTIONS: &str = "Answers about GPU memory from recordings of PyTorch and JAX programs. Begin with `open` without a file, which lists \
    them; then `findings` or `oom` for what is wrong, `peak` for what holds the memory. Sizes are integers in bytes. Events count from 0; \
    `state` shows the memory after any of them. An answer that was cut names in `cut` what is left out, and in `rest` the tool and the arguments \
    that give the next part.";

/// Answers until standard input ends. Fails when a folder does not exist.
pub fn run(args: &McpArgs) -> Result<(), Failure> {
    let folders = Folders::new(&args.folders).map_err(Failure::Usage)?;
    let tools = Tools::new(folders, args.limit as usize);
    kept::keep();
    let server = Server { tools, cancelled: Mutex::default() };
    let (sender, receiver) = sync_channel::<Call>(WAITING);
    std::thread::scope(|scope| {
        let server = &server;
        let worker = scope.spawn(move || server.work(&receiver));
        let mut input = io::stdin().lock();
        while let Some(line) = next_line(&mut input) {
            let answer = match line {
                Line::Text(text) => server.read(&text, |call| sender.try_send(call)),
                Line::TooLong => Some(error(&Value::Null, INVALID_REQUEST, "the message is longer than 1 MiB")),
                Line::NoText => Some(error(&Value::Null, PARSE_ERROR, "the message is not UTF-8")),
            };
            if answer.is_some_and(|answer| !send(&answer)) {
                // The client has closed standard output.
                break;
            }
        }
        drop(sender);
        // Questions asked before the end are still answered.
        let _ = worker.join();
    });
    Ok(())
}

enum Line {
    Text(String),
    TooLong,
    NoText,
}

/// The next line that is not empty; `None` at the end. A line that is too long is skipped.
fn next_line(input: &mut impl BufRead) -> Option<Line> {
    loop {
        let mut line = Vec::new();
        input.by_ref().take(LONGEST + 1).read_until(b'\n', &mut line).ok().filter(|&n| n > 0)?;
        if line.len() as u64 > LONGEST && line.last() != Some(&b'\n') {
            loop {
                let read = input.fill_buf().ok()?;
                let end = read.iter().position(|&b| b == b'\n');
                let used = end.map_or(read.len(), |at| at + 1);
                input.consume(used);
                if end.is_some() || used == 0 {
                    return Some(Line::TooLong);
                }
            }
        }
        match String::from_utf8(line) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => return Some(Line::Text(text)),
            Err(_) => return Some(Line::NoText),
        }
    }
}

/// Writes a message; false if standard output is closed.
fn send(message: &Value) -> bool {
    // Holds the lock for the whole message, so that messages do not mix.
    let mut out = terminal::stdout();
    writeln!(out, "{message}").and_then(|()| out.flush()).is_ok()
}

fn error(id: &Value, code: i64, sentence: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": clipped(sentence) } })
}

/// Longest error, in characters. It may repeat the question, which can have any length.
const LONGEST_ERROR: usize = 1_500;

/// A sentence that loses its middle when it is too long.
fn clipped(sentence: &str) -> String {
    let of = sentence.chars().count();
    if of <= LONGEST_ERROR {
        return sentence.to_owned();
    }
    let part = |skip: usize, take: usize| sentence.chars().skip(skip).take(take).collect::<String>();
    let (head, tail) = (LONGEST_ERROR * 2 / 3, LONGEST_ERROR / 3);
    format!("{} … {} characters left out … {}", part(0, head), of - head - tail, part(of - tail, tail))
}

fn answer(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

struct Call {
    id: Value,
    name: String,
    arguments: Value,
    /// The batch that it came in; `None` for a message of its own.
    batch: Option<Arc<Batch>>,
}

/// The answers to the messages of one batch, which are sent together.
#[derive(Default)]
struct Batch {
    /// The answers so far, and the number of calls that are not answered yet.
    state: Mutex<(Vec<Value>, usize)>,
}

impl Batch {
    fn begin(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 += 1;
    }

    /// Adds an answer, where there is one. Returns all answers when none is missing.
    fn end(&self, answer: Option<Value>) -> Option<Value> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.extend(answer);
        state.1 = state.1.saturating_sub(1);
        (state.1 == 0 && !state.0.is_empty()).then(|| Value::Array(std::mem::take(&mut state.0)))
    }
}

struct Server {
    tools: Tools,
    /// Ids of calls that the client cancelled, as text.
    cancelled: Mutex<HashSet<String>>,
}

impl Server {
    /// Answers a line: a message, or a list of messages, as older versions of the protocol allow. `None` when there is nothing to
    /// answer now.
    fn read(&self, text: &str, hand_on: impl Fn(Call) -> Result<(), TrySendError<Call>>) -> Option<Value> {
        match serde_json::from_str::<Value>(text) {
            Err(_) => Some(error(&Value::Null, PARSE_ERROR, "the message is not JSON")),
            Ok(Value::Array(messages)) if !messages.is_empty() => {
                let batch = Arc::new(Batch::default());
                batch.begin();
                for message in &messages {
                    batch.begin();
                    let queued = |call: Call| {
                        batch.begin();
                        hand_on(Call { batch: Some(Arc::clone(&batch)), ..call }).inspect_err(|_| drop(batch.end(None)))
                    };
                    // The batch is still open, so this does not complete it.
                    batch.end(self.handle(message, queued));
                }
                batch.end(None)
            }
            Ok(message) => self.handle(&message, hand_on),
        }
    }

    /// Answers a message at once, or queues a tool call with `hand_on`. `None` when there is nothing to answer now.
    fn handle(&self, message: &Value, hand_on: impl Fn(Call) -> Result<(), TrySendError<Call>>) -> Option<Value> {
        let id = message.get("id").cloned();
        // A number beyond 64 bits could not be sent back as it came.
        let is_exact = |id: &Value| id.is_i64() || id.is_u64() || id.as_f64().is_some_and(|n| n.abs() < 2f64.powi(53));
        let is_id = |id: &Value| id.as_str().map_or_else(|| is_exact(id), |text| text.len() <= 200);
        let Some(method) = message["method"].as_str().filter(|_| message["jsonrpc"] == "2.0") else {
            // A response to a request that was never sent is ignored.
            let is_answer = message.get("result").is_some() || message.get("error").is_some();
            let id = id.filter(is_id).unwrap_or(Value::Null);
            return (!is_answer).then(|| error(&id, INVALID_REQUEST, "the message is no JSON-RPC 2.0 request"));
        };
        let params = message.get("params").cloned().unwrap_or_default();
        let Some(id) = id else {
            self.notice(method, &params);
            return None;
        };
        if !is_id(&id) {
            return Some(error(
                &Value::Null,
                INVALID_REQUEST,
                "the id is neither a number of at most 64 bits nor a string of at most 200 bytes",
            ));
        }
        match method {
            "initialize" => Some(answer(&id, initialized(&params))),
            "ping" => Some(answer(&id, json!({}))),
            "tools/list" => Some(answer(&id, json!({ "tools": self.tools.list() }))),
            "tools/call" => {
                let Some(name) = params["name"].as_str().filter(|name| self.tools.has(name)) else {
                    let sentence = format!("there is no tool {}; tools/list lists them", params["name"]);
                    return Some(error(&id, INVALID_PARAMS, &sentence));
                };
                let arguments = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
                if !arguments.is_object() {
                    return Some(error(&id, INVALID_PARAMS, "the arguments of a tool are an object"));
                }
                let refused = hand_on(Call { id: id.clone(), name: name.to_owned(), arguments, batch: None }).err()?;
                let sentence = match refused {
                    TrySendError::Full(_) => "64 questions wait already; ask again when one is answered",
                    TrySendError::Disconnected(_) => "no more questions are answered",
                };
                Some(error(&id, BUSY, sentence))
            }
            _ => Some(error(&id, METHOD_NOT_FOUND, &format!("there is no method {method:?}"))),
        }
    }

    /// Handles notifications. A cancelled call is not started; if it has started, its answer is not sent.
    fn notice(&self, method: &str, params: &Value) {
        if method == "notifications/cancelled" {
            let mut cancelled = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
            // Ids of calls that were already answered stay in the set; there are few.
            if cancelled.len() < 10_000 {
                cancelled.insert(params["requestId"].to_string());
            }
        }
    }

    fn is_cancelled(&self, id: &Value) -> bool {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner).remove(&id.to_string())
    }

    /// Runs tool calls one after the other until the queue is closed.
    fn work(&self, calls: &Receiver<Call>) {
        for Call { id, name, arguments, batch } in calls {
            let sent = |answer: Option<Value>| match &batch {
                Some(batch) => batch.end(answer).is_none_or(|answers| send(&answers)),
                None => answer.is_none_or(|answer| send(&answer)),
            };
            if self.is_cancelled(&id) {
                sent(None);
                continue;
            }
            let done = catch_unwind(AssertUnwindSafe(|| self.tools.call(&name, &arguments)));
            let done =
                done.unwrap_or_else(|_| Err("this answer failed inside vramscope; please report it with the file".to_owned()));
            let result = match done {
                Ok(content) => json!({ "content": content, "isError": false }),
                Err(sentence) => json!({ "content": [{ "type": "text", "text": clipped(&sentence) }], "isError": true }),
            };
            let told = (!self.is_cancelled(&id)).then(|| answer(&id, result));
            if !sent(told) {
                return;
            }
        }
    }
}

fn initialized(params: &Value) -> Value {
    let wanted = params["protocolVersion"].as_str().unwrap_or_default();
    let version = VERSIONS.iter().find(|v| **v == wanted).unwrap_or(&VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "vramscope", "version": env!("CARGO_PKG_VERSION") },
        "instructions": INSTRUCTIONS,
    })
}
