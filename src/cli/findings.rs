//! `vramscope findings FILE`: what is wrong with a recording, each with its numbers and its remedy.

use std::fmt::Write as _;

use serde_json::json;

use super::args::FindingsArgs;
use vramscope_core::diagnose::findings::{Class, diagnose};
use vramscope_core::diagnose::oom::{AUTOMATIC_TRIALS_MOST_EVENTS, can_be_served_again};
use vramscope_core::diagnose::steady::no_growth;
use vramscope_core::model::Progress;
use vramscope_core::tables::{DeviceTables, StackNames};
use vramscope_core::units::Bytes;

/// The most serious finding of a recording and the first sentence about it; `None` where no rule found a problem.
///
/// # Errors
/// One sentence when the file cannot be opened.
pub fn first_sentence(file: &std::path::Path) -> Result<Option<String>, String> {
    let args = FindingsArgs { file: file.to_owned(), json: true, rules: Default::default() };
    let answer: serde_json::Value = serde_json::from_str(&run(&args)?).map_err(|e| e.to_string())?;
    let first = &answer["findings"][0];
    let sentence = first["sentence"].as_str().unwrap_or_default();
    let sentence = sentence.split_once(". ").map_or(sentence, |(first, _)| first).trim_end_matches('.');
    Ok(first["title"].as_str().map(|title| format!("{title}. {sentence}.")))
}

/// Runs the subcommand.
///
/// # Errors
/// One sentence when the file cannot be opened.
pub fn run(args: &FindingsArgs) -> Result<String, String> {
    let progress = Progress::new();
    let recording = super::open(&args.file)?;
    if !recording.has_blocks() && recording.devices.iter().all(|d| d.samples.is_empty() || !d.bands.is_empty()) {
        return Err(super::without_blocks(&args.file, &recording));
    }
    let rules = args.rules.read()?;
    let names = StackNames::of(&recording.stacks);
    let mut entries = Vec::new();
    let mut out = String::new();
    let (mut steady, mut held, mut is_instant) = (Vec::new(), Vec::new(), true);
    let (mut left_out, mut changed, mut not_tried, mut contradictions) = (0, 0, Vec::new(), Vec::new());
    for device in &recording.devices {
        let tables = DeviceTables::build(device, &progress).map_err(|e| e.to_string())?;
        contradictions.extend(tables.disagreement.clone());
        is_instant &= device.samples.is_empty() && !tables.lifetimes.has_allocations();
        let mut found = diagnose(&recording, device, &tables, &names, &rules, &progress).map_err(|e| e.to_string())?;
        if found.depend_on_settings() && can_be_served_again(device) {
            if device.events.len() > AUTOMATIC_TRIALS_MOST_EVENTS {
                let does = format!("vramscope oom --whatif {} does.", args.file.display());
                not_tried.push(super::oom::not_tried(device, &does));
            } else if let Some(helped) = super::oom::try_others(device, &progress)? {
                found.prescribe(&helped);
            }
        }
        if !found.findings.iter().any(|f| f.class == Class::Leak) {
            steady.extend(no_growth(device, &tables, &found.steps).map(|said| (device.id, said)));
        }
        if found.findings.is_empty() {
            held.extend(super::summary::at_peak(&recording, device, &tables)?.map(|said| (device.id, said)));
        }
        left_out += found.ooms_left_out;
        changed += found.changed_by_rules.count;
        // Writing to a String cannot fail.
        if let Some(sentence) = found.rules_sentence() {
            let _ = writeln!(out, "{}: {sentence}\n", device.id);
        }
        for f in &found.findings {
            let class = f.class.name();
            entries.push(json!({
                "device": device.id.index, "rule": f.rule, "class": class, "title": f.title, "bytes": f.bytes, "sentence": f.sentence,
                "evidence": f.evidence.iter().map(|e| json!({"label": e.label, "value": e.value})).collect::<Vec<_>>(),
                "saves_bytes": f.saving.map(|s| s.bytes()), "peak_after_bytes": f.saving.map(|s| s.after),
                "event": f.place.event, "remedy": f.remedy, "advice": f.advice, "verify": f.verify,
            }));
            let _ = writeln!(out, "{} ({}, {})", f.title, device.id, Bytes(f.bytes));
            let _ = writeln!(out, "  {}", f.sentence);
            if let Some(remedy) = &f.remedy {
                let _ = writeln!(out, "  Try: {remedy}");
            }
            let _ = writeln!(out, "  {}\n  Check: {}\n", f.advice, f.verify);
        }
    }
    if args.json {
        return serde_json::to_string_pretty(&json!({
            "findings": entries, "failures_not_examined": left_out, "changed_by_rules": changed, "whatif_left_out": not_tried,
            "contradictions": contradictions,
        }))
        .map_err(|e| e.to_string());
    }
    for contradiction in &contradictions {
        out.insert_str(0, &format!("Doubtful: {contradiction}.\n\n"));
    }
    if entries.is_empty() && contradictions.is_empty() {
        let limit = if is_instant { " It is of one instant, which shows neither growth nor failures." } else { "" };
        let _ = writeln!(out, "{}: no rule found a problem.{limit}", recording.source.name,);
        steady.splice(0..0, held);
    }
    let is_one = recording.devices.len() == 1;
    for (device, said) in steady {
        let whose = if is_one { String::new() } else { format!("{device}: ") };
        let _ = writeln!(out, "{whose}{said}.");
    }
    for why in &not_tried {
        let _ = writeln!(out, "{why}");
    }
    if left_out > 0 {
        let failures = vramscope_core::units::counted(left_out as u64, "more failure was", "more failures were");
        let _ = writeln!(out, "{failures} not examined: very many, or without what was free on the device.");
    }
    Ok(out)
}
