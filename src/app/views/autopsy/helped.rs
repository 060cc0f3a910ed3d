//! What would have helped: the recorded requests, simulated under other settings. Settings that work come first.

use egui::{Rect, ScrollArea, Sense, Ui, vec2};

use crate::app::state::Action;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::views::whatif::table::conf_name;
use crate::app::widgets::{Bar, Cut, Icon, ListRow, PaneHeader, Push, Term, icon_button, label, pane, row, term};
use vramscope_core::diagnose::oom::{Helped, NOT_REPRODUCED};
use vramscope_core::inference::Remedy;
use vramscope_core::units::{Bytes, NBSP, SizeColumn, count, counted};

const ROW: f32 = 24.0;

/// What the pane can show so far.
pub(super) enum Ready<'a> {
    /// The simulation runs, with its progress if known.
    Running(Option<f32>),
    /// The recording is so long that the user is asked first.
    Waiting,
    /// Simulation does not apply to this device.
    DoesNotApply(&'static str),
    Done(&'a Helped),
}

/// Draws the pane. `chosen` is the setting that the user clicked. True when the user asks to simulate a long recording.
pub(super) fn ui(ui: &mut Ui, cx: &ViewContext<'_>, ready: &Ready<'_>, failed: bool, chosen: &mut Option<String>) -> bool {
    let caption = match ready {
        Ready::Done(h) if failed => counted(h.requests, "request", "requests"),
        Ready::Done(h) => {
            h.remedies.limit_bytes.map_or("without a cap".to_owned(), |cap| format!("under a cap of {}", Bytes(cap)))
        }
        _ => String::new(),
    };
    let best = match ready {
        Ready::Done(h) if failed && !h.fails_as_recorded() => None,
        Ready::Done(h) => chosen.clone().or_else(|| h.remedies.passing().next().map(|r| r.conf.clone())),
        _ => None,
    };
    let title = if failed { "What would have helped" } else { "Under other settings" };
    PaneHeader::new(title).caption(&caption).show(ui, |ui| {
        if Push::plain("Open in What-if").small().enabled(best.is_some()).show(ui).clicked()
            && let Some(conf) = best
        {
            cx.actions.send(Action::TrySettings(conf));
        }
    });
    match ready {
        Ready::Running(fraction) => {
            let rect = ui.available_rect_before_wrap();
            pane::progress_line(ui, rect, *fraction);
            ui.add_space(12.0);
            pane::note(ui, "Replaying the recorded requests under other settings…", Type::Body, cx.tokens.text3);
        }
        Ready::Waiting => {
            ui.add_space(12.0);
            return pane::padded(ui, |ui| {
                let events = cx.data.device().events.len() as u64;
                let text = format!("Replaying {} events under a dozen settings takes minutes.", count(events));
                label::paragraph(ui, &text, Type::Body, cx.tokens.text2);
                ui.add_space(8.0);
                Push::outlined("Try other settings").show(ui).clicked()
            });
        }
        Ready::DoesNotApply(why) => pane::empty_state(ui, why, None),
        Ready::Done(h) if failed && !h.fails_as_recorded() => pane::empty_state(ui, NOT_REPRODUCED, None),
        Ready::Done(h) => table(ui, cx, h, failed, chosen),
    }
    false
}

struct Columns {
    name: (f32, f32),
    bar: (f32, f32),
    peak: (f32, f32),
    outcome: (f32, f32),
}

impl Columns {
    /// `outcome` is the width of the longest outcome.
    fn of(width: f32, outcome: f32) -> Self {
        let right = width - 36.0;
        // At least half of the width stays for names.
        let outcome = (right - outcome.clamp(80.0, (width * 0.4).max(104.0)), right);
        let peak = (outcome.0 - 60.0, outcome.0 - 8.0);
        // In a narrow pane names matter more than bars.
        let bar_width = if width < 600.0 { 0.0 } else { (width * 0.2).clamp(36.0, 110.0) };
        let bar = (peak.0 - bar_width, if bar_width > 0.0 { peak.0 - 8.0 } else { peak.0 });
        Columns { name: (16.0, bar.0 - 10.0), bar, peak, outcome }
    }
}

fn cell(row: Rect, range: (f32, f32)) -> Rect {
    row.cell(range.0, range.1)
}

/// The table of settings: its columns, and the scale of its bars.
struct Settings<'a> {
    cx: &'a ViewContext<'a>,
    h: &'a Helped,
    failed: bool,
    columns: Columns,
    size: SizeColumn,
    greatest: f64,
}

fn table(ui: &mut Ui, cx: &ViewContext<'_>, h: &Helped, failed: bool, chosen: &mut Option<String>) {
    let outcomes = h.remedies.tried.iter().map(|r| outcome(h, r, failed)).chain([own_outcome(h, failed)]);
    let longest = outcomes.map(|text| label::width(ui.painter(), &text, Type::Strong)).fold(0.0, f32::max);
    let columns = Columns::of(ui.available_width(), longest.ceil() + 4.0);
    let peaks = h.remedies.tried.iter().map(|r| peak(h, r)).chain([h.own.peak_reserved_bytes]);
    let limit = h.remedies.limit_bytes.filter(|_| failed);
    let greatest = peaks.clone().chain(limit).max().unwrap_or(1).max(1) as f64 * 1.04;
    let settings = Settings { cx, h, failed, columns, size: SizeColumn::of(peaks), greatest };
    settings.head(ui);
    ScrollArea::vertical().id_salt("helped").auto_shrink(false).show(ui, |ui| {
        settings.rows(ui, chosen);
        needed(ui, cx, h);
        ui.add_space(12.0);
    });
}

impl Settings<'_> {
    fn has_bars(&self) -> bool {
        self.columns.bar.1 > self.columns.bar.0
    }

    /// The limit that the bars are compared with.
    fn limit(&self) -> Option<u64> {
        self.h.remedies.limit_bytes.filter(|_| self.failed)
    }

    fn head(&self, ui: &mut Ui) {
        let (t, h, columns) = (self.cx.tokens, self.h, &self.columns);
        let head = row::line(ui, ROW);
        let p = ui.painter();
        let mut words = vec![(label::text_in(p, cell(head, columns.name), "setting", Type::Caption, t.text3), Term::Served)];
        if self.has_bars() {
            let caption = label::text_in(p, cell(head, columns.bar), "peak reserved", Type::Caption, t.text3);
            words.push((caption, Term::Reserved));
            if let Some(limit) = self.limit() {
                let room = head.across(caption.right() + 6.0, head.left() + columns.peak.1 - 30.0);
                // Without a known cap, the device itself was full. The limit is then what it had for this process.
                let bound = if h.is_of_device() { "device" } else { "cap" };
                let text = match h.limit.filter(|range| !range.is_known()) {
                    Some(range) => format!("{bound} {range}"),
                    None => format!("{bound} {}", Bytes(limit)),
                };
                // A number must not be cut.
                let text = if label::width(p, &text, Type::Caption) < room.width() { text.as_str() } else { bound };
                words.push((label::text_in(p, room, text, Type::Caption, t.red), Term::Cap));
            }
        }
        let unit = if self.has_bars() { self.size.unit().to_owned() } else { self.size.head("peak") };
        label::text_in_right(p, cell(head, columns.peak), &unit, Type::Caption, t.text3);
        words.push((label::text_in_right(p, cell(head, columns.outcome), "outcome", Type::Caption, t.text3), Term::Served));
        p.hline(head.x_range(), head.bottom() - 0.5, egui::Stroke::new(1.0, t.line));
        for (rect, term) in words {
            term::explain_at(ui, rect, term);
        }
    }

    /// The recording's own settings, then the others, grouped by whether the failed request succeeds; without a failure, by their
    /// peak.
    fn rows(&self, ui: &mut Ui, chosen: &mut Option<String>) {
        let (h, failed) = (self.h, self.failed);
        let tone = if h.own.oom || failed { RowTone::Fails } else { RowTone::Plain };
        self.row(ui, "as recorded", h.own.peak_reserved_bytes, &own_outcome(h, failed), tone);
        if !failed {
            let mut order: Vec<&Remedy> = h.remedies.tried.iter().collect();
            order.sort_by_key(|r| r.peak_reserved_bytes);
            group(ui, self.cx, "instead", order.len());
            for r in order {
                let is_less = r.peak_reserved_bytes < h.own.peak_reserved_bytes;
                self.remedy(ui, r, if is_less { RowTone::Passes } else { RowTone::Plain }, chosen);
            }
            return;
        }
        let helps = match h.remedies.ends_at_failure {
            Some(end) if end.is_growing => "serves all recorded requests; memory was still growing",
            Some(_) => "serves all recorded requests",
            None => "helps",
        };
        // Each row says from which cap on it works.
        let doubtful = h.remedies.tried.iter().find(|r| !r.oom && !r.certain);
        let doubt = match (doubtful, h.limit.filter(|limit| !limit.is_known())) {
            (Some(r), Some(limit)) if h.passes_from(r).is_some() => {
                format!("the cap is {limit}; peaks under the least cap")
            }
            (Some(r), _) => h.doubt(r),
            (None, _) => String::new(),
        };
        let varies = "may fail: it depends on where the driver puts segments";
        // Only the run that failed is red. More red would hide what helps.
        let groups: [(&str, RowTone, fn(&Remedy) -> bool); 4] = [
            (helps, RowTone::Passes, |r| !r.oom && r.certain),
            (&format!("may help: {doubt}"), RowTone::Passes, |r| !r.oom && !r.certain),
            (varies, RowTone::Plain, |r| r.oom && r.oom_varies),
            ("does not help", RowTone::Plain, |r| r.oom && !r.oom_varies),
        ];
        for (title, tone, is_in) in groups {
            let rows: Vec<&Remedy> = h.remedies.tried.iter().filter(|r| is_in(r)).collect();
            group(ui, self.cx, title, rows.len());
            rows.into_iter().for_each(|r| self.remedy(ui, r, tone, chosen));
        }
    }

    /// A row of another setting, which can be selected, copied and tried.
    fn remedy(&self, ui: &mut Ui, r: &Remedy, tone: RowTone, chosen: &mut Option<String>) {
        let (h, cx) = (self.h, self.cx);
        let name = if r.conf.is_empty() { "PyTorch's defaults" } else { &r.conf };
        let is_chosen = chosen.as_deref() == Some(r.conf.as_str());
        let response = self.list_row(ui, name, is_chosen);
        self.paint(ui, response.rect, name, peak(h, r), &outcome(h, r, self.failed), tone);
        let place = Rect::from_center_size(response.rect.middle(response.rect.right() - 20.0), vec2(20.0, 20.0));
        let mut child = pane::child(ui, place, ("copy", name));
        if icon_button(&mut child, Icon::Copy, &format!("Copy {}", h.line(r))).clicked() {
            cx.actions.send(Action::Copy(h.line(r)));
        }
        if response.clicked() {
            *chosen = Some(r.conf.clone());
        }
        if response.double_clicked() {
            cx.actions.send(Action::TrySettings(r.conf.clone()));
        }
        let doubt = h.doubt(r);
        let mut lines = vec![name.to_owned(), h.about(r)];
        lines.extend(h.margin(r).filter(|_| self.failed).map(|m| format!("{m}.")));
        if r.num_alloc_retries > 0 {
            lines.push(format!("The cache is emptied {} on the way.", counted(r.num_alloc_retries, "time", "times")));
        }
        if !r.oom && self.failed {
            lines.extend(h.remedies.ends_at_failure.map(|_| format!("All recorded requests succeed.{}", h.warning())));
        }
        lines.push(if doubt.is_empty() { "Certain.".to_owned() } else { format!("Not certain: {doubt}.") });
        response.on_hover_text(lines.join("\n"));
    }

    /// A row without actions.
    fn row(&self, ui: &mut Ui, name: &str, peak: u64, outcome: &str, tone: RowTone) {
        let response = self.list_row(ui, name, false);
        self.paint(ui, response.rect, name, peak, outcome, tone);
    }

    /// A row of a list of settings. Long settings take two lines.
    fn list_row(&self, ui: &mut Ui, name: &str, is_chosen: bool) -> egui::Response {
        let is_long = label::width(ui.painter(), name, Type::Body) > self.columns.name.1 - self.columns.name.0;
        let height = if is_long && name.contains(',') { ROW + 12.0 } else { ROW };
        ListRow::new(name).height(height).selected(is_chosen).show_painted(ui)
    }

    fn paint(&self, ui: &Ui, rect: Rect, name: &str, peak: u64, outcome: &str, tone: RowTone) {
        let (t, p, columns) = (self.cx.tokens, ui.painter(), &self.columns);
        let passes = tone == RowTone::Passes;
        let ink = if passes { t.text1 } else { t.text2 };
        conf_name(p, cell(rect, columns.name), name, Type::Body, ink, 0.0);
        let mut bar = Bar::new(self.greatest).part(peak as f64, if passes { t.slot(2) } else { t.other });
        if let Some(limit) = self.limit() {
            bar = bar.tick(limit as f64, t.red);
            if let Some(range) = self.h.limit.filter(|range| !range.is_known()) {
                bar = bar.tick(range.least as f64, t.red);
            }
        }
        if self.has_bars() {
            bar.paint(p, t, cell(rect, columns.bar));
        }
        label::figure(p, cell(rect, columns.peak), &self.size.figure(peak), ink);
        let (face, colour) = match tone {
            RowTone::Passes => (Type::Strong, t.text1),
            RowTone::Fails => (Type::Body, t.red),
            RowTone::Plain => (Type::Body, t.text2),
        };
        label::text_in_right(p, cell(rect, columns.outcome), outcome, face, colour);
    }
}

/// The outcome of the requests under the recorded settings.
fn own_outcome(h: &Helped, failed: bool) -> String {
    match h.own.oom_request {
        Some(request) => format!("fails after {}", count(request)),
        // The model serves the request that the recording could not.
        None if failed => "failed".to_owned(),
        None => format!("all {} served", count(h.requests)),
    }
}

/// The outcome under another setting. Without a failure: how much more or less it reserves.
fn outcome(h: &Helped, r: &Remedy, failed: bool) -> String {
    if !failed {
        let change = r.peak_reserved_bytes as i128 - h.own.peak_reserved_bytes as i128;
        let size = Bytes(change.unsigned_abs().min(u128::from(u64::MAX)) as u64);
        return match change {
            0 => "the same".to_owned(),
            c if c < 0 => format!("{size} less"),
            _ => format!("{size} more"),
        };
    }
    match (r.oom, r.certain) {
        (true, _) => {
            format!("{} after {}", if r.oom_varies { "may fail" } else { "fails" }, count(r.oom_request.unwrap_or(0)))
        }
        (false, true) => format!("all {} served", count(h.requests)),
        (false, false) => {
            h.passes_from(r).map_or("may serve all".to_owned(), |from| format!("from {}", Bytes(from).least_beside()))
        }
    }
}

/// The peak under the cap that the outcome names.
fn peak(h: &Helped, r: &Remedy) -> u64 {
    h.passes_from(r).filter(|_| !r.oom).map_or(r.peak_reserved_bytes, |from| from.min(r.peak_reserved_bytes))
}

#[derive(Clone, Copy, PartialEq)]
enum RowTone {
    Passes,
    Fails,
    Plain,
}

fn group(ui: &mut Ui, cx: &ViewContext<'_>, text: &str, rows: usize) {
    if rows == 0 {
        return;
    }
    let t = cx.tokens;
    let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), 22.0), Sense::hover());
    ui.painter().hline(rect.x_range(), rect.top() + 0.5, egui::Stroke::new(1.0, t.line));
    let room = rect.shrink2(vec2(16.0, 0.0));
    label::text_in(ui.painter(), room, text, Type::Caption, t.text3);
    response.on_hover_text(text);
}

/// The smallest caps under which every request is served.
fn needed(ui: &mut Ui, cx: &ViewContext<'_>, h: &Helped) {
    let r = &h.remedies;
    let mut lines = Vec::new();
    let least = |n: &vramscope_core::inference::Needed| Bytes(n.smallest_limit_bytes);
    // Both figures of a sentence use the same unit.
    let is_fine = [&r.needed, &r.needed_with_best].into_iter().flatten().any(|n| least(n).least_beside().ends_with("MiB"));
    let with = |n: vramscope_core::inference::Needed, name: &str| {
        let least = least(&n);
        let text = if is_fine { format!("{}{NBSP}MiB", count(least.0.div_ceil(1 << 20))) } else { least.at_least() };
        format!("{text} {name}")
    };
    let own = r.needed.map(|n| with(n, "as recorded"));
    let best = r.needed_with_best.zip(r.passing().next()).map(|(n, best)| {
        let name = if best.conf.is_empty() { "PyTorch's defaults" } else { &best.conf };
        with(n, &format!("with {name}"))
    });
    let least: Vec<String> = own.into_iter().chain(best).collect();
    if !least.is_empty() {
        // The peaks in the table are another figure: with no cap, or with the recorded one. A full device has no cap to set.
        let what = if h.is_of_device() { "Least memory" } else { "Smallest cap" };
        lines.push(format!(
            "{what} with which every recorded request is served: {}. Near its cap the allocator gives cached segments back, so this may be less than a peak above.",
            least.join(", ")
        ));
    }
    if !r.agrees_with_recording {
        lines.push("The model does not reproduce this recording: take the figures as estimates.".to_owned());
    }
    if lines.is_empty() {
        return;
    }
    ui.add_space(8.0);
    pane::note(ui, &lines.join(" "), Type::Body, cx.tokens.text2);
}
