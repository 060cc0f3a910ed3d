//! PyTorch's own counters beside the recording: the figures of `memory_stats()` and the like, and whether the snapshot agrees
//! with them.

use std::sync::Arc;

use egui::{Color32, Ui};

use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::{Column, Table, Width, label, padded, pane, section};
use vramscope_core::diagnose::counted::{GROUPS, HOST_GROUPS, SCALARS};
use vramscope_core::diagnose::stats_check::{StatCheck, StatsVerdict, judge_stats};
use vramscope_core::model::{MemoryStats, StatsKind};
use vramscope_core::units::{Bytes, Micros, count};

/// The counters of a recording, compared with it once.
#[derive(Default)]
pub(super) struct Counters {
    verdicts: Derived<Identity, Vec<StatsVerdict>>,
}

/// A column of figures.
const COLUMN: f32 = 84.0;

impl Counters {
    /// Draws the counters, or a hint when none were added.
    pub(super) fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let recording = &cx.data.recording;
        if recording.stats.is_empty() {
            if cx.data.device().has_final_state {
                section(ui, "PyTorch's counters", "not added", false);
                let hint = "What torch.cuda.memory_stats() gave at the snapshot, saved as JSON, can be added (File, Add a trace to this \
                    recording) and is compared with it.";
                pane::note(ui, &cx.words().say(hint), Type::Body, cx.tokens.text3);
            }
            return;
        }
        let shared = Arc::clone(recording);
        let key = Identity::of(recording);
        let job = move |_: &_| Some(shared.stats.iter().map(|(name, stats)| judge_stats(&shared, name, stats)).collect());
        let Some(verdicts) = self.verdicts.get(cx.jobs, "counters", &key, job).value else { return };
        for ((name, stats), verdict) in recording.stats.iter().zip(verdicts.iter()) {
            section(ui, &format!("PyTorch's counters: {}", stats.kind.name()), name, false);
            padded(ui, |ui| {
                let ink = if verdict.failed > 0 { cx.tokens.amber } else { cx.tokens.text1 };
                let mut sentence = verdict.sentence.clone();
                if let Some(first) = sentence.get_mut(..1) {
                    first.make_ascii_uppercase();
                }
                label::paragraph(ui, &format!("{sentence}."), Type::Body, ink);
            });
            ui.add_space(6.0);
            table(ui, cx, name, stats, Some(&verdict.checks));
        }
    }
}

/// Draws counters when there is no snapshot to compare with.
pub(super) fn alone(ui: &mut Ui, cx: &ViewContext<'_>, name: &str, stats: &MemoryStats) {
    section(ui, &format!("PyTorch's counters: {}", stats.kind.name()), name, false);
    if stats.values.values().any(|c| c.slack > 0) {
        padded(ui, |ui| {
            let note = "memory_summary rounds its figures down to the unit that it prints; memory_stats has them in full.";
            label::paragraph(ui, note, Type::Body, cx.tokens.text3);
        });
        ui.add_space(6.0);
    }
    table(ui, cx, name, stats, None);
}

/// A row of the table: a counter with its columns, or what differs from the snapshot.
#[derive(Default)]
struct Line {
    name: String,
    figures: Vec<(String, Color32)>,
    /// Lines of the tooltip.
    notes: Vec<String>,
    differs: bool,
}

fn text_of(key: &str, value: u64) -> String {
    if key.contains("_time.") {
        return Micros(i64::try_from(value).unwrap_or(i64::MAX)).to_string();
    }
    if key.contains("bytes") { Bytes(value).to_string() } else { count(value) }
}

/// The figures by group and pool. `checks` come from the snapshot, if there is one.
fn table(ui: &mut Ui, cx: &ViewContext<'_>, name: &str, stats: &MemoryStats, checks: Option<&[StatCheck]>) {
    let t = cx.tokens;
    let is_host = stats.kind == StatsKind::Host;
    let columns: &[(&str, &str)] = if is_host {
        &[("current", "current"), ("peak", "peak")]
    } else {
        &[
            ("current", "all.current"),
            ("large pool", "large_pool.current"),
            ("small pool", "small_pool.current"),
            ("peak", "all.peak"),
        ]
    };
    let mut lines = Vec::new();
    // A row for each counter, and below it the snapshot's value where it differs.
    let mut add = |name: &str, keys: Vec<String>, is_checked: bool| {
        let mut line = Line { name: name.to_owned(), ..Line::default() };
        let mut differ = Vec::new();
        for key in keys {
            let counted = stats.get(&key);
            let check = checks.filter(|_| is_checked).unwrap_or_default().iter().find(|c| c.key == key);
            let value = counted.map_or_else(|| "not counted".to_owned(), |c| text_of(&key, c.value));
            let found = check.map(|c| (c.agrees, text_of(&key, c.found)));
            let ink = match (counted, &found) {
                (None, _) => t.text3,
                (_, Some((false, _))) => t.amber,
                (_, None) if checks.is_some() => t.text2,
                _ => t.text1,
            };
            let rounded = if counted.is_some_and(|c| c.slack > 0) { ", rounded down to its unit" } else { "" };
            line.notes.push(match &found {
                Some((true, found)) => format!("{key}: {value}{rounded}; the snapshot gives {found}, which agrees"),
                Some((false, found)) => format!("{key}: {value}{rounded}; the snapshot gives {found}"),
                None if checks.is_some() => format!("{key}: {value}{rounded}; a snapshot cannot tell"),
                None => format!("{key}: {value}{rounded}"),
            });
            if let (Some(_), Some((false, found))) = (counted, found) {
                let name = format!("{key}: PyTorch {value}, the snapshot {found}");
                differ.push(Line { name, differs: true, ..Line::default() });
            }
            line.figures.push((value, ink));
        }
        lines.push(line);
        lines.append(&mut differ);
    };
    let groups: &[(&str, &str)] = if is_host { &HOST_GROUPS } else { &GROUPS };
    for (group, name) in groups {
        let keys: Vec<String> = columns.iter().map(|(_, suffix)| format!("{group}.{suffix}")).collect();
        if keys.iter().any(|key| stats.get(key).is_some()) {
            add(name, keys, true);
        }
    }
    for pool in stats.private_pools() {
        let keys = columns.iter().map(|(_, suffix)| format!("reserved_bytes_by_private_pools.{pool}.{suffix}")).collect();
        add(&format!("reserved by private pool ({})", pool.replace('_', ", ")), keys, false);
    }
    for (key, name) in SCALARS {
        if stats.get(key).is_some() {
            add(name, vec![key.to_owned()], false);
        }
    }
    let names = Column::text("", Width::Share(1.0, 120.0), |c, line: &&Line| match line.differs {
        true => {
            _ = label::text_in(c.p, c.from(c.rect.left() + 12.0).rect.with_max_x(f32::MAX), &line.name, Type::Caption, t.amber)
        }
        false => _ = c.text(&line.name, Type::Body, t.text2),
    });
    // In a narrow pane columns are hidden, pools first.
    let figures = columns.iter().enumerate().map(|(i, (title, _))| {
        let column = Column::figure(*title, COLUMN, move |c, line: &&Line| {
            if let Some((text, ink)) = line.figures.get(i) {
                c.figure(text, *ink);
            }
        });
        match *title {
            "current" => column,
            "peak" => column.goes(2),
            _ => column.goes(1),
        }
    });
    let table = Table::plain(name, std::iter::once(names).chain(figures).collect()).captions().row_height(20.0).whole();
    let spoken = |_, line: &Line| {
        let values: Vec<&str> = line.figures.iter().map(|f| f.0.as_str()).collect();
        if values.is_empty() { line.name.clone() } else { format!("{}: {}", line.name, values.join(", ")) }
    };
    let out = table.show(ui, lines.len(), |i| lines.get(i), |i, line| spoken(i, line));
    for (i, response) in out.seen {
        if !lines[i].notes.is_empty() {
            response.on_hover_text(lines[i].notes.join("\n"));
        }
    }
    ui.add_space(6.0);
}
