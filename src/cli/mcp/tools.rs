//! The tools. Each runs a subcommand with `--json` and the options that a user would type.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::Parser as _;
use serde_json::{Value, json};

use super::bound::bound;
use super::folders::Folders;
use super::picture;
use crate::cli::{args, choose_device, explain, open_blocks, run_on};

/// Answers that are kept, so that reading on does not compute them again.
const KEPT: usize = 4;

/// A tool as `tools/list` describes it.
struct Tool {
    name: &'static str,
    description: &'static str,
    /// Its arguments as JSON Schema.
    properties: Value,
    required: &'static [&'static str],
}

pub(super) struct Tools {
    folders: Folders,
    limit: usize,
    tools: Vec<Tool>,
    answers: Mutex<VecDeque<(String, Value)>>,
}

fn file() -> Value {
    json!({ "type": "string", "description": "A recording: its path, or its path below one of the folders" })
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn number(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}

fn texts(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}

fn device() -> Value {
    json!({ "type": "integer", "minimum": -1, "maximum": 65_535, "description": "The device, by its number in the process (cuda:N); when absent, the one that ran out of memory or else has the highest peak" })
}

fn tools() -> Vec<Tool> {
    let tool = |name, description, properties, required| Tool { name, description, properties, required };
    let mut all = vec![
        tool(
            "open",
            "Without a file: the recordings in the folders. With one: what it holds: format, warnings, per device levels and peaks with their \
             events, failures, steps, phases, and what the peak is made of. A log with an out-of-memory error is explained.",
            json!({ "file": file() }),
            &[],
        ),
        tool(
            "findings",
            "What is wrong, most serious first: each with its bytes, event, evidence, what to change and how to check it.",
            json!({ "file": file() }),
            &["file"],
        ),
        tool(
            "oom",
            "Why each out-of-memory error happened: verdict, holes, the blocks in the way, who holds the device, remedies. Without a failure: how \
             close it came.",
            json!({ "file": file(), "device": device() }),
            &["file"],
        ),
        tool(
            "peak",
            "What holds the memory at the peak of each device: bytes by role, by line and by module, with the event and the phase.",
            json!({ "file": file(), "device": device() }),
            &["file"],
        ),
        tool(
            "state",
            "Segments, blocks and live memory by call stack after one event; at the peak when neither event nor instant is given.",
            json!({
                "file": file(), "event": number("After this event, counted from 0"),
                "instant": { "type": "string", "enum": ["peak", "peak_reserved", "oom", "end"], "description": "An instant by name" },
                "device": device(),
            }),
            &["file"],
        ),
        tool(
            "query",
            "Allocations that a query holds for, one by one, with birth and end as events, role and stack. Terms, joined by spaces: size>1MiB, \
             stack~attention, role=activations, live@peak, live@oom, step=2, born>1000, gone=never; `vramscope allocations --help` has them all.",
            json!({
                "file": file(), "where": text("The query; every allocation when absent"),
                "sort": { "type": "string", "enum": ["size", "block", "born", "gone", "age", "address", "stack", "role"], "description": "What comes first; size when absent" },
                "rows": { "type": "integer", "minimum": 1, "maximum": 10_000, "description": "Rows computed, 20 when absent" },
                "device": device(),
            }),
            &["file"],
        ),
        tool(
            "whatif",
            "The same requests under other allocator settings and limits: peak, retries, the request that fails, how certain.",
            json!({
                "file": file(), "conf": texts("Settings as in PYTORCH_CUDA_ALLOC_CONF, \"default\" for the defaults; a designed list when absent"),
                "limit": text("The most bytes that may be reserved, as in 60GiB; the recording's own when absent"), "device": device(),
            }),
            &["file"],
        ),
        tool(
            "plan",
            "The peak at sizes that were not run, the largest size that fits, and what changes to the program would save, from one or more \
             recordings of a program at known sizes.",
            json!({
                "files": texts("Recordings of one program, best two or three at different sizes"),
                "at": texts("What each was run at, in their order: batch=8 or batch=8,seq=512"),
                "want": texts("Sizes to plan for"), "cap": text("The most bytes that PyTorch may reserve, as in 24GiB"),
                "card": text("A card by name instead of cap: RTX 4090"), "held": text("What other programs use of that card, as in 2GiB"), "conf": texts("Allocator settings to plan with"),
                "change": texts("Changes to try: all, checkpoint, fused, 8bit, bf16, …; several with a plus between"),
                "largest": text("The quantity whose largest value is wanted: batch"), "device": device(),
                "steps": { "type": "integer", "minimum": 1, "maximum": 1_000, "description": "The least number of steps to predict, 3 when absent" },
            }),
            &["files", "at"],
        ),
        tool(
            "diff",
            "What is live in one recording or instant and not in another, by call stack and place; each at its peak when no event is given. \
             Without b it compares two instants of a: its peak with its end, when no event is given.",
            json!({
                "a": file(), "b": file(), "a_event": number("The instant in a"), "b_event": number("The instant in b"),
                "end": { "type": "boolean", "description": "Compare the ends instead of the peaks" }, "device": device(),
            }),
            &["a"],
        ),
    ];
    if picture::CAN_DRAW {
        all.push(tool(
            "picture",
            "A view of the window as a picture: overview, timeline, segment-map, findings, memory, flame and others; an unknown name lists them.",
            json!({
                "file": file(), "view": text("A view or a workspace; overview when absent"),
                "format": { "type": "string", "enum": ["png", "svg"], "description": "png when absent" },
                "width": { "type": "integer", "minimum": 64, "maximum": 2_400, "description": "Pixels, 1200 when absent" },
                "height": { "type": "integer", "minimum": 64, "maximum": 2_400, "description": "Pixels, 800 when absent" },
                "theme": { "type": "string", "enum": ["dark", "light"], "description": "light when absent" },
                "event": number("Where the cursor stands"), "device": device(),
                "offset": number("The first character of an SVG that is wanted, to read on"),
            }),
            &["file"],
        ));
    }
    all
}

impl Tools {
    pub(super) fn new(folders: Folders, limit: usize) -> Self {
        let mut tools = tools();
        for tool in tools.iter_mut().filter(|t| t.name != "picture") {
            tool.properties["pointer"] = text("Only this part of the answer, as `cut` names it, to read on");
            tool.properties["offset"] = number("The first item or character of that part");
        }
        Tools { folders, limit, tools, answers: Mutex::default() }
    }

    pub(super) fn list(&self) -> Value {
        let one = |t: &Tool| {
            json!({
                "name": t.name, "description": t.description,
                "inputSchema": { "type": "object", "properties": t.properties, "required": t.required, "additionalProperties": false },
                "annotations": { "readOnlyHint": true, "openWorldHint": false },
            })
        };
        self.tools.iter().map(one).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|t| t.name == name)
    }

    /// The content of an answer. Fails when an argument is wrong or when the command fails.
    pub(super) fn call(&self, name: &str, arguments: &Value) -> Result<Value, String> {
        let tool = self.tools.iter().find(|t| t.name == name).ok_or("there is no such tool")?;
        check(tool, arguments)?;
        let arguments = Arguments { values: arguments, folders: &self.folders };
        if name == "picture" {
            return arguments.picture(self.limit);
        }
        let at = arguments.text("pointer").map(|pointer| (pointer, arguments.values["offset"].as_u64().unwrap_or(0) as usize));
        let mut asked = arguments.values.clone();
        if let Some(map) = asked.as_object_mut() {
            map.remove("pointer");
            map.remove("offset");
        }
        let key = format!("{name} {asked}");
        let known = || {
            let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.iter().find(|(known, _)| *known == key).map(|(_, answer)| answer.clone())
        };
        // Reading on uses the answer that was cut. Asking again computes a new answer.
        let answer = match at.and_then(|_| known()) {
            Some(answer) => answer,
            None => {
                let answer = arguments.answer(name).map_err(|sentence| spoken(&sentence))?;
                let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
                answers.retain(|(known, _)| *known != key);
                answers.push_front((key, answer.clone()));
                answers.truncate(KEPT);
                answer
            }
        };
        let text = bound(&answer, at, self.limit)?;
        let text = match rest(name, &asked, &text) {
            // Shortens the answer once more, to make room for the question that returns the rest.
            Some(question) => {
                with_rest(&bound(&answer, at, self.limit.saturating_sub(question.to_string().len() + REST))?, name, &asked)
            }
            None => text,
        };
        Ok(json!([{ "type": "text", "text": text }]))
    }
}

/// Characters around that question, including a reserve for its numbers.
const REST: usize = 40;

/// The question that returns the first part that was cut; `None` when nothing was. Questions with very long arguments are not
/// repeated.
fn rest(tool: &str, asked: &Value, answer: &str) -> Option<Value> {
    const LONGEST: usize = 800;
    let answer: Value = serde_json::from_str(answer).ok()?;
    let (pointer, offset) = match &answer["next_offset"] {
        Value::Number(next) => (&answer["pointer"], Value::Number(next.clone())),
        _ => (&answer["cut"][0]["pointer"], answer["cut"][0]["offset"].clone()),
    };
    let mut arguments = asked.as_object()?.clone();
    arguments.insert("pointer".to_owned(), pointer.as_str()?.into());
    arguments.insert("offset".to_owned(), offset);
    let question = json!({ "tool": tool, "arguments": arguments });
    (question.to_string().len() <= LONGEST).then_some(question)
}

/// Adds the question for the rest to an answer that was cut.
fn with_rest(answer: &str, tool: &str, asked: &Value) -> String {
    match (serde_json::from_str(answer), rest(tool, asked, answer)) {
        (Ok(Value::Object(mut map)), Some(question)) => {
            map.insert("rest".to_owned(), question);
            Value::Object(map).to_string()
        }
        _ => answer.to_owned(),
    }
}

fn check(tool: &Tool, arguments: &Value) -> Result<(), String> {
    let known =
        || tool.properties.as_object().into_iter().flat_map(|map| map.keys().map(String::as_str)).collect::<Vec<_>>().join(", ");
    for (key, value) in arguments.as_object().into_iter().flatten() {
        let schema = &tool.properties[key.as_str()];
        let least = schema["minimum"].as_i64().unwrap_or(0);
        let most = schema["maximum"].as_i64().unwrap_or(i64::from(u32::MAX));
        let is_right = match schema["type"].as_str() {
            None => return Err(format!("{} takes no argument {key:?}; it takes {}", tool.name, known())),
            Some("integer") => value.as_i64().is_some_and(|n| (least..=most).contains(&n)),
            Some("boolean") => value.is_boolean(),
            Some("array") => value.as_array().is_some_and(|items| items.len() <= 64 && items.iter().all(Value::is_string)),
            _ => value.as_str().is_some_and(|text| schema["enum"].as_array().is_none_or(|names| names.iter().any(|n| n == text))),
        };
        if !is_right {
            let wanted = match (schema["type"].as_str(), schema["enum"].as_array()) {
                (_, Some(names)) => format!("one of {}", names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")),
                (Some("integer"), _) => format!("a whole number from {least} to {most}"),
                (Some("boolean"), _) => "true or false".to_owned(),
                (Some("array"), _) => "a list of at most 64 texts".to_owned(),
                _ => "a text".to_owned(),
            };
            return Err(format!("{key} of {} is {wanted}", tool.name));
        }
    }
    match tool.required.iter().find(|key| arguments[**key].is_null()) {
        Some(key) => Err(format!("{} needs {key}", tool.name)),
        None => Ok(()),
    }
}

struct Arguments<'a> {
    values: &'a Value,
    folders: &'a Folders,
}

impl Arguments<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.values[key].as_str()
    }

    fn file(&self, key: &str) -> Result<PathBuf, String> {
        self.folders.file(self.text(key).unwrap_or_default())
    }

    /// `--option=value` for each argument that is also an option of the command line. It is a single word, so that a value cannot
    /// be taken for an option.
    fn options(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (key, value) in self.values.as_object().into_iter().flatten().filter(|(key, _)| !NO_OPTIONS.contains(&key.as_str())) {
            let option = if key == "rows" { "limit".to_owned() } else { key.replace('_', "-") };
            match value {
                Value::String(text) => words.push(format!("--{option}={text}")),
                Value::Number(n) => words.push(format!("--{option}={n}")),
                Value::Bool(true) => words.push(format!("--{option}")),
                Value::Array(items) => {
                    words.extend(items.iter().filter_map(Value::as_str).map(|text| format!("--{option}={text}")));
                }
                _ => {}
            }
        }
        words
    }

    fn answer(&self, name: &str) -> Result<Value, String> {
        let file = || self.file("file");
        // The window's own rules are outside the folders, so they are not used.
        let plain = || [vec!["--rules=none".to_owned()], self.options()].concat();
        match name {
            "open" if self.values["file"].is_null() => Ok(self.folders.list()),
            "open" => {
                let file = file()?;
                match ask("summary", Vec::new(), &[&file]) {
                    Err(sentence) if explain::of_file(&file).is_none() => Err(sentence),
                    Err(_) => ask("explain", Vec::new(), &[&file]),
                    done => done,
                }
            }
            "findings" | "oom" => ask(name, plain(), &[&file()?]),
            "query" => ask("allocations", plain(), &[&file()?]),
            "whatif" => ask("whatif", self.options(), &[&file()?]),
            "diff" => {
                let (a, b) = (self.file("a")?, self.text("b").map(|_| self.file("b")).transpose()?);
                let files: Vec<&Path> = std::iter::once(&a).chain(&b).map(PathBuf::as_path).collect();
                let mut options = plain();
                if b.is_none() && self.values["a_event"].is_null() && self.values["b_event"].is_null() {
                    let recording = open_blocks(&a)?;
                    let device = self.values["device"].as_i64().and_then(|n| i32::try_from(n).ok());
                    let events = recording.devices[choose_device(&recording, device)?].events.len();
                    // The other instant is the peak.
                    options.push(format!("--b-event={}", events.saturating_sub(1)));
                }
                ask("diff", options, &files)
            }
            "peak" => Ok(peak(ask("summary", Vec::new(), &[&file()?])?, self.values["device"].as_i64())?),
            "state" => {
                let instant = match self.text("instant") {
                    Some("peak_reserved") => Some("--peak=reserved"),
                    Some("oom") => Some("--oom"),
                    Some("end") => Some("--end"),
                    Some(_) => Some("--peak"),
                    None => None,
                };
                ask("state", plain().into_iter().chain(instant.map(str::to_owned)).collect(), &[&file()?])
            }
            "plan" => {
                let names = self.values["files"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let files: Vec<PathBuf> = names.map(|name| self.folders.file(name)).collect::<Result<_, _>>()?;
                ask("plan", self.options(), &files.iter().map(PathBuf::as_path).collect::<Vec<_>>())
            }
            _ => Err("there is no such tool".to_owned()),
        }
    }

    fn picture(&self, limit: usize) -> Result<Value, String> {
        let side = |key: &str, usual: u64| self.values[key].as_u64().unwrap_or(usual);
        let is_svg = self.text("format") == Some("svg");
        let mut words = self.options();
        words.push(format!("--size={}x{}", side("width", 1_200), side("height", 800)));
        words.push(format!("--theme={}", self.text("theme").unwrap_or("light")));
        words.extend(is_svg.then(|| "--svg".to_owned()));
        let offset = self.values["offset"].as_u64().unwrap_or(0) as usize;
        picture::draw(&self.file("file")?, &words, is_svg, offset, limit).map_err(|sentence| spoken(&sentence))
    }
}

const NO_OPTIONS: [&str; 11] = ["file", "files", "a", "b", "instant", "pointer", "offset", "format", "width", "height", "theme"];

/// Phrases of the command line, and what to say here instead.
const OTHER_NAMES: [(&str, &str); 7] = [
    ("read what it means (vramscope explain FILE, or Ctrl+E in the window)", "the tool open tells what it means"),
    ("use --peak, --end or --event N", "ask for the instant peak or end, or for an event"),
    ("--a-event", "a_event"),
    ("--b-event", "b_event"),
    ("--peak", "instant"),
    ("--oom", "instant"),
    ("--size", "width"),
];

/// Rephrases a sentence of the command line for the protocol: `--limit <BYTES>` becomes the argument `limit`.
fn spoken(sentence: &str) -> String {
    let mut text = sentence.to_owned();
    // Replaces references to the command's help with `tools/list`.
    if let Some((before, _)) = text.rsplit_once(" (vramscope ").filter(|(_, help)| help.contains("--help")) {
        text = format!("{before} (tools/list describes the arguments)");
    }
    for (option, name) in OTHER_NAMES {
        text = text.replace(option, name);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find("--") {
        let (before, option) = rest.split_at(at);
        out += before;
        let is_name = option[2..].starts_with(|c: char| c.is_ascii_lowercase());
        let name = option[2..].bytes().take_while(|b| is_name && (b.is_ascii_lowercase() || *b == b'-')).count();
        // Dashes inside a word, or a row of dashes, are not an option.
        if name == 0 || before.ends_with(|c: char| c.is_alphanumeric() || c == '-') {
            let dashes = option.bytes().take_while(|b| *b == b'-').count();
            out += &option[..dashes];
            rest = &option[dashes..];
            continue;
        }
        out += &option[2..2 + name];
        rest = &option[2 + name..];
        // The name of an option's value, `<FILE>`, is dropped too.
        if let Some((_, behind)) = rest.strip_prefix(" <").and_then(|value| value.split_once('>')) {
            rest = behind;
        }
    }
    // What is left of `<FILE>` and `<B>` names an argument too.
    let text = out + rest;
    let mut parts = text.split('<');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let name = part.split_once('>').filter(|(name, _)| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase()));
        match name {
            Some((name, behind)) => out += &(name.to_ascii_lowercase() + behind),
            None => out += &format!("<{part}"),
        }
    }
    out
}

/// Runs a subcommand and returns its JSON.
fn ask(command: &str, options: Vec<String>, files: &[&Path]) -> Result<Value, String> {
    let mut words: Vec<OsString> = vec!["vramscope".into(), command.into(), "--json".into()];
    words.extend(options.into_iter().map(OsString::from));
    words.push("--".into());
    words.extend(files.iter().map(|file| file.as_os_str().to_owned()));
    let parsed = args::Args::try_parse_from(words).map_err(|e| args::one_sentence(&e.to_string()))?;
    let command = parsed.command.ok_or("there is no such command")?;
    let mut out = Vec::new();
    if let Err(failure) = run_on(command, &mut out) {
        // A failed command may have written JSON, which says more than its sentence.
        return serde_json::from_slice(&out).map_err(|_| failure.into_parts().1);
    }
    serde_json::from_slice(&out).map_err(|e| format!("the answer cannot be read: {e}"))
}

/// The parts of a summary that explain its peaks.
fn peak(summary: Value, device: Option<i64>) -> Result<Value, String> {
    let levels = [
        "reserved_bytes",
        "active_bytes",
        "allocated_bytes",
        "requested_bytes",
        "capacity_bytes",
        "limit_bytes",
        "name",
        "kind",
        "index",
        "peak",
        "limit",
        "steps",
    ];
    let devices = summary["devices"].as_array().into_iter().flatten();
    let devices: Vec<Value> = devices
        .filter(|d| device.is_none_or(|wanted| d["index"] == wanted))
        .map(|d| levels.iter().map(|key| ((*key).to_owned(), d[*key].clone())).collect())
        .collect();
    if devices.is_empty() {
        return Err("the recording has no such device".to_owned());
    }
    Ok(json!({ "file": summary["file"], "caveat": summary["load"]["caveat"], "devices": devices }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_arguments_and_no_options() {
        for (typed, said) in [
            (
                "invalid value 'x' for '--limit <BYTES>': \"x\" is not a size (vramscope whatif --help lists its options)",
                "invalid value 'x' for 'limit': \"x\" is not a size (tools/list describes the arguments)",
            ),
            ("--a-event 9 is behind the end", "a_event 9 is behind the end"),
            ("a--b ---- c", "a--b ---- c"),
            ("a value is required for '<B>' <x> <", "a value is required for 'b' <x> <"),
        ] {
            assert_eq!(spoken(typed), said);
        }
    }

    #[test]
    fn arguments_are_held_against_the_schema() {
        let tools = tools();
        let of = |name: &str| tools.iter().find(|t| t.name == name).unwrap();
        for (name, arguments, part) in [
            ("state", json!({}), "needs file"),
            ("state", json!({ "file": 3 }), "file of state is a text"),
            ("state", json!({ "file": "a", "event": -1 }), "event of state is a whole number"),
            ("state", json!({ "file": "a", "event": 1.5 }), "whole number"),
            (
                "state",
                json!({ "file": "a", "event": 5_000_000_000_u64 }),
                "event of state is a whole number from 0 to 4294967295",
            ),
            ("peak", json!({ "file": "a", "device": 70_000 }), "from -1 to 65535"),
            ("state", json!({ "file": "a", "instant": "noon" }), "one of peak, peak_reserved, oom, end"),
            ("query", json!({ "file": "a", "rows": 0 }), "from 1 to 10000"),
            ("plan", json!({ "files": "a", "at": [] }), "a list"),
            ("diff", json!({ "a": "a", "b": "b", "end": "yes" }), "true or false"),
            ("findings", json!({ "file": "a", "save": "x" }), "takes no argument \"save\""),
        ] {
            let said = check(of(name), &arguments).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(check(of("open"), &json!({})), Ok(()));
        for tool in &tools {
            let known = tool.properties.as_object().unwrap();
            assert!(tool.required.iter().all(|key| known.contains_key(*key)), "{}", tool.name);
        }
    }
}
