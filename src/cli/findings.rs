//! `vramscope findings FILE`: what is wrong with a recording, each finding with its figures and a remedy.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::args::FindingsArgs;
use vramscope_core::anatomy::roles::Rules;
use vramscope_core::diagnose::findings::{Class, Finding, diagnose};
use vramscope_core::diagnose::oom::{AUTOMATIC_TRIALS_MOST_EVENTS, can_be_served_again};
use vramscope_core::diagnose::source_limits::records_stacks;
use vramscope_core::diagnose::steady::no_growth;
use vramscope_core::model::{DeviceId, DeviceRecording, Format, Progress, Recording};
use vramscope_core::tables::{DeviceTables, StackNames};
use vramscope_core::units::Bytes;

/// The most serious finding and the first sentence about it. When nothing stands out, says so and what was held.
pub fn first_sentence(file: &std::path::Path) -> Result<String, String> {
    let (_, found) = look(&FindingsArgs { file: file.to_owned(), json: false, rules: Default::default() })?;
    let first = |text: &str| text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.').to_owned();
    Ok(match (found.findings.first(), found.held.first()) {
        (Some((_, finding)), _) => format!("{}. {}.", finding.title, first(&finding.sentence)),
        (None, Some((_, held))) => format!("No rule found a problem. {}.", first(held)),
        (None, None) => "No rule found a problem.".to_owned(),
    })
}

/// Runs the subcommand.
pub fn run(args: &FindingsArgs) -> Result<String, String> {
    let (recording, found) = look(args)?;
    if args.json {
        return serde_json::to_string_pretty(&found.json()).map_err(|e| e.to_string());
    }
    Ok(found.text(&recording))
}

fn look(args: &FindingsArgs) -> Result<(Recording, Found), String> {
    let recording = super::open(&args.file)?;
    if !has_what_rules_need(&recording) {
        return Err(super::without_blocks(&args.file, &recording));
    }
    let rules = args.rules.read()?;
    let does = format!("vramscope oom --whatif {} does.", args.file.display());
    let mut found = Found::new(does);
    let names = StackNames::of(&recording.stacks);
    for device in recording.busiest_first().into_iter().map(|i| &recording.devices[i]) {
        let tables = DeviceTables::build(device, &Progress::new()).map_err(|e| e.to_string())?;
        found.add(&recording, device, &tables, &names, &rules)?;
    }
    Ok((recording, found))
}

/// True when the rules have something to examine: blocks, or samples of the card.
pub(super) fn has_what_rules_need(recording: &Recording) -> bool {
    recording.has_blocks() || recording.devices.iter().any(|d| !d.samples.is_empty() && d.bands.is_empty())
}

/// The findings of all added devices.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Findings with their device, most serious first within a device.
    pub(super) findings: Vec<(DeviceId, Finding)>,
    /// Number of failures that were not examined.
    left_out: usize,
    /// Number of allocations whose role the user's rules changed.
    changed: u64,
    rules_sentences: Vec<(DeviceId, String)>,
    /// Why other settings were not simulated.
    not_tried: Vec<String>,
    contradictions: Vec<String>,
    steady: Vec<(DeviceId, String)>,
    held: Vec<(DeviceId, String)>,
    /// For devices without a finding: that the recording does not show what their memory is for.
    untold: Vec<(DeviceId, String)>,
    is_instant: bool,
    /// What the user can run to simulate other settings, when that takes long.
    does: String,
}

impl Found {
    /// `does` completes the sentence that other settings were not simulated: it says what simulates them.
    pub(super) fn new(does: String) -> Self {
        Found { is_instant: true, does, ..Found::default() }
    }

    /// Runs every rule on a device.
    pub(super) fn add(
        &mut self,
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        names: &StackNames,
        rules: &Rules,
    ) -> Result<(), String> {
        let progress = Progress::new();
        self.contradictions.extend(tables.disagreement.clone());
        self.is_instant &= device.samples.is_empty() && !tables.lifetimes.has_allocations();
        let mut found = diagnose(recording, device, tables, names, rules, &progress).map_err(|e| e.to_string())?;
        if found.depend_on_settings() && can_be_served_again(device) {
            if device.events.len() > AUTOMATIC_TRIALS_MOST_EVENTS {
                self.not_tried.push(super::oom::not_tried(device, &self.does));
            } else if let Some(helped) = super::oom::try_others(device, &progress)? {
                found.prescribe(&helped);
            }
        }
        if !found.findings.iter().any(|f| f.class == Class::Leak) {
            self.steady.extend(no_growth(device, tables, &found.steps).map(|said| (device.id, said)));
        }
        if found.findings.is_empty() {
            self.untold.extend(found.untold_sentence().map(|said| (device.id, said)));
            let held = super::summary::at_peak(recording, device, tables)?;
            let said = held.map(|said| match found.model_sentence() {
                Some(model) => format!("{said}. {}", model.trim_end_matches('.')),
                None => said,
            });
            self.held.extend(said.map(|said| (device.id, said)));
        }
        self.left_out += found.ooms_left_out;
        self.changed += found.changed_by_rules.count;
        self.rules_sentences.extend(found.rules_sentence().map(|said| (device.id, said)));
        self.findings.extend(found.findings.into_iter().map(|f| (device.id, f)));
        Ok(())
    }

    pub(super) fn json(&self) -> Value {
        let entry = |(device, f): &(DeviceId, Finding)| {
            json!({
                "device": device.index, "rule": f.rule, "class": f.class.name(), "title": f.title, "bytes": f.bytes, "sentence": f.sentence,
                "evidence": f.evidence.iter().map(|e| json!({"label": e.label, "value": e.value})).collect::<Vec<_>>(),
                "saves_bytes": f.saving.map(|s| s.bytes()), "peak_after_bytes": f.saving.map(|s| s.after),
                "event": f.place.event, "remedy": f.remedy, "advice": f.advice, "verify": f.verify,
            })
        };
        json!({
            "findings": self.findings.iter().map(entry).collect::<Vec<_>>(), "failures_not_examined": self.left_out,
            "changed_by_rules": self.changed, "whatif_left_out": self.not_tried, "contradictions": self.contradictions,
            "no_growth": self.steady.iter().map(|(device, said)| json!({"device": device.index, "sentence": format!("{said}.")})).collect::<Vec<_>>(),
        })
    }

    /// Sentences that no finding contains: that nothing stands out, and what was left out.
    pub(super) fn notes(&self, recording: &Recording) -> Vec<String> {
        let mut notes = Vec::new();
        let is_quiet = self.findings.is_empty() && self.contradictions.is_empty();
        if is_quiet {
            let (what, limit) = match () {
                () if self.is_instant => {
                    ("nothing stands out", " It is of one instant, which shows neither growth nor failures.")
                }
                () if !self.untold.is_empty() => ("too little was recorded to judge", ""),
                () => ("nothing stands out", ""),
            };
            notes.push(format!("{}: {what}.{limit}", recording.source.name));
        }
        let is_one = recording.devices.len() == 1;
        let whose = |device: &DeviceId| if is_one { String::new() } else { format!("{device}: ") };
        for (device, said) in self.untold.iter().filter(|_| is_quiet && !self.is_instant) {
            notes.push(format!("{}{said}", whose(device)));
        }
        let is_snapshot = matches!(recording.source.format, Format::SnapshotPickle | Format::SnapshotJson | Format::SnapshotHtml);
        let has_events = recording.devices.iter().any(|d| !d.events.is_empty());
        if is_quiet && has_events && recording.stacks.is_empty() && is_snapshot {
            notes.push(format!(
                "It has no call stacks, and most mistakes show only in them. Record them: {}",
                records_stacks(recording)
            ));
        }
        for (device, said) in self.held.iter().filter(|_| is_quiet).chain(&self.steady) {
            let whose = whose(device);
            notes.push(format!("{whose}{said}."));
        }
        notes.extend(Some(super::amd_note(recording)).filter(|note| !note.is_empty()));
        notes.extend(self.not_tried.iter().cloned());
        if self.left_out > 0 {
            let failures = vramscope_core::units::counted(self.left_out as u64, "more failure was", "more failures were");
            notes.push(format!("{failures} not examined: very many, or without what was free on the device."));
        }
        notes
    }

    fn text(&self, recording: &Recording) -> String {
        let mut out = String::new();
        for contradiction in self.contradictions.iter().rev() {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(out, "Doubtful: {contradiction}.\n");
        }
        for device in recording.busiest_first().into_iter().map(|i| recording.devices[i].id) {
            for (_, sentence) in self.rules_sentences.iter().filter(|(of, _)| *of == device) {
                let _ = writeln!(out, "{device}: {sentence}\n");
            }
            let mut tried: Vec<&str> = Vec::new();
            for (_, f) in self.findings.iter().filter(|(of, _)| *of == device) {
                let _ = writeln!(out, "{} ({device}, {})", f.title, Bytes(f.bytes));
                let _ = writeln!(out, "  {}", f.sentence);
                // Several failures often have the same remedy.
                if let Some(remedy) = f.remedy.as_deref().filter(|_| f.class == Class::OutOfMemory) {
                    if tried.contains(&remedy) {
                        let _ = writeln!(out, "  Try the same as above: {remedy}\n");
                        continue;
                    }
                    tried.push(remedy);
                }
                if let Some(remedy) = &f.remedy {
                    let _ = writeln!(out, "  Try: {remedy}");
                }
                let _ = writeln!(out, "  {}\n  Check: {}\n", f.advice, f.verify);
            }
        }
        for note in self.notes(recording) {
            let _ = writeln!(out, "{note}");
        }
        out
    }
}
