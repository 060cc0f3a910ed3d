//! Every out-of-memory message of the corpus is parsed, and its figures agree with what the allocator's observer reported.

use crate::shared::corpus;
use vramscope_core::diagnose::explain::{Verdict, explain};
use vramscope_core::formats::oom_message::{find_all, parse};

#[test]
fn what_if_messages_agree_with_the_observer() {
    let Some(dir) = corpus() else { return };
    let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("whatif_truth.json")).unwrap()).unwrap();
    let mut seen = 0;
    for row in rows.as_array().unwrap() {
        let Some(text) = row["oom_message"].as_str() else { continue };
        let m = parse(text).unwrap();
        seen += 1;
        let truth = &row["oom_request"];
        let within = |figure: Option<vramscope_core::formats::oom_message::Figure>, value: &serde_json::Value| {
            let (figure, value) = (figure.unwrap(), value.as_u64().unwrap());
            assert!(figure.low() <= value && value <= figure.high(), "{figure:?} is not {value} in {text}");
        };
        within(m.figures.requested, &truth["alloc"]);
        within(m.figures.limit, &truth["device_alloc"]);
        within(m.figures.free, &truth["device_free"]);
        within(m.figures.capacity, &row["total_bytes"]);
        let e = explain(&m);
        // All ran below a limit far from the card's size, so the cause is fragmentation or the limit.
        assert!(matches!(e.verdict, Verdict::Fragmentation | Verdict::Cap), "{}", e.sentence);
    }
    assert!(seen >= 70, "{seen}");
}

#[test]
fn messages_of_other_releases_decode() {
    let Some(dir) = corpus() else { return };
    let text = std::fs::read_to_string(dir.join("versions/oom_messages.txt")).unwrap();
    // One at a time, because two equal messages side by side count as one failure printed twice. The last one has lost its
    // beginning and starts with the figures.
    let text = text.replace("Currently allocated", "### Currently allocated");
    for record in text.split("### ").filter(|r| r.contains("out of memory") || r.contains("Currently allocated")) {
        let [m] = find_all(record).try_into().unwrap_or_else(|all| panic!("{all:?}: {record}"));
        assert!(m.figures.requested.is_some() || m.is_absurd_request, "{record}");
        println!("{} {}", m.dialect.name(), explain(&m).sentence);
    }
}

/// Published failures that people read carefully: which program wrote each, on which device, and what ran out. `explain_open.tsv`
/// has a short line for each, built from its figures. When that is empty, the line is in the corpus.
#[test]
fn published_failures_are_read_as_people_read_them() {
    let lines = corpus().and_then(|dir| std::fs::read_to_string(dir.join("explain_open.jsonl")).ok()).unwrap_or_default();
    let of_corpus: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for row in include_str!("explain_open.tsv").lines() {
        let [id, dialect, platform, cause, line] = row.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let key_line = || of_corpus.iter().find(|row| row["id"] == id).and_then(|row| row["key_line"].as_str());
        let Some(text) = Some(line).filter(|line| !line.is_empty()).or_else(key_line) else { continue };
        seen += 1;
        let Some(told) = parse(&text.replace("\\n", "\n")).map(|m| explain(&m)) else {
            wrong.push(format!("{id}: not recognised"));
            continue;
        };
        if !told.dialect.starts_with(dialect) || (told.platform, told.cause) != (platform, cause) {
            wrong.push(format!(
                "{id}: {} {} {}, not {dialect} {platform} {cause}: {}",
                told.dialect, told.platform, told.cause, told.sentence
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 70 && (of_corpus.is_empty() || seen == of_corpus.len()), "{seen} of {}", of_corpus.len());
}
