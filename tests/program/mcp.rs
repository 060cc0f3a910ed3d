//! `mcp`: every tool through the protocol, on the probe's scenarios, and invalid requests. Also checks that what `guide` names
//! exists.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::cli::{json, run, stdout};

/// A server on some folders, and the client's end.
struct Client {
    server: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    id: u64,
}

impl Client {
    fn new(folders: &[&Path], options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramscope"));
        command.arg("mcp").args(options).args(folders).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        let mut server = command.spawn().expect("it starts");
        let from = BufReader::new(server.stdout.take().expect("piped"));
        let to = server.stdin.take();
        let mut client = Client { server, to, from, id: 0 };
        let hello = client.ask(
            "initialize",
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "0" } }),
        );
        assert_eq!(
            (hello["result"]["protocolVersion"].as_str(), hello["result"]["serverInfo"]["name"].as_str()),
            (Some("2025-06-18"), Some("vramscope"))
        );
        assert!(hello["result"]["capabilities"]["tools"].is_object());
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        client
    }

    fn say(&mut self, line: &str) {
        writeln!(self.to.as_mut().expect("open"), "{line}").expect("it listens");
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.id += 1;
        self.say(&json!({ "jsonrpc": "2.0", "id": self.id, "method": method, "params": params }).to_string());
        let answer = self.hear();
        assert_eq!((answer["id"].as_u64(), answer["jsonrpc"].as_str()), (Some(self.id), Some("2.0")), "{answer}");
        answer
    }

    /// The text of a tool's answer, and whether it is an error.
    fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        (text, answer["result"]["isError"].as_bool().expect("said"))
    }

    fn data(&mut self, tool: &str, arguments: Value) -> Value {
        let (text, is_error) = self.call(tool, arguments.clone());
        assert!(!is_error, "{tool} {arguments}: {text}");
        assert!(text.chars().count() <= 20_000, "{tool}: {}", text.len());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{tool}: {e}"))
    }

    fn refused(&mut self, tool: &str, arguments: Value) -> String {
        let (text, is_error) = self.call(tool, arguments.clone());
        assert!(is_error && text.lines().count() == 1, "{tool} {arguments}: {:.300}", text);
        text
    }

    fn end(mut self) {
        drop(self.to.take());
        assert!(self.server.wait().expect("it ends").success());
    }
}

fn probe(scenario: &str, folder: &Path) -> String {
    let name = format!("{scenario}.pickle");
    let output = run(&["probe", scenario, "--simulated", "--json", &folder.join(&name).display().to_string()]);
    assert!(output.status.success(), "{scenario}: {}", String::from_utf8_lossy(&output.stderr));
    name
}

fn scenarios() -> Vec<String> {
    vramscope_live::probe::ALL.iter().map(|s| s.name.to_owned()).collect()
}

#[test]
fn every_tool_answers_on_every_scenario_of_the_probe() {
    let folder = tempfile::tempdir().expect("a folder");
    let files: Vec<String> = scenarios().iter().map(|s| probe(s, folder.path())).collect();
    let mut client = Client::new(&[folder.path()], &[]);
    let tools = client.ask("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().expect("tools").clone();
    let names: Vec<&str> = tools.iter().map(|t| t["name"].as_str().expect("a name")).collect();
    let mut wanted = vec!["open", "findings", "oom", "peak", "state", "query", "whatif", "plan", "diff"];
    wanted.extend(cfg!(feature = "gui").then_some("picture"));
    assert_eq!(names, wanted);
    for tool in &tools {
        let schema = &tool["inputSchema"];
        assert_eq!((schema["type"].as_str(), schema["additionalProperties"].as_bool()), (Some("object"), Some(false)));
        for (name, property) in schema["properties"].as_object().expect("properties") {
            assert!(
                property["type"].is_string() && property["description"].is_string() || name == "a" || name == "b",
                "{name}: {property}"
            );
        }
    }
    let listed = client.data("open", json!({}));
    assert_eq!(listed["files"].as_array().expect("files").len(), files.len());
    for file in &files {
        let path = folder.path().canonicalize().expect("there").join(file).display().to_string();
        let (summary, found) = (json(&["summary", &path, "--json"]), json(&["findings", &path, "--rules", "none", "--json"]));
        let open = client.data("open", json!({ "file": file }));
        assert_eq!(open["devices"][0]["active_bytes"], summary["devices"][0]["active_bytes"], "{file}");
        let peak = client.data("peak", json!({ "file": file }));
        assert_eq!(peak["devices"][0]["peak"]["by_role"], summary["devices"][0]["peak"]["by_role"], "{file}");
        assert_eq!(peak["devices"][0]["peak"]["event"], summary["devices"][0]["peak"]["event"], "{file}");
        let findings = client.data("findings", json!({ "file": file }));
        let heads = |v: &Value| {
            v["findings"]
                .as_array()
                .expect("findings")
                .iter()
                .map(|f| (f["rule"].clone(), f["bytes"].clone(), f["event"].clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(heads(&findings), heads(&found), "{file}");
        let oom = client.data("oom", json!({ "file": file }));
        let failures = summary["devices"][0]["ooms"].as_array().expect("ooms").len();
        assert!(
            oom["ooms"].as_array().expect("ooms").len() <= failures && (failures > 0 || oom["peaks"][0]["event"].is_number()),
            "{file}"
        );
        let event = summary["devices"][0]["active_bytes"]["peak_event"].as_u64().expect("an event");
        let state = client.data("state", json!({ "file": file, "event": event }));
        assert_eq!(
            (state["event"].as_u64(), &state["totals"]["active_bytes"]),
            (Some(event), &summary["devices"][0]["active_bytes"]["peak"]),
            "{file}"
        );
        let rows = client.data("query", json!({ "file": file, "where": "live@peak", "sort": "size", "rows": 3 }));
        assert!(rows["rows"].as_array().expect("rows").iter().all(|r| r["born"].is_number() && r["bytes"].is_number()), "{file}");
        let runs = client.data("whatif", json!({ "file": file, "conf": ["default", "expandable_segments:True"] }));
        assert_eq!(runs["runs"].as_array().expect("runs").len(), 2, "{file}");
        let plan =
            client.data("plan", json!({ "files": [file], "at": ["batch=4"], "want": ["batch=8"], "cap": "24GiB", "steps": 2 }));
        assert!(plan["at"].is_array() && plan["cap_bytes"] == 24u64 << 30, "{file}");
        let diff = client.data("diff", json!({ "a": file, "b": files[0] }));
        assert!(diff["a"]["bytes"].is_number() && diff["a"].get("event").is_some(), "{file}");
        let instants = client.data("diff", json!({ "a": file, "a_event": 0, "b_event": 1 }));
        assert_eq!((&instants["a"]["event"], &instants["b"]["event"]), (&json!(0), &json!(1)), "{file}");
        if cfg!(feature = "gui") {
            let answer = client.ask("tools/call", json!({ "name": "picture", "arguments": { "file": file, "view": "timeline", "format": "svg", "width": 600, "height": 300 } }));
            let resource = &answer["result"]["content"][0]["resource"];
            assert!(
                resource["text"].as_str().is_some_and(|svg| svg.starts_with("<svg ")) && resource["mimeType"] == "image/svg+xml",
                "{file}: {answer}"
            );
            let png = client.ask(
                "tools/call",
                json!({ "name": "picture", "arguments": { "file": file, "view": "timeline", "width": 600, "height": 300 } }),
            );
            let picture = &png["result"]["content"][0];
            // The signature of a PNG.
            assert!(
                picture["mimeType"] == "image/png" && picture["data"].as_str().is_some_and(|d| d.starts_with("iVBORw0KGgo")),
                "{file}"
            );
            let text = resource["text"].as_str().expect("a text");
            assert!(text.chars().count() <= 20_000, "{}", text.len());
            if text.chars().count() == 20_000 {
                let told = answer["result"]["content"][1]["text"].as_str().expect("the way to the rest");
                let next = serde_json::from_str::<Value>(told).expect("JSON")["next_offset"].clone();
                let more = client.ask("tools/call", json!({ "name": "picture", "arguments": { "file": file, "view": "timeline", "format": "svg", "width": 600, "height": 300, "offset": next } }));
                let more = &more["result"]["content"][0]["resource"]["text"];
                assert!(more.as_str().is_some_and(|part| !part.is_empty() && !part.starts_with("<svg")), "{file}: {more}");
            }
        }
    }
    client.end();
}

#[test]
fn what_is_cut_from_an_answer_is_reached_by_what_it_says() {
    let mut client = Client::new(&[&Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots")], &["--limit", "3000"]);
    let arguments = json!({ "file": "gpt_train.pickle", "where": "", "rows": 400 });
    let whole = json(&["allocations", &super::cli::sample("gpt_train.pickle"), "--rules", "none", "--limit", "400", "--json"]);
    let (text, is_error) = client.call("query", arguments.clone());
    assert!(!is_error && text.chars().count() <= 3_000, "{}", text.len());
    let first: Value = serde_json::from_str(&text).expect("JSON");
    let cut = first["cut"].as_array().expect("a list").iter().find(|c| c["pointer"] == "/rows").expect("rows are cut").clone();
    let mut ids: Vec<Value> = first["rows"].as_array().expect("rows").iter().map(|r| r["id"].clone()).collect();
    let mut offset = cut["offset"].clone();
    while offset.is_number() {
        let mut asked = arguments.clone();
        (asked["pointer"], asked["offset"]) = (json!("/rows"), offset);
        let (text, is_error) = client.call("query", asked);
        assert!(!is_error && text.chars().count() <= 3_000, "{text}");
        let page: Value = serde_json::from_str(&text).expect("JSON");
        ids.extend(page["items"].as_array().expect("items").iter().map(|r| r["id"].clone()));
        offset = page["next_offset"].clone();
    }
    // The same with the follow-up questions that the answers contain.
    let (mut rest, mut found) = (first["rest"].clone(), ids[..first["rows"].as_array().expect("rows").len()].to_vec());
    assert_eq!((&rest["tool"], &rest["arguments"]["pointer"]), (&json!("query"), &json!("/rows")), "{first}");
    while rest.is_object() {
        let (text, is_error) = client.call(rest["tool"].as_str().expect("a tool"), rest["arguments"].clone());
        assert!(!is_error && text.chars().count() <= 3_000, "{text}");
        let page: Value = serde_json::from_str(&text).expect("JSON");
        found.extend(page["items"].as_array().expect("items").iter().map(|r| r["id"].clone()));
        rest = if page["next_offset"].is_null() { Value::Null } else { page["rest"].clone() };
    }
    assert_eq!(found, ids);
    assert_eq!(ids, whole["rows"].as_array().expect("rows").iter().map(|r| r["id"].clone()).collect::<Vec<_>>());
    let stack =
        client.call("query", json!({ "file": "gpt_train.pickle", "where": "", "rows": 400, "pointer": "/rows/399/stack" })).0;
    assert_eq!(serde_json::from_str::<Value>(&stack).expect("JSON")["items"], whole["rows"][399]["stack"]);
    assert!(client.refused("query", json!({ "file": "gpt_train.pickle", "pointer": "/nothing" })).contains("/nothing"));
    client.end();
}

#[test]
fn a_small_answer_has_the_verdict_and_one_recording_has_a_difference() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots");
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/plan");
    let mut client = Client::new(&[&samples, &plans], &["--limit", "2000"]);
    for file in ["serve_oom.pickle.gz", "fragment_oom.pickle"] {
        let answer = client.data("oom", json!({ "file": file }));
        assert!(answer["ooms"][0]["verdict"].is_string() && answer["cut"].is_array(), "{answer}");
    }
    let answer =
        client.data("plan", json!({ "files": ["gpt.b4.pickle.zst"], "at": ["batch=4"], "want": ["batch=8"], "cap": "24GiB" }));
    assert!(answer["at"][0].is_object() && answer["largest"][0].is_object(), "{answer}");
    client.end();
    let mut client = Client::new(&[&samples], &[]);
    let answer = client.data("diff", json!({ "a": "gpt_train.pickle" }));
    let [peak, end] = ["a", "b"].map(|side| answer[side]["event"].as_u64().expect("an event"));
    assert!(peak < end && answer["change_bytes"].as_i64() < Some(0), "{answer}");
    client.end();
}

#[test]
fn nothing_outside_the_folders_is_read_and_nothing_is_written() {
    let outside = tempfile::tempdir().expect("a folder");
    let inside = tempfile::tempdir().expect("a folder");
    let secret = outside.path().join("secret.pickle");
    std::fs::copy(super::cli::sample("leak.pickle"), &secret).expect("copied");
    std::fs::copy(super::cli::sample("leak.pickle"), inside.path().join("leak.pickle")).expect("copied");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&secret, inside.path().join("link.pickle")).expect("linked");
    let mut client = Client::new(&[inside.path()], &[]);
    let up = format!("../{}/secret.pickle", outside.path().file_name().expect("a name").to_string_lossy());
    let absolute = secret.display().to_string();
    for name in [up.as_str(), absolute.as_str(), "link.pickle", "/etc/passwd", "-", "--help", "leak.pickle/../../x", "."] {
        for tool in ["open", "findings", "oom", "peak", "state", "query", "whatif"] {
            assert!(client.refused(tool, json!({ "file": name })).contains("there is no such file"), "{tool} {name}");
        }
        assert!(client.refused("diff", json!({ "a": "leak.pickle", "b": name })).contains("there is no such file"));
        assert!(
            client
                .refused("plan", json!({ "files": ["leak.pickle", name], "at": ["batch=1", "batch=2"] }))
                .contains("there is no such file")
        );
    }
    // Options that write or read files on the command line are no arguments here, and no value becomes an option.
    for (tool, arguments) in [
        ("whatif", json!({ "file": "leak.pickle", "save": "x.pickle" })),
        ("findings", json!({ "file": "leak.pickle", "rules": "/etc/passwd" })),
        ("state", json!({ "file": "leak.pickle", "instant": "--event=1" })),
        ("whatif", json!({ "file": "leak.pickle", "conf": ["--save=x.pickle"] })),
        ("plan", json!({ "files": ["leak.pickle"], "at": ["--json"] })),
    ] {
        client.refused(tool, arguments);
    }
    let asked = client.data("query", json!({ "file": "leak.pickle", "where": "--rules=/etc/passwd", "rows": 1 }));
    assert_eq!(asked["where"], "--rules=/etc/passwd", "a query, whatever it looks like");
    client.end();
    let mut left: Vec<String> = std::fs::read_dir(inside.path())
        .expect("a folder")
        .map(|e| e.expect("there").file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left, ["leak.pickle", "link.pickle"]);
    assert_eq!(run(&["mcp", "no/such/folder"]).status.code(), Some(2));
    assert_eq!(run(&["mcp"]).status.code(), Some(2));
}

#[test]
fn what_is_no_question_gets_one_clear_error_and_a_ping_overtakes_long_work() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(super::cli::sample("serve_oom.pickle.gz"), folder.path().join("serve.pickle.gz")).expect("copied");
    let mut client = Client::new(&[folder.path()], &[]);
    for (line, code) in [
        ("garbage", -32_700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,", -32_700),
        ("[]", -32_600),
        ("17", -32_600),
        ("null", -32_600),
        ("\"text\"", -32_600),
        ("{}", -32_600),
        ("{\"id\":1,\"method\":\"ping\"}", -32_600),
        ("{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", -32_600),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", -32_600),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/list\"}", -32_601),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}", -32_602),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"rm\"}}", -32_602),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"open\",\"arguments\":[]}}", -32_602),
    ] {
        client.say(line);
        let answer = client.hear();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|m| !m.is_empty()), "{line}");
    }
    client.say(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    assert_eq!(client.hear()["error"]["code"], -32_700, "depth is bounded");
    client.say(&"x".repeat(3 << 20));
    assert_eq!(client.hear()["error"]["code"], -32_600, "so is a line");
    client.to.as_mut().expect("open").write_all(b"\xff\xfe\n\n  \n").expect("it listens");
    assert_eq!(client.hear()["error"]["code"], -32_700, "and empty lines say nothing");
    // Older versions of the protocol send several messages at once, and get their answers together.
    let open = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "open" } });
    let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
    let notice = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    client.say(&json!([open, notice, ping, 17]).to_string());
    let answers = client.hear();
    // In the order in which they are ready.
    let mut ids: Vec<String> = answers.as_array().expect("one list").iter().map(|a| a["id"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["\"p\"", "2", "null"], "{answers}");
    client.say(&json!([notice]).to_string());
    // What cannot come back as it was is refused.
    client.say("{\"jsonrpc\":\"2.0\",\"id\":123456789012345678901234567890,\"method\":\"ping\"}");
    assert_eq!(client.hear()["error"]["code"], -32_600);
    client.say("{\"jsonrpc\":\"2.0\",\"id\":18446744073709551615,\"method\":\"ping\"}");
    assert_eq!(client.hear()["id"], u64::MAX);
    // Notifications and unrelated responses get no answer.
    client.say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":77}}");
    client.say("{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}");
    let call = |id: u64| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "oom", "arguments": { "file": "serve.pickle.gz" } } }).to_string()
    };
    client.say(&call(78));
    client.say(&call(77));
    client.say("{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}");
    let first = client.hear();
    assert_eq!(
        (first["id"].as_str(), first["result"].is_object()),
        (Some("p"), true),
        "the ping is answered while a tool works: {first}"
    );
    assert_eq!(client.hear()["id"], 78);
    client.say("{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"ping\"}");
    assert_eq!(client.hear()["id"], "q", "77 was cancelled before it began");
    // Questions asked before the end are answered.
    client.say(&call(79));
    drop(client.to.take());
    assert_eq!(client.hear()["id"], 79);
    assert!(client.server.wait().expect("it ends").success());
}

#[test]
fn errors_are_bounded_and_speak_of_arguments() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots");
    let mut client = Client::new(&[&folder], &["--limit", "3000"]);
    let long = "(".repeat(200_000);
    for (tool, arguments) in [
        ("open", json!({ "file": long })),
        ("query", json!({ "file": "leak.pickle", "where": long })),
        ("whatif", json!({ "file": "leak.pickle", "limit": long })),
        ("state", json!({ "file": "leak.pickle", long.as_str(): 1 })),
        ("findings", json!({ "file": "leak.pickle", "pointer": long })),
    ] {
        let said = client.refused(tool, arguments);
        assert!(said.chars().count() < 2_000, "{tool}: {}", said.len());
    }
    for (tool, arguments, named) in [
        ("whatif", json!({ "file": "leak.pickle", "limit": "much" }), "'limit'"),
        ("plan", json!({ "files": ["leak.pickle"], "at": ["batch=4"], "largest": "batch" }), "cap"),
        ("state", json!({ "file": "gpt_train.pickle", "instant": "oom" }), "event"),
        ("oom", json!({ "file": "leak.pickle", "device": 99 }), "99"),
    ] {
        let said = client.refused(tool, arguments);
        assert!(said.contains(named) && !said.contains("--"), "{tool}: {said}");
    }
    client.end();
    // An agent is referred to a tool, not to the window.
    let logs = tempfile::tempdir().expect("a folder");
    let log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0.50 GiB free; 7.20 GiB reserved in total by PyTorch)";
    std::fs::write(logs.path().join("train.log"), log).expect("written");
    let mut client = Client::new(&[logs.path()], &[]);
    let said = client.refused("findings", json!({ "file": "train.log" }));
    assert!(said.contains("the tool open") && !said.contains("window") && !said.contains("vramscope explain"), "{said}");
    client.end();
}

#[test]
fn the_guide_names_commands_and_options_that_are_there() {
    let guide = stdout(&run(&["guide"]));
    assert!((40..=70).contains(&guide.lines().count()), "{} lines", guide.lines().count());
    assert!(guide.lines().all(|line| line.chars().count() <= 160));
    let mut seen = 0;
    for code in guide.split('`').skip(1).step_by(2).filter(|code| code.starts_with("vramscope ")) {
        let words: Vec<&str> = code.split_whitespace().collect();
        let help = run(&[words[1], "--help"]);
        assert!(help.status.success(), "{code}: there is no command {}", words[1]);
        let help = stdout(&help);
        for option in words.iter().filter(|w| w.starts_with('-')) {
            let is_there = help.split(|c: char| c.is_whitespace() || ",=[".contains(c)).any(|w| w == *option);
            assert!(is_there, "{code}: {} has no {option}", words[1]);
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
    // Options mentioned with a command on the same line of the list.
    for line in guide.lines().filter(|line| line.starts_with("- ") && line.contains("`vramscope ")) {
        let command = line.split("`vramscope ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a command");
        let help = stdout(&run(&[command.trim_matches('`'), "--help"]));
        for option in line.split('`').skip(1).step_by(2).filter(|code| code.starts_with("--")) {
            let option = option.split([' ', '=']).next().expect("a word");
            assert!(help.contains(option), "{line}: {command} has no {option}");
        }
    }
    // Keys that are named for the samples' answers.
    let leak = super::cli::sample("leak.pickle");
    let summary = json(&["summary", &leak, "--json"]);
    for pointer in [
        "/devices/0/active_bytes/peak",
        "/devices/0/active_bytes/peak_event",
        "/devices/0/ooms",
        "/peak/by_role",
        "/peak/by_line",
        "/peak/by_module",
        "/steps",
        "/load/warnings",
    ] {
        assert!(summary.pointer(pointer).is_some(), "{pointer}");
    }
    let found = json(&["findings", &leak, "--json"]);
    for key in ["title", "bytes", "event", "remedy", "advice", "verify"] {
        assert!(found["findings"][0].get(key).is_some(), "{key}");
    }
    let state = json(&["state", &leak, "--peak", "--json"]);
    assert!(["totals", "segments", "live"].iter().all(|key| state.get(key).is_some()));
}
