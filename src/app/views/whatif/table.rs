//! The table of settings.

use std::sync::Arc;

use egui::{Rect, Role, Sense, Stroke, Ui, Vec2, WidgetInfo, vec2};

use super::ViewContext;
use super::layout;
use super::layout::{HEAD, ROW};
use super::model::{Setting, WhatIfView, outcome, outcome_span};
use super::runs::{Awaited, LimitFrom};
use crate::app::theme::Type;
use crate::app::widgets::{
    Bar, Cell, Column, Cut, Icon, Swatch, Table, TableOutput, Tip, Width, best_room, icon_button_sized, label, paint_best, row,
};
use vramscope_core::inference::whatif::Answer;
use vramscope_core::tables::Quantity;
use vramscope_core::units::{Bytes, SizeColumn, count};

impl WhatIfView {
    pub(super) fn table(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let t = cx.tokens;
        let best = self.best();
        let is_best = |row: usize| best.as_ref().is_some_and(|b| b.0 == row);
        let recorded = cx.data.tables.curves.peak(Quantity::Reserved).0;
        let (sizes, scale) = (self.sizes(), self.bar_scale());
        let above = row::line(ui, HEAD - 24.0);
        let this = &*self;
        let columns: Vec<Column<'_, Line>> = vec![
            Column::text("", Width::Exact(20.0), |c, l: &Line| {
                let is_plotted = this.settings[l.row].is_plotted;
                let swatch = if is_plotted { Swatch::Fill(this.colour(l.row, t)) } else { Swatch::Outline(t.line2) };
                swatch.paint(c.p, t, c.rect.middle(c.rect.left() + 6.0));
            }),
            Column::text(cx.words().conf, Width::Share(0.67, 194.0), |c, l: &Line| {
                let mut place = c.rect;
                if this.settings[l.row].is_added {
                    place.max.x -= 20.0;
                }
                let is_best = is_best(l.row);
                let kind = if l.row == 0 { Type::Strong } else { Type::Mono };
                let beside = if is_best { best_room(c.p) } else { 0.0 };
                let first = conf_name(c.p, place, &this.settings[l.row].title, kind, t.text1, beside);
                if is_best {
                    paint_best(c.p, t, first.right_center());
                }
            }),
            Column::text("peak reserved", Width::Share(0.33, 94.0), |c, l: &Line| {
                let Some(a) = &l.free else { return this.awaited(c, l.row, None) };
                let is_lit = this.settings[l.row].is_plotted || l.row == this.selected;
                let used = a.row.peak_allocated_bytes.min(a.row.peak_reserved_bytes);
                let bar = Bar::new(scale).part(used as f64, if is_lit { this.colour(l.row, t) } else { t.other });
                let bar = bar.hatched((a.row.peak_reserved_bytes - used) as f64);
                // When limit and recorded peak are equal, the tick named in the title is drawn on top.
                let bar = this.limit().map_or(bar.clone(), |limit| bar.tick(limit as f64, t.red));
                c.bar(&bar.tick(recorded as f64, t.text1));
            })
            .goes(6),
            Column::figure(sizes.unit(), 58.0, |c, l: &Line| peak(c, l.free.as_deref(), sizes)),
            Column::figure("against recorded", 98.0, |c, l: &Line| {
                let Some(a) = &l.free else { return };
                if a.row.oom {
                    c.right(outcome(a).0, Type::Body, t.red);
                } else {
                    let text = against(a.row.peak_reserved_bytes, recorded, |n| sizes.sized(n));
                    c.figure(&text, if text == "no change" { t.text3 } else { t.text2 });
                }
            })
            .goes(4),
            Column::figure("device calls", 72.0, |c, l: &Line| calls(c, l.free.as_deref())).goes(2),
            Column::text("outcome", Width::Exact(176.0), |c, l: &Line| {
                let Some(a) = &l.limited else { return this.awaited(c, l.row, this.limit()) };
                let (text, fails) = outcome(a);
                // Only the recorded run and the selected one are red. More red would hide what helps.
                let ink = match (fails, l.row == 0 || l.row == this.selected) {
                    (false, _) => t.text1,
                    (true, true) => t.red,
                    (true, false) => t.text2,
                };
                match outcome_span(a) {
                    None => _ = c.text(&text, Type::Body, ink),
                    Some(span) => {
                        label::text_in(c.p, upper(c.rect), &text, Type::Body, ink);
                        label::text_in(c.p, lower(c.rect), &span, Type::Caption, t.text3);
                    }
                }
            }),
            Column::figure(sizes.head("peak"), 68.0, |c, l: &Line| peak(c, l.limited.as_deref(), sizes)).goes(5),
            Column::figure("retries", 46.0, |c, l: &Line| {
                if let Some(a) = &l.limited {
                    c.figure(count(a.row.num_alloc_retries), t.text1);
                }
            })
            .goes(3),
            Column::figure("device calls", 72.0, |c, l: &Line| calls(c, l.limited.as_deref())).goes(1),
        ];
        let line = |row: usize| Some(Line { row, free: this.answer(row, None), limited: this.limited(row) });
        let table = Table::plain("settings", columns).row_height(ROW).spaced(8.0, 16.0, 14.0).lines();
        let out =
            table.selected(Some(self.selected)).show(ui, self.settings.len(), line, |row, _| self.settings[row].title.clone());
        self.groups(ui, cx, above, &out);
        let mut removed = out.focused.filter(|_| ui.input(|i| i.key_pressed(egui::Key::Delete)));
        for (row, response) in &out.seen {
            let setting = &mut self.settings[*row];
            let name = setting.title.clone();
            if let Some(plot) = out.cell(response.rect, 0) {
                let at = plot.expand2(vec2(8.0, 0.0)).intersect(response.interact_rect);
                let toggle = ui.interact(at, ui.scope_id().with(("plot", row)), Sense::click());
                toggle.widget_info(|| WidgetInfo::selected(Role::CheckBox, true, setting.is_plotted, format!("Plot {name}")));
                setting.is_plotted ^= toggle.clicked();
            }
            if let Some(conf) = out.cell(response.rect, 1).filter(|_| setting.is_added) {
                let close = Rect::from_center_size(conf.middle(conf.right() - 6.0), Vec2::splat(20.0));
                let mut at = ui.new_child(egui::UiBuilder::new().id_salt(("remove", row)).max_rect(close));
                if icon_button_sized(&mut at, Icon::Close, &format!("Remove {name}"), 20.0, 12.0).clicked() {
                    removed = Some(*row);
                }
            }
            if response.hovered() {
                let why = best.as_ref().filter(|b| b.0 == *row).map(|b| b.1.as_str());
                let (free, limited) = (self.answer(*row, None), self.limited(*row));
                tip(&self.settings[*row], free.as_deref(), limited.as_deref(), why).show(response);
            }
        }
        if let Some(row) = out.chosen() {
            (self.selected, self.is_chosen) = (row, true);
        }
        if let Some(row) = out.opened() {
            self.open_run(cx, row, self.limit());
        }
        if let Some(row) = removed {
            self.remove(row);
        }
    }

    /// The line above the titles, which groups columns by limit, and the separators between the groups.
    fn groups(&self, ui: &Ui, cx: &ViewContext<'_>, above: Rect, out: &TableOutput) {
        let t = cx.tokens;
        let bottom = out.seen.last().map_or(above.bottom() + 24.0, |seen| seen.1.interact_rect.bottom());
        let first = |columns: std::ops::Range<usize>| columns.into_iter().find_map(|column| out.cell(above, column));
        let limited = first(6..10);
        let recorded = cx.data.tables.curves.peak(Quantity::Reserved).0;
        let tick = if t.dark { "white" } else { "black" };
        // In the same unit as the column below.
        let own = self.sizes().sized(recorded);
        // The first text that fits is used.
        let free = vec![
            format!("served without a limit; the recording itself peaks at {own} ({tick} tick)"),
            format!("served without a limit; recorded: {own} ({tick} tick)"),
            "served without a limit".to_owned(),
        ];
        // When only a range is known for the cap, the limit here is its upper end. Plan shows what certainly fits, so it uses the
        // lower end.
        let of = self.runs.own().and_then(|own| match own.limit_from {
            LimitFrom::Known(range) if !range.is_known() && self.limit() == Some(own.limit) => Some(range),
            _ => None,
        });
        let plain = self.limit().map_or("limit".to_owned(), |l| format!("served under a limit of {}", Bytes(l).limit()));
        let under = of.map(|range| format!("{plain}, the most that a cap of {range} may be")).into_iter().chain([plain.clone()]);
        let under = under.collect::<Vec<_>>();
        let end = limited.map_or(above.right(), |cell| cell.left() - 16.0);
        for (cell, end, text) in [(first(2..6), end, free), (limited, above.right() - 8.0, under)] {
            let Some(cell) = cell else { continue };
            let room = above.across(cell.left(), end);
            let fits = |text: &&String| label::width(ui.painter(), text, Type::Caption) <= room.width();
            let shown = text.iter().find(fits).or(text.last()).map_or("", String::as_str);
            label::text_in(ui.painter(), room, shown, Type::Caption, t.text2);
            ui.painter().vline((cell.left() - 8.0).round() - 0.5, above.top()..=bottom, Stroke::new(1.0, t.line));
        }
    }

    /// What a cell shows until its answer is ready: that it waits, or its progress.
    fn awaited(&self, c: &Cell<'_>, row: usize, limit: Option<u64>) {
        let t = c.t;
        let Some(awaited) = self.settings.get(row).and_then(|s| self.runs.awaited(&s.text, limit)) else { return };
        let text = match awaited {
            Awaited::Waiting => "waiting".to_owned(),
            Awaited::Stopped => "not run".to_owned(),
            Awaited::Running(share) => {
                let line = c.rect.down(c.rect.bottom() - 3.0, c.rect.bottom() - 1.0);
                c.p.rect_filled(line, 0, t.accentbg);
                c.p.rect_filled(line.with_max_x(line.left() + line.width() * share), 0, t.accent);
                format!("replaying, {:.0} %", share * 100.0)
            }
        };
        c.text(text, Type::Caption, t.text3);
    }

    pub(super) fn sizes(&self) -> SizeColumn {
        let answers = (0..self.settings.len()).flat_map(|i| [self.answer(i, None), self.limited(i)]);
        SizeColumn::of(answers.flatten().map(|a| a.row.peak_reserved_bytes))
    }

    fn bar_scale(&self) -> f64 {
        let peaks = (0..self.settings.len()).filter_map(|i| self.answer(i, None)).map(|a| a.row.peak_reserved_bytes);
        let limit = self.limit().unwrap_or(0);
        let top = peaks.max().unwrap_or(0);
        // A limit far above everything is left out, because it would shrink the bars to nothing.
        (if limit < top.saturating_mul(2) { top.max(limit) } else { top }).max(1) as f64 * 1.02
    }
}

/// A setting, on two lines when it does not fit on one; the first leaves room `beside` it. Returns the place of that line.
pub(in crate::app::views) fn conf_name(
    p: &egui::Painter,
    place: Rect,
    name: &str,
    kind: Type,
    ink: egui::Color32,
    beside: f32,
) -> Rect {
    let short = place.with_max_x(place.right() - beside);
    let line = |room: Rect, text: &str| label::text_in(p, room, &label::without_middle(p, text, kind, room.width()), kind, ink);
    match layout::two_lines(name, |text| label::width(p, text, kind) <= short.width()) {
        None => line(short, name),
        Some((first, second)) => {
            line(lower(place), second.trim_start());
            line(upper(short), first)
        }
    }
}

fn tip(setting: &Setting, free: Option<&Answer>, limited: Option<&Answer>, best: Option<&str>) -> Tip {
    let mut tip = Tip::new(setting.title.clone()).width(360.0);
    let mut notes = vec![super::side::sentence(setting.about)];
    if let Some(why) = best {
        notes.push(format!("Best: it {}.", why.strip_prefix("the only").map_or(why.to_owned(), |w| format!("is the only{w}"))));
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

/// Why a peak may exceed the limit.
pub(super) const OVER_LIMIT: &str = "The peak may exceed the limit: PyTorch compares the limit with the request, rounded to 2 MiB, and then maps whole pages of 20 MiB.";

fn upper(rect: Rect) -> Rect {
    rect.with_max_y(rect.center().y + 2.0)
}

fn lower(rect: Rect) -> Rect {
    rect.down(rect.center().y, rect.bottom() - 2.0)
}

/// A peak. Below it a range when it depends on where the driver puts segments, or a note that it is an estimate.
fn peak(c: &Cell<'_>, answer: Option<&Answer>, size: SizeColumn) {
    let Some(Answer { row, .. }) = answer else { return };
    let text = size.figure(row.peak_reserved_bytes);
    let [low, high] = row.peak_reserved_span.map(|bytes| size.figure(bytes));
    // Ends that read alike are no span.
    let under = match (low != high, row.is_estimate()) {
        (true, _) => format!("{low}–{high}"),
        (false, true) => "estimate".to_owned(),
        (false, false) => return c.figure(&text, c.t.text1),
    };
    label::figure(c.p, upper(c.rect), &text, c.t.text1);
    label::text_in_right(c.p, lower(c.from(c.rect.left() - 14.0).rect), &under, Type::Key, c.t.text3);
}

fn calls(c: &Cell<'_>, answer: Option<&Answer>) {
    if let Some(a) = answer {
        c.figure(count(a.row.num_device_alloc), c.t.text3);
    }
}

/// A row: a setting and its answers, without a limit and with it.
struct Line {
    row: usize,
    free: Option<Arc<Answer>>,
    limited: Option<Arc<Answer>>,
}

pub(super) fn against(value: u64, recorded: u64, sized: impl Fn(u64) -> String) -> String {
    match value.cmp(&recorded) {
        std::cmp::Ordering::Equal => "no change".to_owned(),
        std::cmp::Ordering::Less => format!("−{}", sized(recorded - value)),
        std::cmp::Ordering::Greater => format!("+{}", sized(value - recorded)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_a_sign_and_a_unit() {
        let m = |n: u64| n << 20;
        let against = |value: u64, recorded: u64| against(m(value), m(recorded), |n| Bytes(n).to_string());
        assert_eq!(against(3566, 4468), "−902\u{a0}MiB");
        assert_eq!(against(6650, 4468), "+2.13\u{a0}GiB");
        assert_eq!(against(1, 1), "no change");
    }
}
