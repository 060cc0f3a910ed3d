//! The table of settings.

use egui::{Rangef, Rect, Role, ScrollArea, Sense, Stroke, Ui, WidgetInfo, pos2};

use super::ViewContext;
use super::layout;
use super::layout::{Col, HEAD, ROW};
use super::model::{Setting, WhatIfView, outcome, outcome_span};
use super::runs::Awaited;
use crate::app::theme::Type;
use crate::app::widgets::bar::Bar;
use crate::app::widgets::button::icon_button_sized;
use crate::app::widgets::chip::{Swatch, paint_chip};
use crate::app::widgets::cut::Cut;
use crate::app::widgets::icons::Icon;
use crate::app::widgets::label;
use crate::app::widgets::row::ListRow;
use crate::app::widgets::table::{Head, head_line};
use crate::app::widgets::tooltip::Tip;
use vramscope_core::inference::whatif::{Answer, Row};
use vramscope_core::tables::Quantity;
use vramscope_core::units::{Bytes, SizeColumn, count};

impl WhatIfView {
    pub(super) fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let best = self.best();
        let mut removed = None;
        let columns = layout::columns(ui.max_rect().width());
        self.head(ui, cx, &columns);
        let rows = self.settings.len();
        let area = ScrollArea::vertical().id_salt("settings").auto_shrink(false);
        area.show_rows(ui, ROW, rows, |ui, range| {
            if let Some(row) = self.scroll_to.take() {
                let top = ui.max_rect().top() + (row as f32 - range.start as f32) * ROW;
                // With the row after it, on which the edge fades.
                let rows = Rect::from_min_size(pos2(ui.max_rect().left(), top), egui::vec2(1.0, 2.0 * ROW));
                ui.scroll_to_rect_animation(rows, None, egui::style::ScrollAnimation::none());
            }
            for row in range {
                let is_best = best.as_ref().filter(|b| b.0 == row).map(|b| b.1.as_str());
                if self.row(ui, cx, row, &columns, is_best) {
                    removed = Some(row);
                }
            }
        });
        if let Some(row) = removed {
            self.remove(row);
        }
    }

    fn head(&self, ui: &mut Ui, cx: &ViewContext<'_>, columns: &[(Col, Rangef)]) {
        let t = cx.tokens;
        let width = ui.max_rect().width();
        let (rect, _) = ui.allocate_exact_size(egui::vec2(width, HEAD), Sense::hover());
        let p = ui.painter();
        let at = |range: Rangef, top: f32| cell(rect.lines(top, top + 24.0), range);
        let group = |from: Col| columns.iter().filter(|c| c.0 >= from).map(|c| c.1).next();
        if let Some(range) = group(Col::Bar) {
            let end = group(Col::Outcome).map_or(width, |r| r.min);
            let place = at(Rangef::new(range.min, end), 0.0);
            let recorded = cx.data.tables.curves.peak(Quantity::Reserved).0;
            let text = format!("served without a limit; the recording itself peaks at {} (white tick)", Bytes(recorded));
            let text = if t.dark { text } else { text.replace("white", "black") };
            label::text_in(p, place, &text, Type::Caption, t.text2);
        }
        if let Some(range) = group(Col::Outcome) {
            let text = self.limit().map_or("limit".to_owned(), |l| format!("served under a limit of {}", Bytes(l).limit()));
            label::text_in(p, at(Rangef::new(range.min, width), 0.0), &text, Type::Caption, t.text2);
        }
        let peak_head = self.sizes().head("peak");
        for &(col, range) in columns {
            let (name, right) = match col {
                Col::Plot => continue,
                Col::Conf => (cx.words().conf, false),
                Col::Bar => ("peak reserved", false),
                Col::Peak => (self.sizes().unit(), true),
                Col::LimitPeak => (peak_head.as_str(), true),
                Col::Against => ("against recorded", true),
                Col::Calls | Col::LimitCalls => ("device calls", true),
                Col::Outcome => ("outcome", false),
                Col::Retries => ("retries", true),
            };
            Head { title: name, is_figure: right, sorted: None }.show(ui, at(range, 22.0), None);
        }
        head_line(ui, rect);
        self.dividers(ui, cx, rect, columns);
    }

    /// The lines between setting, no limit and limit.
    fn dividers(&self, ui: &Ui, cx: &ViewContext<'_>, rect: Rect, columns: &[(Col, Rangef)]) {
        for col in [Col::Bar, Col::Outcome] {
            if let Some((_, range)) = columns.iter().find(|c| c.0 >= col) {
                ui.painter().vline(rect.left() + range.min.round() - 0.5, rect.y_range(), Stroke::new(1.0, cx.tokens.line));
            }
        }
    }

    /// A setting; `true` when the user takes it away.
    fn row(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, row: usize, columns: &[(Col, Rangef)], best: Option<&str>) -> bool {
        let t = cx.tokens;
        let name = self.settings[row].title.clone();
        let list_row = ListRow::new(&name).height(ROW).selected(row == self.selected).line();
        let response = ui.push_id(row, |ui| list_row.show_painted(ui)).inner;
        if response.clicked() {
            (self.selected, self.is_chosen) = (row, true);
        }
        if response.double_clicked() {
            self.open_run(cx, row, self.limit());
        }
        let is_added = self.settings[row].is_added;
        let mut is_removed = is_added && response.has_focus() && ui.input(|i| i.key_pressed(egui::Key::Delete));
        let rect = response.rect;
        let (free, limited) = (self.answer(row, None), self.limited(row));
        let recorded = cx.data.tables.curves.peak(Quantity::Reserved).0;
        if response.hovered() {
            tip(&self.settings[row], free.as_deref(), limited.as_deref(), best).show(&response);
        }
        let colour = self.colour(row, t);
        let is_plotted = self.settings[row].is_plotted;
        for &(col, range) in columns {
            let place = cell(rect, range);
            let p = ui.painter().clone();
            let figure = |text: &str, ink| label::figure(&p, place, text, ink);
            match (col, &free, &limited) {
                (Col::Plot, ..) => {
                    let toggle =
                        ui.interact(rect.with_max_x(rect.left() + range.max), ui.scope_id().with(("plot", row)), Sense::click());
                    toggle.widget_info(|| WidgetInfo::selected(Role::CheckBox, true, is_plotted, format!("Plot {name}")));
                    if toggle.clicked() {
                        self.settings[row].is_plotted = !is_plotted;
                    }
                    let swatch = if is_plotted { Swatch::Fill(colour) } else { Swatch::Outline(t.line2) };
                    swatch.paint(&p, t, rect.middle(place.left() + 6.0));
                    crate::app::widgets::button::focus_ring(ui, &toggle, 2);
                }
                (Col::Conf, ..) => {
                    let mut place = place;
                    if is_added {
                        let close = Rect::from_center_size(place.middle(place.right() - 6.0), egui::Vec2::splat(20.0));
                        let mut at = ui.new_child(egui::UiBuilder::new().id_salt(("remove", row)).max_rect(close));
                        let name = format!("Remove {name}");
                        is_removed |= icon_button_sized(&mut at, Icon::Close, &name, 20.0, 12.0).clicked();
                        place.max.x = close.left() - 4.0;
                    }
                    if best.is_some() {
                        let chip = paint_chip(&p, t, place.right_center(), egui::Align2::RIGHT_CENTER, "best");
                        place.max.x = chip.left() - 6.0;
                    }
                    conf_name(&p, place, &name, if row == 0 { Type::Strong } else { Type::Mono }, t.text1);
                }
                (Col::Bar, Some(a), _) => {
                    let scale = self.bar_scale();
                    let fill = if is_plotted || row == self.selected { colour } else { t.other };
                    let used = a.row.peak_allocated_bytes.min(a.row.peak_reserved_bytes);
                    let mut bar = Bar::new(scale).part(used as f64, fill).hatched((a.row.peak_reserved_bytes - used) as f64);
                    bar = bar.tick(recorded as f64, t.text1);
                    if let Some(limit) = self.limit() {
                        bar = bar.tick(limit as f64, t.red);
                    }
                    bar.paint(&p, t, place);
                }
                (Col::Peak, Some(a), _) => {
                    peak(&p, place, &a.row, self.sizes(), cx);
                }
                (Col::Against, Some(a), _) => {
                    if a.row.oom {
                        label::text_in_right(&p, place, &outcome(a).0, Type::Body, t.red);
                    } else {
                        let text = against(a.row.peak_reserved_bytes, recorded);
                        figure(&text, if text == "no change" { t.text3 } else { t.text2 });
                    }
                }
                (Col::Calls, Some(a), _) => figure(&count(a.row.num_device_alloc), t.text3),
                (Col::Outcome, _, Some(a)) => {
                    let (text, fails) = outcome(a);
                    let ink = if fails { t.red } else { t.text1 };
                    match outcome_span(a) {
                        None => _ = label::text_in(&p, place, &text, Type::Body, ink),
                        Some(span) => {
                            label::text_in(&p, upper(place), &text, Type::Body, ink);
                            label::text_in(&p, lower(place), &span, Type::Caption, t.text3);
                        }
                    }
                }
                (Col::LimitPeak, _, Some(a)) => {
                    peak(&p, place, &a.row, self.sizes(), cx);
                }
                (Col::Retries, _, Some(a)) => figure(&count(a.row.num_alloc_retries), t.text1),
                (Col::LimitCalls, _, Some(a)) => figure(&count(a.row.num_device_alloc), t.text3),
                (Col::Bar, None, _) => self.awaited(&p, cx, place, row, None),
                (Col::Outcome, _, None) => self.awaited(&p, cx, place, row, self.limit()),
                _ => {}
            }
        }
        self.dividers(ui, cx, rect, columns);
        is_removed
    }

    /// What stands where an answer will be: that it waits, or how far its run is.
    fn awaited(&self, p: &egui::Painter, cx: &ViewContext<'_>, place: Rect, row: usize, limit: Option<u64>) {
        let t = cx.tokens;
        let Some(awaited) = self.settings.get(row).and_then(|s| self.runs.awaited(&s.text, limit)) else { return };
        let text = match awaited {
            Awaited::Waiting => "waiting".to_owned(),
            Awaited::Stopped => "not run".to_owned(),
            Awaited::Running(share) => {
                let line = place.down(place.bottom() - 3.0, place.bottom() - 1.0);
                p.rect_filled(line, 0, t.accentbg);
                p.rect_filled(line.with_max_x(line.left() + line.width() * share), 0, t.accent);
                format!("replaying, {:.0} %", share * 100.0)
            }
        };
        label::text_in(p, place, &text, Type::Caption, t.text3);
    }

    /// One scale for all bars.
    /// How peaks are written in the table.
    fn sizes(&self) -> SizeColumn {
        let answers = (0..self.settings.len()).flat_map(|i| [self.answer(i, None), self.limited(i)]);
        SizeColumn::of(answers.flatten().map(|a| a.row.peak_reserved_bytes))
    }

    fn bar_scale(&self) -> f64 {
        let peaks = (0..self.settings.len()).filter_map(|i| self.answer(i, None)).map(|a| a.row.peak_reserved_bytes);
        let limit = self.limit().unwrap_or(0);
        let top = peaks.max().unwrap_or(0);
        // A limit far above everything would shrink the bars to nothing.
        (if limit < top.saturating_mul(2) { top.max(limit) } else { top }).max(1) as f64 * 1.02
    }
}

/// A setting, on two lines where it does not fit on one.
fn conf_name(p: &egui::Painter, place: Rect, name: &str, kind: Type, ink: egui::Color32) {
    let halves = layout::two_lines(name, |text| label::width(p, text, kind) <= place.width());
    match halves {
        None => _ = label::text_in(p, place, name, kind, ink),
        Some((first, second)) => {
            label::text_in(p, upper(place), first, kind, ink);
            label::text_in(p, lower(place), second, kind, ink);
        }
    }
}

/// Everything about a row, in words.
fn tip(setting: &Setting, free: Option<&Answer>, limited: Option<&Answer>, best: Option<&str>) -> Tip {
    let mut tip = Tip::new(setting.title.clone()).width(360.0);
    let mut notes = vec![super::side::sentence(setting.about)];
    if let Some(why) = best {
        notes.push(format!(
            "Best under the limit: it {}.",
            why.strip_prefix("the only").map_or(why.to_owned(), |w| format!("is the only{w}"))
        ));
    }
    for (name, answer) in [("No limit", free), ("Limit", limited)] {
        let Some(a) = answer else { continue };
        let text = outcome(a).0;
        tip = if a.row.oom { tip.red_row(name, text) } else { tip.row(name, text) };
        for (figure, [low, high]) in &a.row.spans {
            if matches!(*figure, "num_alloc_retries" | "num_device_alloc" | "peak_allocated_bytes") {
                let (figure, text) = match *figure {
                    "num_alloc_retries" => ("retries", format!("{} to {}", count(*low), count(*high))),
                    "num_device_alloc" => ("device calls", format!("{} to {}", count(*low), count(*high))),
                    _ => ("peak allocated", format!("{} to {}", Bytes(*low), Bytes(*high))),
                };
                tip = tip.row(format!("  {figure}"), text);
            }
        }
    }
    if limited.is_some_and(|a| a.row.over_limit() > 0) {
        notes.push(OVER_LIMIT.to_owned());
    }
    if free.is_some_and(|a| a.row.peak_reserved_span[0] < a.row.peak_reserved_span[1]) {
        notes.push("Figures with a range depend on where the driver puts segments.".to_owned());
    }
    tip.note(notes.join(" "))
}

/// Why a peak may lie above the limit.
pub(super) const OVER_LIMIT: &str = "The peak may exceed the limit: PyTorch compares the limit with the request, rounded to 2 MiB, and then maps whole pages of 20 MiB.";

/// The cell of a column in a row, less the room beside it.
fn cell(row: Rect, range: Rangef) -> Rect {
    row.cell(range.min, range.max).shrink2(egui::vec2(8.0, 0.0))
}

fn upper(rect: Rect) -> Rect {
    rect.with_max_y(rect.center().y + 2.0)
}

fn lower(rect: Rect) -> Rect {
    rect.down(rect.center().y, rect.bottom() - 2.0)
}

/// A peak; under it its span when it depends on where the driver puts segments, or that it is an estimate.
fn peak(p: &egui::Painter, place: Rect, row: &Row, size: SizeColumn, cx: &ViewContext<'_>) {
    let text = size.figure(row.peak_reserved_bytes);
    let [low, high] = row.peak_reserved_span;
    let under = match (low < high, row.is_estimate()) {
        (true, _) => format!("{}–{}", size.figure(low), size.figure(high)),
        (false, true) => "estimate".to_owned(),
        (false, false) => {
            label::figure(p, place, &text, cx.tokens.text1);
            return;
        }
    };
    label::figure(p, upper(place), &text, cx.tokens.text1);
    let wide = place.with_min_x(place.left() - 14.0);
    label::text_in_right(p, lower(wide), &under, Type::Key, cx.tokens.text3);
}

/// `−902 MiB`, `+318 MiB`, `no change`.
pub(super) fn against(value: u64, recorded: u64) -> String {
    match value.cmp(&recorded) {
        std::cmp::Ordering::Equal => "no change".to_owned(),
        std::cmp::Ordering::Less => format!("−{}", Bytes(recorded - value)),
        std::cmp::Ordering::Greater => format!("+{}", Bytes(value - recorded)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_a_sign_and_a_unit() {
        let m = |n: u64| n << 20;
        assert_eq!(against(m(3566), m(4468)), "−902\u{a0}MiB");
        assert_eq!(against(m(6650), m(4468)), "+2.13\u{a0}GiB");
        assert_eq!(against(m(1), m(1)), "no change");
    }
}
