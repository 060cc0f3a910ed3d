//! PyTorch's own counters beside the recording: the figures of `memory_stats()` and its relatives, and whether the snapshot
//! tells the same story.

use std::sync::Arc;

use egui::{Align2, Rect, Role, Sense, Ui, WidgetInfo, vec2};

use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::theme::Type;
use crate::app::theme::visuals::PAD_PANE;
use crate::app::views::ViewContext;
use crate::app::widgets::cut::Cut;
use crate::app::widgets::pane::{padded, section};
use crate::app::widgets::{label, row};
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
const COLUMN: f32 = 96.0;

impl Counters {
    /// Draws them; a hint when none were added.
    pub(super) fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let recording = &cx.data.recording;
        if recording.stats.is_empty() {
            if cx.data.device().has_final_state {
                section(ui, "PyTorch's counters", "not added", false);
                let hint = "What torch.cuda.memory_stats() gave at the snapshot, saved as JSON, can be added (File, Add a trace to this \
                    recording) and is compared with it.";
                padded(ui, |ui| label::paragraph(ui, &cx.words().say(hint), Type::Body, cx.tokens.text3));
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
            table(ui, cx, stats, Some(&verdict.checks));
        }
    }
}

/// Counters without a snapshot to hold them against.
pub(super) fn alone(ui: &mut Ui, cx: &ViewContext<'_>, name: &str, stats: &MemoryStats) {
    section(ui, &format!("PyTorch's counters: {}", stats.kind.name()), name, false);
    if stats.values.values().any(|c| c.slack > 0) {
        padded(ui, |ui| {
            let note = "memory_summary rounds its figures down to the unit that it prints; memory_stats has them in full.";
            label::paragraph(ui, note, Type::Body, cx.tokens.text3);
        });
        ui.add_space(6.0);
    }
    table(ui, cx, stats, None);
}

/// A figure of the table: what PyTorch counted, and the snapshot's where it can tell.
struct Figure<'a> {
    counted: Option<u64>,
    is_rounded: bool,
    check: Option<&'a StatCheck>,
}

fn text_of(key: &str, value: u64) -> String {
    if key.contains("_time.") {
        return Micros(i64::try_from(value).unwrap_or(i64::MAX)).to_string();
    }
    if key.contains("bytes") { Bytes(value).to_string() } else { count(value) }
}

/// The figures by group and pool; `checks` are the snapshot's, where there is one.
fn table(ui: &mut Ui, cx: &ViewContext<'_>, stats: &MemoryStats, checks: Option<&[StatCheck]>) {
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
    // What has no room goes, the pools first.
    let room = ((ui.available_width() - 2.0 * PAD_PANE - 120.0) / COLUMN).max(1.0) as usize;
    let columns: Vec<&(&str, &str)> = match room {
        1 => columns.iter().take(1).collect(),
        2 | 3 => columns.iter().filter(|c| !c.0.ends_with("pool")).collect(),
        _ => columns.iter().collect(),
    };
    header(ui, cx, &columns);
    let groups: &[(&str, &str)] = if is_host { &HOST_GROUPS } else { &GROUPS };
    for (group, name) in groups {
        let figures: Vec<(String, Figure<'_>)> = columns
            .iter()
            .map(|(_, suffix)| {
                let key = format!("{group}.{suffix}");
                let counter = stats.get(&key);
                let check = checks.unwrap_or_default().iter().find(|c| c.key == key);
                let figure =
                    Figure { counted: counter.map(|c| c.value), is_rounded: counter.is_some_and(|c| c.slack > 0), check };
                (key, figure)
            })
            .collect();
        if figures.iter().any(|(_, f)| f.counted.is_some()) {
            row(ui, cx, name, columns.len(), &figures, checks.is_some());
        }
    }
    for pool in stats.private_pools() {
        let group = format!("reserved_bytes_by_private_pools.{pool}");
        let figures: Vec<(String, Figure<'_>)> = columns
            .iter()
            .map(|(_, suffix)| {
                let key = format!("{group}.{suffix}");
                (key.clone(), Figure { counted: stats.get(&key).map(|c| c.value), is_rounded: false, check: None })
            })
            .collect();
        let name = format!("reserved by private pool ({})", pool.replace('_', ", "));
        row(ui, cx, &name, columns.len(), &figures, checks.is_some());
    }
    for (key, name) in SCALARS {
        if let Some(counter) = stats.get(key) {
            let figure = Figure { counted: Some(counter.value), is_rounded: false, check: None };
            row(ui, cx, name, columns.len(), &[(key.to_owned(), figure)], checks.is_some());
        }
    }
    ui.add_space(6.0);
}

fn header(ui: &mut Ui, cx: &ViewContext<'_>, columns: &[&(&str, &str)]) {
    let rect = row::line(ui, 20.0);
    for (i, (name, _)) in columns.iter().enumerate() {
        let at = rect.middle(right_edge(rect, columns.len(), i));
        label::text(ui.painter(), at, Align2::RIGHT_CENTER, name, Type::Caption, cx.tokens.text3);
    }
}

fn right_edge(rect: Rect, columns: usize, i: usize) -> f32 {
    rect.right() - PAD_PANE - COLUMN * (columns - 1 - i) as f32
}

fn row(ui: &mut Ui, cx: &ViewContext<'_>, name: &str, columns: usize, figures: &[(String, Figure<'_>)], has_snapshot: bool) {
    let t = cx.tokens;
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 20.0), Sense::hover());
    let values: Vec<String> =
        figures.iter().map(|(key, f)| f.counted.map_or_else(|| "not counted".to_owned(), |v| text_of(key, v))).collect();
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("{name}: {}", values.join(", "))));
    let left = rect.left() + PAD_PANE;
    let first = right_edge(rect, columns, 0) - COLUMN + 8.0;
    let area = rect.across(left, first.max(left + 40.0));
    label::text_in(ui.painter(), area, name, Type::Body, t.text2);
    let mut notes = Vec::new();
    for (i, ((key, figure), value)) in figures.iter().zip(&values).enumerate() {
        let differs = figure.check.is_some_and(|c| !c.agrees);
        let ink = match (figure.counted, differs, figure.check) {
            (None, ..) => t.text3,
            (_, true, _) => t.amber,
            (_, _, Some(_)) => t.text1,
            _ if !has_snapshot => t.text1,
            _ => t.text2,
        };
        let at = rect.middle(right_edge(rect, columns, i));
        label::text(ui.painter(), at, Align2::RIGHT_CENTER, value, Type::Mono, ink);
        let rounded = if figure.is_rounded { ", rounded down to its unit" } else { "" };
        notes.push(match figure.check {
            Some(c) if c.agrees => format!("{key}: {value}{rounded}; the snapshot gives {}, which agrees", text_of(key, c.found)),
            Some(c) => format!("{key}: {value}{rounded}; the snapshot gives {}", text_of(key, c.found)),
            None if has_snapshot => format!("{key}: {value}{rounded}; a snapshot cannot tell"),
            None => format!("{key}: {value}{rounded}"),
        });
    }
    response.on_hover_text(notes.join("\n"));
    for (key, figure) in figures.iter().filter(|(_, f)| f.check.is_some_and(|c| !c.agrees)) {
        let (Some(check), Some(counted)) = (figure.check, figure.counted) else { continue };
        let rect = row::line(ui, 18.0);
        let text = format!("{key}: PyTorch {}, the snapshot {}", text_of(key, counted), text_of(key, check.found));
        let area = rect.across(left + 12.0, rect.right() - PAD_PANE);
        label::text_in(ui.painter(), area, &text, Type::Caption, t.amber);
    }
}
