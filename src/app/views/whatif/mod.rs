//! What-if: the recorded requests, simulated under other allocator settings, with and without a limit.

use std::sync::Arc;

use egui::{Align, Color32, Key as Button, Layout, Rect, Ui, UiBuilder, vec2};

use super::{View, ViewContext, ViewInfo};
use crate::app::state::{Action, ViewKind};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{Field, Icon, Push, anchor, pane, told_at};
use model::{Advice, Setting, WhatIfView};
use runs::LimitFrom;
use vramscope_core::diagnose::source_limits::records_history;
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::inference::remedies::best;
use vramscope_core::inference::whatif::{Answer, Row, SUGGESTED, WhatIf, settings_of};
use vramscope_core::model::{AllocConf, DeviceKind};
use vramscope_core::units::{Bytes, count};

mod charts;
pub(in crate::app::views) mod layout;
mod limit;
mod model;
mod needs;
mod runs;
mod side;
pub(in crate::app::views) mod table;

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::WhatIf,
    legend: &[
        ("solid, hatched", "highest allocated memory, and what is reserved beyond the highest allocated"),
        ("ticks", "the recording's own peak, and the limit in red"),
        ("recorded setting", "what the recording was made with, replayed without a limit and under it"),
        ("against recorded", "the difference to the peak the recording itself has"),
        ("swatch", "click it to draw the setting's curve"),
        (
            "best",
            "certain to pass under the limit, or under most of its range; then the fewest retries and the lowest peak; nowhere when no setting is better than the recorded one",
        ),
        ("double click", "open the setting's run as a recording, in a tab of its own"),
        ("fails after", "the first request the allocator model cannot serve; the run stops there"),
        ("to", "a range: the result depends on where the driver puts segments"),
        ("limit", "any size, such as 24 GiB or 24 GB (22.35 GiB); Enter runs everything again"),
        ("estimate", "a figure that rests on something the trace does not record; see what is assumed"),
    ],
    create: || Box::new(WhatIfView::default()),
};

/// Settings whose curves are drawn initially, besides the recorded setting, with their palette slots.
const PLOTTED: [(&str, usize); 4] = [
    ("expandable_segments:True", 2),
    ("expandable_segments:True,roundup_power2_divisions:8", 1),
    ("garbage_collection_threshold:0.6", 0),
    ("roundup_power2_divisions:4", 3),
];

/// Palette slots for the other settings, used in turn.
const OTHER_SLOTS: [usize; 4] = [4, 5, 6, 7];

impl View for WhatIfView {
    fn subtitle(&self, cx: &ViewContext<'_>) -> String {
        let answer = self.runs.answer(self.settings.first().map_or("", |s| s.text.as_str()), None);
        match answer {
            Some(a) if a.row.requests == 0 => String::new(),
            Some(a) => format!("the {} requests of this recording, replayed by the allocator model", count(a.row.requests)),
            None if cx.data.device().events.is_empty() => String::new(),
            None => "the requests of this recording, replayed by the allocator model".to_owned(),
        }
    }

    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        if self.runs.progress().is_some() {
            if Push::plain("Stop").small().show(ui).clicked() {
                self.runs.stop();
            }
            let words = match self.runs.checking() {
                Some(share) => format!("checking the model, {:.0} %", share * 100.0),
                None => self.progress_text(),
            };
            ui.label(Type::Caption.text(words).color(cx.tokens.text2));
        } else if self.runs.is_stopped() {
            if Push::primary("Go on").small().show(ui).clicked() {
                self.runs.resume();
            }
            ui.label(Type::Caption.text(format!("stopped, {}", self.progress_text())).color(cx.tokens.text2));
        }
        if self.lacks_charts {
            let about = "Close other panes, enlarge the window, or make the interface smaller (Ctrl+Minus).";
            ui.label(Type::Caption.text("no room for the charts").color(cx.tokens.text2)).on_hover_text(about);
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let device = cx.data.device();
        if matches!(device.id.kind, DeviceKind::Host | DeviceKind::Cpu) {
            let sentence =
                format!("{} is not managed by the CUDA caching allocator, so its settings do not apply here.", device.id);
            pane::empty_state(ui, &sentence, None);
            return;
        }
        if !WhatIf::has_requests(device) {
            let sentence = if WhatIf::mostly_before(device).is_some() {
                "Most of this memory was reserved before profiling began, and the trace has no requests for it. Profile from the start:"
            } else if device.events.is_empty() {
                "This recording has no requests to replay, only the state at its end. Record the history first:"
            } else {
                "No request for memory is in this recording's trace, so there is nothing to replay. Record from the start:"
            };
            cx.without_history(ui, sentence);
            return;
        }
        if self.settings.is_empty() {
            self.settings = suggested(&device.settings.conf);
            // Selects the first suggestion, so that there is something to compare.
            self.selected = 1.min(self.settings.len() - 1);
        }
        for conf in cx.shared.to_try.iter().skip(self.tried) {
            match self.settings.iter().position(|s| s.text == *conf) {
                Some(at) => {
                    self.settings[at].is_plotted = true;
                    self.selected = at;
                    self.is_chosen = true;
                }
                None => {
                    self.new_text.clone_from(conf);
                    self.add();
                }
            }
        }
        self.tried = cx.shared.to_try.len();
        let wanted: Vec<(String, AllocConf)> = self.settings.iter().map(|s| (s.text.clone(), s.conf.clone())).collect();
        self.runs.want(cx.jobs, cx.data, &wanted, self.limit);
        if self.runs.own().is_some_and(|own| own.requests == 0) {
            let sentence = "No event of this recording is a request for memory, so there is nothing to replay. Record from the \
                            start of the program:";
            pane::empty_state(ui, sentence, Some(records_history(&cx.data.recording)));
            return;
        }
        if self.runs.progress().is_some() {
            ui.request_repaint_after(std::time::Duration::from_millis(100));
        }
        if self.limit_text.is_empty()
            && self.limit.is_none()
            && let Some(own) = self.runs.own()
        {
            self.limit_text = Bytes(own.limit).limit();
        }
        // Until the user chooses, selects the setting that findings and the autopsy recommend, and shows it right below the
        // recorded one with its line to copy. Where no setting helps, no line is offered.
        match self.advice() {
            Advice::Best(best, _) if !self.is_chosen => {
                self.selected = best.min(1);
                self.settings[self.selected..=best].rotate_right(1);
            }
            Advice::NoneHelps if !self.is_chosen => self.selected = 0,
            _ => {}
        }
        let pane_rect = ui.max_rect();
        let areas = layout::areas(pane_rect, self.settings.len());
        self.lacks_charts = areas.charts.is_none();
        anchor::mark(ui, "settings", areas.tools);
        pane::inside(ui, areas.tools, "tools", |ui| self.tools(ui, cx));
        pane::inside(ui, areas.table, "settings", |ui| self.table(ui, cx));
        if let Some(rect) = areas.charts {
            pane::inside(ui, rect, "charts", |ui| self.charts(ui, cx));
        }
        if let Some(rect) = areas.side {
            if rect.left() > pane_rect.left() {
                ui.painter().vline(rect.left() - 0.5, rect.y_range(), egui::Stroke::new(1.0, cx.tokens.line));
            }
            pane::inside(ui, rect, "selected setting", |ui| self.side(ui, cx));
        }
        if let Some(progress) = self.runs.progress() {
            pane::progress_line(ui, pane_rect, progress);
        }
        self.error_ui(ui, cx, areas.tools);
    }
}

/// True when a setting is better than the recorded one: more certain to serve all, fewer retries under the limit, or a lower peak
/// without it.
fn helps(limited: &Row, own_limited: &Row, free: &Row, own_free: &Row) -> bool {
    let passes = |row: &Row| (!row.oom, !row.oom && row.is_verdict_certain());
    let (is, was) = (passes(limited), passes(own_limited));
    is > was || is == was && (limited.num_alloc_retries < own_limited.num_alloc_retries || lowers(free, own_free))
}

fn lowers(row: &Row, own: &Row) -> bool {
    !row.oom && row.peak_reserved_bytes < own.peak_reserved_bytes
}

/// The setting with the lowest peak without a limit, when it is lower than under the recorded setting, the first row.
fn lowest_peak(rows: &[&Row]) -> Option<(usize, String)> {
    let own = rows.first()?;
    let (at, least) =
        rows.iter().enumerate().filter(|(_, row)| lowers(row, own)).min_by_key(|(_, row)| row.peak_reserved_bytes)?;
    Some((at, format!("lowers the peak by {}", Bytes(own.peak_reserved_bytes - least.peak_reserved_bytes))))
}

impl WhatIfView {
    fn limit(&self) -> Option<u64> {
        self.limit.or_else(|| self.runs.own().map(|o| o.limit))
    }

    fn answer(&self, row: usize, limit: Option<u64>) -> Option<Arc<Answer>> {
        self.runs.answer(&self.settings.get(row)?.text, limit)
    }

    /// `3 of 12 settings replayed`. A setting counts when it was simulated with and without the limit.
    fn progress_text(&self) -> String {
        let is_done = |&row: &usize| self.answer(row, None).is_some() && self.limited(row).is_some();
        let done = (0..self.settings.len()).filter(is_done).count();
        format!("{done} of {} settings replayed", self.settings.len())
    }

    fn limited(&self, row: usize) -> Option<Arc<Answer>> {
        self.answer(row, Some(self.limit()?))
    }

    /// Which setting helps most, once all settings were simulated.
    fn advice(&self) -> Advice {
        // Where nothing failed and no limit was typed, the recorded peak stands in for the limit. No request fails for it.
        let is_limited = self.limit.is_some() || self.runs.own().is_some_and(|own| own.limit_from != LimitFrom::Peak);
        let all = |limit| (0..self.settings.len()).map(|i| self.answer(i, limit)).collect::<Option<Vec<_>>>();
        let (Some(free), Some(limited)) = (all(None), self.limit().and_then(|limit| all(Some(limit)))) else {
            return Advice::Waiting;
        };
        let [free, limited] = [&free, &limited].map(|answers| answers.iter().map(|a| &a.row).collect::<Vec<&Row>>());
        let found = match is_limited {
            true => best(&limited).filter(|(at, _)| helps(limited[*at], limited[0], free[*at], free[0])),
            false => lowest_peak(&free),
        };
        found.map_or(Advice::NoneHelps, |(at, why)| Advice::Best(at, why))
    }

    /// The best setting and the reason.
    fn best(&self) -> Option<(usize, String)> {
        match self.advice() {
            Advice::Best(at, why) => Some((at, why)),
            Advice::Waiting | Advice::NoneHelps => None,
        }
    }

    /// Removes a setting that the user added.
    fn remove(&mut self, row: usize) {
        if self.settings.get(row).is_some_and(|s| s.is_added) {
            self.settings.remove(row);
            if self.selected >= row {
                self.selected = self.selected.saturating_sub(1);
            }
        }
    }

    /// Opens the simulated run in its own tab.
    fn open_run(&self, cx: &ViewContext<'_>, row: usize, limit: Option<u64>) {
        if let Some(setting) = self.settings.get(row) {
            cx.actions.send(Action::OpenSimulation { conf: setting.text.clone(), limit });
        }
    }

    fn colour(&self, row: usize, t: &Tokens) -> Color32 {
        if row == 0 { t.text1 } else { self.settings.get(row).map_or(t.other, |s| t.slot(s.slot)) }
    }

    fn tools(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let rect = ui.max_rect();
        let line = rect.with_max_y(rect.top() + 40.0).shrink2(vec2(16.0, 8.0));
        let mut row = ui.new_child(UiBuilder::new().max_rect(line).layout(Layout::right_to_left(Align::Center)));
        row.spacing_mut().item_spacing.x = 8.0;
        let field = Field::new("Limit").hint("24 GiB").mono().width(110.0).height(24.0);
        let limit = field.invalid(self.limit_error.is_some()).show(&mut row, &mut self.limit_text);
        let is_wide = line.width() > 560.0;
        // The slider is right of the field, because the text of the menu left of it changes while the slider is dragged and would
        // move it.
        if line.width() > 860.0 {
            self.limit_slider(&mut row, cx);
        }
        if is_wide {
            self.limit_menu(&mut row, cx);
        }
        let mut left = ui.new_child(
            UiBuilder::new()
                .id_salt("new")
                .max_rect(line.with_max_x(row.min_rect().left() - 8.0))
                .layout(Layout::left_to_right(Align::Center)),
        );
        left.spacing_mut().item_spacing.x = 8.0;
        let push = Push::plain("Add setting").icon(Icon::Plus);
        let width = (left.available_width() - push.width(&left) - 8.0).clamp(80.0, 430.0);
        let field = Field::new(Words::of(cx.data.device()).conf).hint("max_split_size_mb:256,…").mono().width(width).height(24.0);
        let new = field.invalid(self.new_error.is_some()).show(&mut left, &mut self.new_text);
        let is_pushed = push.show(&mut left).clicked();
        let entered = ui.input(|i| i.key_pressed(Button::Enter));
        if limit.changed() {
            self.limit_error = None;
        }
        if limit.gained_focus() {
            // An error in the other field is outdated.
            self.new_error = None;
        }
        if limit.lost_focus() && entered {
            self.set_limit();
        } else if limit.lost_focus() {
            // Drops text that was typed but not applied, because it would contradict the figures.
            self.show_limit();
        }
        if new.changed() {
            self.new_error = None;
        }
        if is_pushed || (new.lost_focus() && entered) {
            self.add();
            // So that the user can correct the input or add another setting.
            new.request_focus();
        }
    }

    /// Shows the error over the table's header, so that nothing below moves.
    fn error_ui(&self, ui: &Ui, cx: &ViewContext<'_>, tools: Rect) {
        const ICON: f32 = 14.0;
        let Some(sentence) = self.new_error.as_ref().or(self.limit_error.as_ref()) else { return };
        let t = cx.tokens;
        let p = ui.painter();
        let left = tools.left() + 16.0;
        let wrap = (tools.width() - 32.0 - 24.0 - ICON).max(80.0);
        let galley = p.layout(sentence.clone(), Type::Body.font(), t.text1, wrap);
        let at = egui::pos2(left, tools.top() + 36.0);
        let size = vec2(galley.size().x + ICON + 24.0, galley.size().y + 10.0);
        let rect = Rect::from_min_size(at, size);
        told_at(ui, rect, "error", egui::Sense::hover(), egui::Role::Label, || sentence);
        p.rect(rect, 4, t.s3, egui::Stroke::new(1.0, t.line2), egui::StrokeKind::Inside);
        Icon::Warning.paint(p, egui::pos2(left + 8.0 + ICON / 2.0, at.y + 13.0), ICON, t.amber);
        p.galley(egui::pos2(left + ICON + 15.0, at.y + 5.0), galley, t.text1);
    }

    /// Applies the typed limit and simulates everything under it.
    fn set_limit(&mut self) {
        match Bytes::parse_limit(&self.limit_text) {
            Ok(Bytes(limit)) => self.choose_limit(limit),
            Err(error) => {
                self.show_limit();
                let sentence = side::sentence(&error.to_string());
                self.limit_error = Some(format!("{sentence} The limit stays {}.", self.limit_text));
            }
        }
    }

    fn show_limit(&mut self) {
        if let Some(limit) = self.limit() {
            self.limit_text = Bytes(limit).limit();
        }
    }

    fn add(&mut self) {
        self.new_text = settings_of(&self.new_text).to_owned();
        let text: String = self.new_text.chars().filter(|c| !c.is_whitespace()).collect();
        if text.is_empty() {
            self.new_error = Some("Type a setting first, such as max_split_size_mb:256.".to_owned());
            return;
        }
        // Parses the text as typed, because the error message gives positions in it.
        match AllocConf::parse(&self.new_text) {
            Err(error) => self.new_error = Some(format!("PyTorch would refuse this at {error}")),
            Ok(conf) => {
                let at = self.settings.iter().position(|s| s.text == text).unwrap_or_else(|| {
                    self.settings.push(Setting {
                        title: text.clone(),
                        text,
                        conf,
                        about: "a setting of your own",
                        is_plotted: true,
                        is_added: true,
                        slot: OTHER_SLOTS[self.settings.len() % OTHER_SLOTS.len()],
                    });
                    self.settings.len() - 1
                });
                self.settings[at].is_plotted = true;
                (self.selected, self.is_chosen) = (at, true);
                self.new_text.clear();
                self.new_error = None;
                self.runs.resume();
            }
        }
    }
}

/// The recorded setting first, then suggestions.
fn suggested(own: &AllocConf) -> Vec<Setting> {
    let text = own.to_string();
    let title = if text.is_empty() { "recorded setting (default)".to_owned() } else { format!("recorded setting ({text})") };
    let about = "what the recording was made with, replayed";
    let mut settings = vec![Setting { text, conf: own.clone(), title, about, is_plotted: true, is_added: false, slot: 0 }];
    for (text, about) in SUGGESTED {
        // A suggestion that does not parse is left out.
        let Ok(conf) = AllocConf::parse(text) else { continue };
        if conf == *own {
            continue;
        }
        let title = if text.is_empty() { "PyTorch's defaults".to_owned() } else { text.to_owned() };
        let plotted = PLOTTED.iter().find(|p| p.0 == text);
        let slot = plotted.map_or(OTHER_SLOTS[settings.len() % OTHER_SLOTS.len()], |p| p.1);
        settings.push(Setting {
            text: text.to_owned(),
            conf,
            title,
            about,
            is_plotted: plotted.is_some(),
            is_added: false,
            slot,
        });
    }
    if !settings.iter().skip(1).any(|s| s.is_plotted)
        && let Some(first) = settings.get_mut(1)
    {
        first.is_plotted = true;
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_setting_stands_first_and_once() {
        let own = AllocConf::parse("expandable_segments:True").expect("a setting");
        let s = suggested(&own);
        assert_eq!(s[0].conf, own);
        assert_eq!(s.iter().filter(|s| s.conf == own).count(), 1);
        assert_eq!(s.len(), SUGGESTED.len());
        assert!(s.iter().filter(|s| s.is_plotted).count() >= 2);
        let default = suggested(&AllocConf::default());
        assert_eq!(default[0].title, "recorded setting (default)");
        assert!(default.iter().skip(1).all(|s| !s.text.is_empty()));
    }

    #[test]
    fn limits_are_read_as_they_are_shown() {
        let read_limit = |text: &str| Bytes::parse_limit(text).map(|b| b.0).map_err(|e| e.to_string());
        for bytes in [3534u64 << 20, 24 << 30, (1086 << 20) + 4096] {
            let shown = Bytes(bytes).limit();
            let read = read_limit(&shown).unwrap_or(0);
            assert!(read.abs_diff(bytes) <= 1 << 13, "{shown}: {read}");
        }
        assert!(read_limit("0").is_err());
        assert!(read_limit("a lot").is_err());
        assert!(read_limit("60").is_err_and(|e| e.contains("60GiB")));
        assert_eq!(read_limit("60GB"), Ok(60_000_000_000));
    }
}
