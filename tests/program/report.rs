//! `report`: the figures of other commands on one page, escaping of markup, and size limits.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::cli::{answer, complaint, json, refused, run, sample};

/// Writes the report on a file into a temporary folder and reads it.
fn report(args: &[&str], name: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join(name).display().to_string();
    let text = answer(&[&["report", "-o", &out], args].concat());
    assert!(text.contains(": the report, "), "{text}");
    std::fs::read_to_string(out).expect("written")
}

fn html(file: &str) -> String {
    report(&[file], "report.html")
}

/// The data of the pictures, parsed as JSON.
fn pictures(page: &str) -> Vec<Value> {
    let Some((_, rest)) = page.split_once("<script type=\"application/json\" id=data>") else { return Vec::new() };
    let (data, _) = rest.split_once("</script>").expect("it ends");
    serde_json::from_str(data).expect("JSON")
}

/// The text of a page without markup, script and style.
fn text_of(page: &str) -> String {
    let mut out = String::new();
    let mut rest = page;
    while let Some((before, tag)) = rest.split_once('<') {
        out += before;
        let end = if tag.starts_with("script") {
            "</script>"
        } else if tag.starts_with("style") {
            "</style>"
        } else {
            ">"
        };
        rest = tag.split_once(end).expect("a tag ends").1;
    }
    out += rest;
    for (entity, c) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&middot;", "·"), ("&amp;", "&")] {
        out = out.replace(entity, c);
    }
    out.replace('\u{a0}', " ")
}

fn said(value: &Value) -> String {
    value.as_str().expect("a text").replace('\u{a0}', " ")
}

#[test]
fn markdown_goes_to_standard_output_where_no_file_is_named() {
    let file = sample("fragment_oom.pickle");
    let text = answer(&["report", &file, "--format", "md"]);
    assert!(text.starts_with("**Out of memory at event 176: ") && !text.contains(": capacity"), "{text}");
    assert!(text.contains("| live block | wastes beside it | role | made at |"), "{text}");
    // A page of HTML does not fill the terminal.
    let sentence = refused(&["report", &file], 2);
    assert!(sentence.contains("-o report.html"), "{sentence}");
}

#[test]
fn a_report_tells_what_summary_findings_and_oom_tell() {
    for name in [
        "serve_oom.pickle.gz",
        "gpt_train.pickle",
        "leak.pickle",
        "two_gpus.pickle",
        "fragment_oom.pickle",
        "kv_decode_oom.pickle.gz",
    ] {
        let file = sample(name);
        let page = html(&file);
        let text = text_of(&page);
        let (summary, found, oom) =
            (json(&["summary", &file, "--json"]), json(&["findings", &file, "--json"]), json(&["oom", &file, "--json"]));
        let mut texts: Vec<String> = Vec::new();
        for f in found["findings"].as_array().expect("findings") {
            texts.extend(["title", "sentence", "verify"].map(|key| said(&f[key])));
            texts.extend(f["evidence"].as_array().expect("evidence").iter().map(|e| said(&e["value"])));
        }
        texts.extend(oom["ooms"].as_array().expect("ooms").iter().rev().take(1).map(|o| said(&o["sentence"])));
        for d in summary["devices"].as_array().expect("devices") {
            texts.push(said(&d["peak"]["sentence"]));
            texts.extend(d["peak"]["by_line"].as_array().expect("lines").iter().take(12).map(|l| said(&l["name"])));
        }
        for part in texts {
            assert!(text.contains(&part), "{name}: {part}");
        }
        let mut timelines = pictures(&page).into_iter().filter(|p| p["timeline"].is_object()).map(|mut p| p["timeline"].take());
        for d in summary["devices"].as_array().expect("devices") {
            let timeline = timelines.next().expect("a timeline for each device");
            let values = |layer: &Value| {
                layer["values"].as_array().expect("values").iter().map(|v| v.as_u64().expect("bytes")).collect::<Vec<u64>>()
            };
            let layers: Vec<Vec<u64>> = timeline["stack"].as_array().expect("layers").iter().map(values).collect();
            let sums: Vec<u64> =
                (0..timeline["at"].as_array().expect("columns").len()).map(|i| layers.iter().map(|l| l[i]).sum()).collect();
            let peak = sums.iter().copied().max();
            assert_eq!(peak, d["active_bytes"]["peak"].as_u64(), "{name}: the peak is never lost");
            let at = sums.iter().position(|s| Some(*s) == peak).expect("there");
            assert_eq!(timeline["at"][at], d["active_bytes"]["peak_event"], "{name}");
            for layer in timeline["stack"].as_array().expect("layers") {
                let role = layer["name"].as_str().expect("a name").replace("KV cache", "kv_cache").replace(' ', "_");
                let held = d["peak"]["by_role"][role.as_str()].as_u64().unwrap_or(0);
                assert_eq!(layer["values"][at].as_u64(), Some(held), "{name}: {role}");
            }
            let reserved = values(&timeline["lines"][0]).into_iter().max();
            assert_eq!(reserved, d["reserved_bytes"]["peak"].as_u64(), "{name}");
        }
        let markdown = report(&[&file], "report.md").replace('\u{200b}', "");
        let lead = oom["ooms"]
            .as_array()
            .and_then(|o| o.last())
            .map_or_else(|| said(&summary["devices"][0]["peak"]["sentence"]), |o| said(&o["sentence"]));
        assert!(markdown.replace('\u{a0}', " ").contains(&lead.replace('_', "\\_")), "{name}: {lead}");
    }
}

#[test]
fn the_map_holds_the_segments_of_the_failure() {
    let file = sample("fragment_oom.pickle");
    let state = json(&["state", &file, "--oom", "--json"]);
    let maps: Vec<Value> =
        pictures(&html(&file)).into_iter().filter(|p| p["map"].is_object()).map(|mut p| p["map"].take()).collect();
    let [map] = &maps[..] else { panic!("one map") };
    let sum = |cells: &Value| cells.as_array().expect("cells").iter().map(|c| c[0].as_u64().expect("bytes")).sum::<u64>();
    let segments = map["segments"].as_array().expect("segments");
    let bytes: Vec<u64> = segments.iter().map(|s| sum(&s["cells"])).collect();
    let told: Vec<u64> =
        state["segments"].as_array().expect("segments").iter().map(|s| s["bytes"].as_u64().expect("bytes")).collect();
    assert_eq!(bytes, told);
    assert_eq!(map["event"], state["event"]);
    let holes = segments.iter().flat_map(|s| s["cells"].as_array().expect("cells")).filter(|c| c[1] == -1);
    assert_eq!(holes.map(|c| c[0].as_u64().expect("bytes")).max(), state["holes"]["largest_bytes"].as_u64());
    assert_eq!(map["request"], 500 << 20);
}

/// Names that would be markup, script, a mention, a link, or terminal control codes if they were not escaped.
const HOSTILE: [&str; 8] = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>.py",
    "\"><svg onload=alert(3)>",
    "'><a href=javascript:alert(4)>",
    "<!--<script>",
    "](http://evil.example) **bold** `code` | cell | <b>",
    "@everyone #1 ![x](http://evil.example/x.png)\n# title\n```\n",
    "\u{202e}\u{1b}[2J\u{2028}&lt;b&gt;",
];

fn hostile_snapshot() -> Value {
    let address = 1u64 << 30;
    let frames = |i: usize| json!([{ "filename": HOSTILE[i], "name": HOSTILE[(i + 3) % HOSTILE.len()], "line": 7 }]);
    let size = 1u64 << 20;
    let events: Vec<Value> = (0..HOSTILE.len() * 4)
        .map(|i| json!({ "action": "alloc", "addr": address + i as u64 * size, "size": size, "stream": 0, "time_us": i, "frames": frames(i % HOSTILE.len()) }))
        .chain([json!({ "action": "oom", "size": 3u64 << 30, "stream": 0, "device_free": 5, "time_us": 99, "frames": frames(0) })])
        .collect();
    let blocks: Vec<Value> = (0..HOSTILE.len() * 4)
        .map(|i| json!({ "address": address + i as u64 * size, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames(i % HOSTILE.len()) }))
        .collect();
    json!({
        "segments": [{ "device": 0, "address": address, "total_size": size * HOSTILE.len() as u64 * 4, "stream": 0, "segment_type": "large", "blocks": blocks }],
        "device_traces": [events],
        "allocator_settings": { "PYTORCH_CUDA_ALLOC_CONF": HOSTILE[0] },
    })
}

#[test]
fn no_name_in_a_file_is_markup_in_a_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("<img src=x onerror=alert(5)>.json");
    std::fs::write(&file, hostile_snapshot().to_string()).expect("written");
    let file = file.display().to_string();
    let page = html(&file);
    assert_eq!(page.matches("<script").count(), 2, "the data and our own");
    assert_eq!(page.matches("</script").count(), 2);
    for part in ["<img", "<svg onload", "<a href=java", "<!--", "\u{202e}", "\u{1b}", "\u{2028}"] {
        assert!(!page.contains(part), "{part:?}");
    }
    assert!(
        page.contains("default-src 'none'; style-src 'sha256-") && !page.contains("unsafe-inline") && !page.contains("style=\"")
    );
    // No attribute contains text from the file. Quoted values in tags are ours.
    let text = text_of(&page);
    assert!(
        text.contains("<img src=x onerror=alert(2)>.py") && text.contains("</script><script>alert(1)</script>"),
        "as text it is there"
    );
    let places = pictures(&page).into_iter().find_map(|p| p["map"]["places"].as_array().cloned()).expect("places");
    assert!(places.iter().any(|p| p.as_str().is_some_and(|p| p.contains("<img src=x onerror=alert(2)>.py"))), "{places:?}");

    let markdown = report(&[&file], "report.md");
    let outside = outside_code(&markdown);
    for part in ["<img", "<b>", "<script", "](http", "**bold**", "http://", "@everyone", "\u{202e}", "\u{1b}"] {
        assert!(!outside.contains(part), "{part:?} in: {outside}");
    }
    assert!(!markdown.lines().any(|line| line.starts_with("# title")), "{markdown}");
    // Only our own bars end a cell: every row of a table has as many as its header.
    let mut head = None;
    for line in markdown.lines() {
        let bars = line.replace("\\|", "").matches('|').count();
        match head {
            _ if !line.starts_with('|') => head = None,
            None => head = Some(bars),
            Some(of) => assert_eq!(bars, of, "{line}"),
        }
    }
}

/// Markdown outside code, by CommonMark's rule: code ends with as many backticks as it began with.
pub fn outside_code(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('`') {
        if rest[..at].ends_with('\\') {
            out += &rest[..=at];
            rest = &rest[at + 1..];
            continue;
        }
        out += &rest[..at];
        let ticks = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        let mut after = &rest[at + ticks..];
        let mut ended = None;
        while let Some(next) = after.find('`') {
            let run = after[next..].len() - after[next..].trim_start_matches('`').len();
            after = &after[next + run..];
            if run == ticks {
                ended = Some(after);
                break;
            }
        }
        match ended {
            Some(after) => rest = after,
            None => {
                out += &rest[at..at + ticks];
                rest = &rest[at + ticks..];
            }
        }
    }
    out + rest
}

#[test]
fn a_report_keeps_its_size_whatever_the_recording_s() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = "deep/".repeat(60);
    let device = |d: u64| -> (Vec<Value>, Vec<Value>) {
        let base = (d + 1) << 40;
        let frame = |i: u64| json!([{ "filename": format!("/{long}file_{d}_{i}_{}.py", "x".repeat(300)), "name": format!("function_{i}"), "line": i }]);
        let events = (0..3_000u64).map(|i| json!({ "action": "alloc", "addr": base + i * 2048, "size": 2000, "stream": 0, "time_us": i, "frames": frame(i % 400) }));
        let segments = (0..3u64).map(|s| {
            let blocks: Vec<Value> = (0..1_000u64).map(|i| json!({ "address": base + (s * 1000 + i) * 2048, "size": 2048, "requested_size": 2000, "state": "active_allocated" })).collect();
            json!({ "device": d, "address": base + s * 1000 * 2048, "total_size": 1000 * 2048, "stream": 0, "segment_type": "small", "blocks": blocks })
        });
        (events.collect(), segments.collect())
    };
    let parts: Vec<_> = (0..12).map(device).collect();
    let snapshot = json!({
        "segments": parts.iter().flat_map(|p| p.1.clone()).collect::<Vec<_>>(),
        "device_traces": parts.iter().map(|p| p.0.clone()).collect::<Vec<_>>(),
    });
    let file = folder.path().join("many.json");
    std::fs::write(&file, snapshot.to_string()).expect("written");
    let file = file.display().to_string();
    let page = html(&file);
    assert!(page.len() < 2_000_000, "{}", page.len());
    assert!(page.contains("Other devices of this recording"), "the four beyond eight are told");
    assert_eq!(pictures(&page).len(), 16);
    let markdown = report(&[&file], "report.md");
    assert!(markdown.chars().count() <= 60_000, "{}", markdown.chars().count());
    assert!(markdown.contains("left out: this text is kept under 60,000 characters"), "what is cut is told");
    let one = report(&[&file, "--device", "11"], "one.html");
    assert!(text_of(&one).contains("3,000 events") && pictures(&one).len() == 2);
}

#[test]
fn a_redacted_report_names_no_folder_file_host_or_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let secrets = ["alice", "acme_secret", "node17.acme.example", "/home", "project_x", "s3cr3t-run"];
    let file = folder.path().join("project_x_oom.pickle.json");
    let mut snapshot = hostile_snapshot();
    let frame = json!([{ "filename": "/home/alice/acme_secret/train.py", "name": "forward", "line": 12 }]);
    for event in snapshot["device_traces"][0].as_array_mut().expect("events") {
        event["frames"] = frame.clone();
    }
    for block in snapshot["segments"][0]["blocks"].as_array_mut().expect("blocks") {
        block["frames"] = frame.clone();
    }
    snapshot["allocator_settings"] = json!({ "PYTORCH_CUDA_ALLOC_CONF": "" });
    std::fs::write(&file, snapshot.to_string()).expect("written");
    let about = json!({
        "vramscope": 1, "why": "oom", "host": "node17.acme.example", "folder": "/home/alice/acme_secret", "command": ["python", "train.py", "--name", "s3cr3t-run"],
        "versions": { "python": "3.12.1", "torch": "2.9.0" }, "environment": { "SLURM_JOB_NAME": "acme_secret", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64" },
    });
    std::fs::write(folder.path().join("project_x_oom.about.json"), about.to_string()).expect("written");
    let file = file.display().to_string();
    for name in ["report.html", "report.md"] {
        let open = report(&[&file], name);
        for told in ["node17.acme.example", "s3cr3t-run", "2.9.0"] {
            assert!(open.contains(told), "{name}: what stands beside the snapshot is told: {told}");
        }
        let hidden = report(&[&file, "--redact"], name);
        for secret in secrets {
            assert!(!hidden.contains(secret), "{name}: {secret}");
        }
        assert!(
            hidden.contains("train.py:12") && hidden.contains("2.9.0") && hidden.contains("max_split_size_mb:64"),
            "{name}: lines and versions stay"
        );
    }
}

#[test]
fn every_kind_of_file_has_a_report_that_says_what_is_not_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path: PathBuf = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let log = write(
        "train.log",
        "step 3\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0.50 GiB free; 7.20 GiB reserved in total by PyTorch)\n",
    );
    let stats = write(
        "memory_stats.json",
        r#"{"allocated_bytes.all.current": 512, "allocated_bytes.all.peak": 2048, "reserved_bytes.all.current": 2097152, "reserved_bytes.all.peak": 2097152, "num_ooms": 0}"#,
    );
    let timeline = write(
        "timeline.json",
        "[[1000, 2000, 3000], [[0, 0, 0, 0, 0, 0, 0, 0, 100], [0, 50, 0, 0, 0, 0, 0, 0, 0], [0, 50, 0, 0, 10, 0, 0, 0, 0]]]",
    );
    let bare = write(
        "bare.json",
        r#"{"segments": [{"device": 0, "address": 1073741824, "total_size": 2097152, "stream": 0, "segment_type": "small", "blocks": [{"address": 1073741824, "size": 2097152, "requested_size": 2000000, "state": "active_allocated"}]}], "device_traces": []}"#,
    );
    let jax = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/jax_train.prof").display().to_string();
    for (file, part) in [
        (&log, "Tried to allocate".to_owned().replace("Tried to allocate", "2.00 GiB")),
        (&stats, "allocated_bytes.all.peak".to_owned()),
        (&timeline, "Lines and blocks are not in this recording".to_owned()),
        (&bare, "Memory over time is not in this recording".to_owned()),
        (&jax, "The segments are not in this recording".to_owned()),
    ] {
        let text = text_of(&html(file));
        assert!(text.contains(&part), "{file}: {part} in {text}");
        let markdown = report(&[file], "report.md");
        assert!(markdown.contains("**") && markdown.len() > 100, "{file}: {markdown}");
    }
}

/// Markdown has the same tables as HTML for a watch and for a memory timeline.
#[test]
fn markdown_tells_who_held_the_card_and_what_a_timeline_sums() {
    let session = sample("live.vramscope");
    let told = report(&[&session], "r.md").replace(['\u{a0}', '\u{200b}'], " ");
    let summary = json(&["summary", &session, "--json"]);
    let processes = summary["devices"][0]["watched"]["processes"].as_array().expect("processes");
    assert!(!processes.is_empty() && told.contains("### Who held the card"), "{told}");
    for process in processes {
        assert!(told.contains(&format!("| {} | ", process["pid"])), "{process}: {told}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let timeline = folder.path().join("timeline.json");
    let text =
        "[[1000, 2000, 3000], [[0, 0, 0, 0, 0, 0, 0, 0, 100], [0, 50, 0, 0, 0, 0, 0, 0, 0], [0, 50, 0, 0, 10, 0, 0, 0, 0]]]";
    std::fs::write(&timeline, text).expect("written");
    let file = timeline.to_str().expect("UTF-8");
    let told = report(&[file], "r.md").replace('\u{a0}', " ");
    let categories = &json(&["summary", file, "--json"])["devices"][0]["bands"]["categories"];
    let held =
        categories.as_array().expect("categories").iter().filter(|c| c["most_bytes"].as_u64() > Some(0)).collect::<Vec<_>>();
    assert!(held.len() > 1, "{categories}");
    for category in held {
        let name = category["category"].as_str().expect("a name").replace('_', " ");
        assert!(told.contains(&format!("| {name} | {} B | ", category["at_peak_bytes"])), "{name}: {told}");
    }
}

/// A change has a single figure in a report, or the finding explains the difference.
#[test]
fn a_finding_and_the_table_of_changes_do_not_contradict_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    for (name, is_other) in [("kinds/half_manual.python.pickle.zst", true), ("gpt2_fp32.start.python.pickle.zst", false)] {
        let file = root.join(name).display().to_string();
        for format in ["r.html", "r.md"] {
            let told = report(&[&file], format);
            let told = if format == "r.md" { told.replace('\u{a0}', " ") } else { text_of(&told) };
            assert_eq!(told.contains("as in the table of changes, it saves"), is_other, "{name}: {told}");
        }
    }
}

#[test]
fn a_report_replaces_nothing_unasked_and_never_its_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("leak.pickle");
    std::fs::copy(sample("leak.pickle"), &source).expect("copied");
    let (file, out) = (source.display().to_string(), folder.path().join("r.html").display().to_string());
    assert_eq!(run(&["report", &file, "-o", &out]).status.code(), Some(0));
    complaint(&["report", &file, "-o", &out], "r.html");
    assert_eq!(run(&["report", &file, "-o", &out, "--force"]).status.code(), Some(0));
    complaint(&["report", &file, "-o", &file, "--force"], "leak.pickle");
    let shown = answer(&["report", &file, "-o", "-", "--format", "md"]);
    assert!(shown.starts_with("**250 MiB") || shown.starts_with("**249"), "{shown}");
    assert!(complaint(&["report", &file, "-o", "-", "--device", "7"], "leak.pickle").contains("there is no device 7"));
    complaint(&["report", "none.pickle", "-o", "-"], "none.pickle");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing else is written");
}

/// A failure has the same size as its finding, and says what the size is of.
#[test]
fn a_failure_has_the_size_of_its_finding() {
    let file = sample("serve_oom.pickle.gz");
    let found = json(&["findings", &file, "--json"]);
    assert_eq!((&found["findings"][0]["rule"], &found["findings"][0]["bytes"]), (&json!("out_of_memory"), &json!(37_859_328)));
    assert!(text_of(&html(&file)).contains("no hole fits36.11 MiB free"), "{}", text_of(&html(&file)));
    let text = report(&[&file], "r.md").replace('\u{a0}', " ");
    assert!(text.contains("no hole fits** (36.11 MiB free, event 32,143)"), "{text}");
}

#[test]
fn a_size_that_is_told_leads_to_what_fits() {
    let file = sample("gpt_train.pickle");
    let plain = text_of(&html(&file));
    assert!(plain.contains("Which size fits is not told"), "{plain}");
    let told = text_of(&report(&[&file, "--at", "batch=8", "--cap", "24GiB"], "r.html"));
    let plan = json(&["plan", &file, "--at", "batch=8", "--want", "batch=8", "--cap", "24GiB", "--change", "all", "--json"]);
    let largest = plan["largest"][0]["size"].as_u64().expect("a size");
    assert!(told.contains(&format!("Batch {largest} probably fits 24 GiB; up to ")), "{largest}: {told}");
    for change in plan["changes"]
        .as_array()
        .expect("changes")
        .iter()
        .filter(|c| c["reason"].is_null() && c["saves_bytes"].as_i64() > Some(0))
    {
        assert!(told.contains(&said(&change["title"])), "{change}");
    }
    // The plan's notes are on the page too.
    let leak = sample("leak.pickle");
    let size = ["--at", "batch=8", "--cap", "1GiB"];
    let plan = json(&[&["plan", &leak, "--want", "batch=8", "--json"], &size[..]].concat());
    let notes = plan["notes"].as_array().expect("notes");
    assert!(notes.iter().any(|note| said(note).contains("grows by")), "{notes:?}");
    for name in ["r.html", "r.md"] {
        let told = report(&[&[leak.as_str()], &size[..]].concat(), name);
        let told = if name == "r.md" { told.replace('\u{a0}', " ") } else { text_of(&told) };
        for note in notes {
            assert!(told.contains(&said(note)), "{name}: {note}");
        }
    }
}

#[test]
fn a_name_that_ends_like_another_format_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let leak = sample("leak.pickle");
    let sentence = refused(&["report", &leak, "-o", &at("x.pdf")], 2);
    assert!(sentence.contains("HTML or Markdown") && !folder.path().join("x.pdf").exists(), "{sentence}");
    for (name, begins) in [("x.HTML", "<!doctype html>"), ("x.md", "**"), ("x", "<!doctype html>")] {
        answer(&["report", &leak, "-o", &at(name)]);
        let text = std::fs::read_to_string(at(name)).expect("written").to_lowercase();
        assert!(text.starts_with(begins), "{name}: {}", &text[..40]);
    }
}
