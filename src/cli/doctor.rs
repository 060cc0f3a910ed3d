//! `vramscope doctor`: what a recording lacks and the line of code that records it. Without a file it checks this machine.

use std::io::Write;

use serde_json::json;

use super::args::DoctorArgs;
use vramscope_core::diagnose::doctor::{Lack, lacks};
use vramscope_core::model::Progress;

/// Runs the subcommand.
pub fn run(args: &DoctorArgs, out: &mut dyn Write) -> Result<(), String> {
    if args.files.is_empty() {
        return super::machine::run(&args.python, args.json, out);
    }
    let mut found = Vec::new();
    for file in &args.files {
        let recording = super::open_any(file)?;
        let lacks = lacks(&recording, &Progress::new()).map_err(|e| e.to_string())?;
        found.push((file.display().to_string(), lacks, super::amd_note(&recording)));
    }
    if args.json {
        let files: Vec<_> = found.iter().map(|(file, lacks, _)| json!({"file": file, "lacks": entries(lacks)})).collect();
        return super::print_json(out, &json!({ "files": files }));
    }
    let texts: Vec<String> = found.iter().map(|(file, lacks, note)| text(file, lacks, note)).collect();
    super::print(out, &texts.join("\n"))
}

fn entries(lacks: &[Lack]) -> Vec<serde_json::Value> {
    let entry = |l: &Lack| {
        let devices: Vec<i32> = l.devices.iter().map(|d| d.index).collect();
        json!({"what": l.what, "sentence": l.sentence, "line": l.line, "devices": devices})
    };
    lacks.iter().map(entry).collect()
}

fn text(file: &str, lacks: &[Lack], note: &str) -> String {
    if lacks.is_empty() {
        return format!("{file}: nothing is missing that vramscope could use.\n");
    }
    let mut text = format!("{file} lacks:\n");
    for lack in lacks {
        let whose: Vec<String> = lack.devices.iter().map(ToString::to_string).collect();
        let whose = if whose.is_empty() { String::new() } else { format!(" ({})", whose.join(", ")) };
        text += &format!("\n  {}{whose}\n    {}\n", lack.what, lack.sentence);
        if let Some(line) = lack.line {
            text += &format!("      {line}\n");
        }
    }
    if !note.is_empty() {
        text += &format!("\n{note}\n");
    }
    text
}
