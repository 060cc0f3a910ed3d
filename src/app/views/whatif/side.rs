//! The selected setting as text and figures, and how far the model can be trusted here.

use egui::{ScrollArea, Ui, pos2, vec2};

use super::ViewContext;
use super::model::{Advice, WhatIfView, outcome, outcome_span};
use super::runs::{LimitFrom, Own};
use super::table::{OVER_LIMIT, against};
use crate::app::state::Action;
use crate::app::theme::Type;
use crate::app::widgets::{CodeWell, Icon, PaneHeader, Push, label, link_with, pane, row};
use vramscope_core::inference::whatif::Answer;
use vramscope_core::inference::{Assumption, CapFrom};
use vramscope_core::tables::Quantity;
use vramscope_core::units::{Bytes, SizeColumn, compared, count};

impl WhatIfView {
    pub(super) fn side(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        PaneHeader::new("Selected setting").show(ui, |_| {});
        ScrollArea::vertical().id_salt("selected setting").auto_shrink(false).show(ui, |ui| self.side_body(ui, cx));
    }

    fn side_body(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let t = cx.tokens;
        let row = self.selected.min(self.settings.len().saturating_sub(1));
        let Some(setting) = self.settings.get(row) else { return };
        let (free, limited) = (self.answer(row, None), self.limited(row));
        let (own, own_limited) = (self.answer(0, None), self.limited(0));
        let advice = self.advice();
        let best = match &advice {
            Advice::Best(at, why) if *at == row => Some(why),
            _ => None,
        };
        ui.add_space(12.0);
        pane::padded(ui, |ui| {
            label::paragraph(ui, &setting.title, Type::MonoStrong, t.text1);
            ui.add_space(4.0);
            match (&free, &own) {
                (Some(_), Some(_)) if is_rescue(limited.as_deref(), own_limited.as_deref()) => {
                    let is_sure = limited.as_deref().is_some_and(|a| a.row.is_verdict_certain());
                    label::paragraph(ui, if is_sure { "All served" } else { "May serve all" }, Type::Display, t.text1);
                    let failed = own_limited.as_deref().map_or(String::new(), |o| outcome(o).0);
                    let text =
                        format!("under {}, where the recorded setting {failed}.", Bytes(self.limit().unwrap_or(0)).limit());
                    label::paragraph(ui, &text, Type::Body, t.text2);
                    // The sentence on the best setting already says how far the requests were served.
                    let end = limited.as_deref().and_then(|a| a.row.ends_at_failure).filter(|_| best.is_none());
                    if let Some(end) = end {
                        let text = format!("Served {}; {}.", end.reach(), end.warning());
                        label::paragraph(ui, &text, Type::Body, t.text2);
                    }
                    if let Some(span) = limited.as_deref().filter(|_| !is_sure).and_then(outcome_span) {
                        label::paragraph(ui, &sentence(&span), Type::Body, t.text2);
                    }
                }
                (Some(_), Some(_)) if limited.as_deref().is_some_and(|a| a.row.oom) => {
                    let failed = limited.as_deref().map_or(String::new(), |a| outcome(a).0);
                    label::paragraph(ui, sentence(&failed).trim_end_matches('.'), Type::Display, t.red);
                    let under = limited.as_deref().and_then(|a| a.row.limit_bytes).or(self.limit()).unwrap_or(0);
                    let own = if Some(under) == self.limit() { "" } else { ", which the setting itself allows" };
                    let text = format!("under {}{own}.", Bytes(under).limit());
                    label::paragraph(ui, &text, Type::Body, t.text2);
                }
                (Some(a), Some(_)) => headline(ui, cx, a),
                _ => {
                    let words = if self.runs.is_stopped() { "Not run: stopped." } else { "Running…" };
                    label::paragraph(ui, words, Type::Body, t.text3);
                }
            }
            ui.add_space(4.0);
            label::paragraph(ui, &sentence(setting.about), Type::Body, t.text2);
        });
        let verdict = match (best, &advice) {
            (Some(why), _) => Some((Icon::Check, sentence(&format!("best: {why}")))),
            (None, Advice::NoneHelps) => {
                let all_fail = (0..self.settings.len()).all(|i| self.limited(i).is_some_and(|a| a.row.oom));
                let why = match all_fail {
                    true => "a request fails under this limit with each of them",
                    false => "none serves more requests, and none lowers the peak",
                };
                Some((Icon::Cross, format!("No setting helps here: {why}.")))
            }
            _ => None,
        };
        if let Some((icon, words)) = verdict {
            ui.add_space(6.0);
            pane::padded(ui, |ui| marked(ui, icon, &words, t.text1));
        }
        if let (Some(a), Some(known)) = (&free, self.runs.own()) {
            let peaks = [
                ("peak reserved", Quantity::Reserved, a.row.peak_reserved_bytes),
                ("peak allocated", Quantity::Allocated, a.row.peak_allocated_bytes),
                ("peak requested", Quantity::Requested, a.row.peak_requested_bytes),
            ]
            .map(|(name, of, replayed)| (name, cx.data.tables.curves.peak(of).0, replayed));
            let size = SizeColumn::of(peaks.iter().flat_map(|p| [p.1, p.2]));
            let [reserved, allocated, requested] = peaks.map(|(name, was, is)| (name, size.figure(was), size.figure(is)));
            let figures =
                [reserved, allocated, requested, ("device calls", count(known.device_calls), count(a.row.num_device_alloc))];
            compare(ui, cx, [&size.head("No limit"), "recorded", "replayed"], &figures);
        }
        if let (Some(a), Some(own), Some(limit)) = (&limited, &own_limited, self.limit()) {
            let of = |name, of: fn(&Answer) -> String| (name, if row == 0 { String::new() } else { of(own) }, of(a));
            let figures = [
                of("outcome", |a| {
                    let words = match (a.row.oom, !a.row.is_verdict_certain()) {
                        (true, false) => "fails",
                        (true, true) => "may fail",
                        (false, false) => "all served",
                        (false, true) => "may serve all",
                    };
                    words.to_owned()
                }),
                of("requests served", |a| count(a.row.oom_request.unwrap_or(a.row.requests))),
                of("peak reserved", |a| Bytes(a.row.peak_reserved_bytes).limit()),
                of("retries", |a| count(a.row.num_alloc_retries)),
                of("device calls", |a| count(a.row.num_device_alloc)),
            ];
            let heads = if row == 0 { ["", "recorded setting"] } else { ["recorded setting", "this one"] };
            compare(ui, cx, [&format!("Limit {}", Bytes(limit).limit()), heads[0], heads[1]], &figures);
            if a.row.over_limit() > 0 {
                ui.add_space(6.0);
                pane::padded(ui, |ui| label::paragraph(ui, OVER_LIMIT, Type::Body, t.text2));
            }
        }
        self.needs_ui(ui, cx);
        let Some(setting) = self.settings.get(row) else { return };
        if !setting.text.is_empty() {
            pane::section(ui, "Use it", "", false);
            let line = format!("{}={}", cx.words().conf, setting.text);
            pane::padded(ui, |ui| CodeWell::new(&line).copy(true).show(ui));
        } else {
            pane::section(ui, "Use it", "", false);
            pane::padded(ui, |ui| {
                label::paragraph(ui, &cx.words().say("Leave PYTORCH_CUDA_ALLOC_CONF unset."), Type::Body, t.text2)
            });
        }
        ui.add_space(8.0);
        pane::padded(ui, |ui| {
            ui.horizontal(|ui| {
                ui.spacing_mut().item_spacing.x = 8.0;
                if Push::primary("Open as recording")
                    .show(ui)
                    .on_hover_text("The run under the limit, in a tab of its own")
                    .clicked()
                {
                    self.open_run(cx, row, self.limit());
                }
                if Push::outlined("Without a limit")
                    .show(ui)
                    .on_hover_text("The run without a limit, in a tab of its own")
                    .clicked()
                {
                    self.open_run(cx, row, None);
                }
            });
        });
        self.trust(ui, cx);
        assumed(ui, cx, free.as_deref(), limited.as_deref(), self.limit());
        ui.add_space(16.0);
    }

    fn trust(&self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let t = cx.tokens;
        let Some(own) = self.runs.own() else { return };
        pane::section(ui, "Can I trust it?", "", false);
        pane::padded(ui, |ui| {
            let events = count(cx.data.device().events.len() as u64);
            let (icon, text) = match &own.differs {
                None if own.breaks_off => (
                    Icon::Warning,
                    "The model does the same as the events that could be read. The recording breaks off there, so neither its end nor what came after can be compared: take the figures as estimates."
                        .to_owned(),
                ),
                None => (
                    Icon::Check,
                    format!(
                        "Replayed under its own setting by the rules of PyTorch {}, this recording comes out the same in all {events} events.",
                        own.rules
                    ),
                ),
                Some(d) => {
                    (Icon::Cross, format!("The model does not reproduce this recording: {d}. Take the figures as estimates."))
                }
            };
            marked(ui, icon, &text, t.text2);
            if let Some(d) = &own.differs
                && (d.event as usize) < cx.data.device().events.len()
                && link_with(ui, "Go to that event", Type::Body, None).clicked()
            {
                cx.actions.send(Action::GoTo(d.event));
            }
            ui.add_space(4.0);
            marked(ui, Icon::Check, &limit_words(&own, self.limit(), cx.data.device().capacity), t.text2);
        });
    }
}

/// Where the active limit comes from. Nothing is said about the recording's own limit while another one is active.
fn limit_words(own: &Own, limit: Option<u64>, capacity: Option<u64>) -> String {
    if let Some(limit) = limit.filter(|&l| l != own.limit) {
        if let Some(all) = capacity.filter(|&all| all < limit) {
            return format!(
                "You chose a limit of {}. The device has only {}, so this is about a larger card.",
                Bytes(limit).limit(),
                Bytes(all).limit()
            );
        }
        return match own.limit_from {
            LimitFrom::Known(range) if limit > range.most => {
                format!("You chose a limit of {}. The recording's own was lower: {range}.", Bytes(limit).limit())
            }
            _ => format!("You chose a limit of {}.", Bytes(limit).limit()),
        };
    }
    match own.limit_from {
        LimitFrom::Known(range) => match range.from {
            CapFrom::Stated => "The recording names its limit.".to_owned(),
            CapFrom::Fraction => format!("The recording names its share of the device: {range}."),
            CapFrom::Device if range.is_known() => {
                format!("The device itself was full when a request failed: {range} is all this process could have had.")
            }
            _ if range.is_known() => format!("Limit estimated from the failed requests: {range}."),
            _ => format!(
                "Limit estimated from the failed requests: {range}. {} is used here. Results that another limit in this range would change are marked.",
                Bytes(own.limit).limit()
            ),
        },
        LimitFrom::Peak => "No request failed, so the limit is unknown. The recorded peak stands in for it.".to_owned(),
    }
}

/// True when the setting serves requests that fail under the recorded one.
fn is_rescue(limited: Option<&Answer>, own: Option<&Answer>) -> bool {
    limited.is_some_and(|a| !a.row.oom) && own.is_some_and(|o| o.row.oom)
}

/// The large figure: the peak without a limit, compared with the recorded peak.
fn headline(ui: &mut Ui, cx: &ViewContext<'_>, a: &Answer) {
    let t = cx.tokens;
    let peak = |q| cx.data.tables.curves.peak(q).0;
    let (value, recorded) = (a.row.peak_reserved_bytes, peak(Quantity::Reserved));
    if a.row.oom {
        label::paragraph(ui, &outcome(a).0, Type::Display, t.red);
        let why = match a.row.limit_bytes {
            Some(share) => format!("Even without another limit: the setting itself allows {}.", Bytes(share)),
            None => "Even without a limit: the device itself is too small.".to_owned(),
        };
        label::paragraph(ui, &why, Type::Body, t.text2);
        return;
    }
    let (figure, text) = if value == recorded {
        (Bytes(value).to_string(), "peak reserved, as recorded".to_owned())
    } else {
        let percent = (value.abs_diff(recorded) as f64 / recorded.max(1) as f64 * 100.0).round();
        (
            against(value, recorded, |n| Bytes(n).to_string()),
            format!("peak reserved, {percent:.0} % {}", if value < recorded { "less" } else { "more" }),
        )
    };
    let (rect, _) = row::told(ui, 28.0, egui::Role::Label, || format!("{figure} {text}"));
    let p = ui.painter();
    let covered = label::text_in(p, rect, &figure, Type::Display, t.text1);
    let room = egui::Rect::from_min_max(pos2(covered.right() + 8.0, rect.top() + 4.0), rect.max);
    label::text_in(p, room, &text, Type::Body, t.text2);
    let beyond = value.saturating_sub(a.row.peak_allocated_bytes);
    let was = recorded.saturating_sub(peak(Quantity::Allocated));
    ui.add_space(4.0);
    let gap = if beyond == was {
        format!(
            "At the peak {} more is reserved than was ever allocated. Without fragmentation it would not be needed.",
            Bytes(beyond)
        )
    } else {
        let verb = if beyond < was { "falls" } else { "grows" };
        let [was, beyond] = compared([was, beyond]);
        format!("The gap between the peaks of reserved and allocated {verb} from {was} to {beyond}.")
    };
    label::paragraph(ui, &gap, Type::Body, t.text2);
}

/// A small table of figures in two columns.
fn compare(ui: &mut Ui, cx: &ViewContext<'_>, heads: [&str; 3], figures: &[(&str, String, String)]) {
    let t = cx.tokens;
    ui.add_space(10.0);
    pane::rule(ui);
    ui.add_space(10.0);
    let mut line = |name: &str, left: &str, right: &str, kind: Type, ink: [egui::Color32; 3]| {
        let (rect, _) = row::told(ui, 20.0, egui::Role::Label, || format!("{name}: {left} {right}"));
        let inner = rect.shrink2(vec2(16.0, 0.0));
        let p = ui.painter();
        label::text_in_right(p, inner, right, kind, ink[2]);
        let middle = inner.with_max_x(inner.right() - 106.0);
        if !left.is_empty() {
            label::text_in_right(p, middle, left, kind, ink[1]);
        }
        let name_room = inner.with_max_x(middle.right() - 64.0);
        let name_kind = if kind == Type::Mono { Type::Body } else { Type::Caption };
        label::text_in(p, name_room, name, name_kind, ink[0]);
    };
    line(heads[0], heads[1], heads[2], Type::Caption, [t.text3; 3]);
    for (name, left, right) in figures {
        let ink = |text: &str, ink| if text == "fails" { t.red } else { ink };
        line(name, left, right, Type::Mono, [t.text2, ink(left, t.text3), ink(right, t.text1)]);
    }
}

/// Which of a setting's two runs an assumption applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Both,
    NoLimit,
    Limit,
}

/// The assumptions of both runs, each with the run it applies to.
fn attributed<'a>(free: &'a [Assumption], limited: &'a [Assumption]) -> Vec<(Of, &'a Assumption)> {
    let only = |of, mine: &'a [Assumption], other: &'a [Assumption]| {
        mine.iter().filter(move |a| !other.contains(a)).map(move |a| (of, a))
    };
    let both = free.iter().filter(|a| limited.contains(a)).map(|a| (Of::Both, a));
    both.chain(only(Of::NoLimit, free, limited)).chain(only(Of::Limit, limited, free)).collect()
}

/// The assumptions, and what no simulation can know.
fn assumed(ui: &mut Ui, cx: &ViewContext<'_>, free: Option<&Answer>, limited: Option<&Answer>, limit: Option<u64>) {
    let t = cx.tokens;
    let of = |a: Option<&'_ Answer>| a.map_or_else(Vec::new, |a| a.assumptions.clone());
    let (free, limited) = (of(free), of(limited));
    let told = attributed(&free, &limited);
    if !told.is_empty() {
        pane::section(ui, "Assumed", "", false);
        pane::padded(ui, |ui| {
            let mut last = Of::Both;
            for (run, assumption) in told {
                if run != last {
                    let head = match (run, limit) {
                        (Of::Both, _) => "Served both ways:".to_owned(),
                        (Of::NoLimit, _) => "Served without a limit:".to_owned(),
                        (Of::Limit, limit) => format!("Served under {}:", Bytes(limit.unwrap_or(0)).limit()),
                    };
                    label::paragraph(ui, &head, Type::Caption, t.text3);
                    last = run;
                }
                label::paragraph(ui, &sentence(&assumption.to_string()), Type::Body, t.text2);
                ui.add_space(4.0);
            }
        });
    }
    pane::section(ui, "What a replay cannot know", "", false);
    pane::padded(ui, |ui| {
        let text = "Times do not change with the setting. Memory outside PyTorch (context, NCCL, cuBLAS) is not replayed. Each retry at the limit costs a device synchronisation.";
        label::paragraph(ui, text, Type::Body, t.text2);
    });
}

fn marked(ui: &mut Ui, icon: Icon, text: &str, ink: egui::Color32) {
    let left = ui.cursor().min;
    icon.paint(ui.painter(), pos2(left.x + 6.0, left.y + 8.0), 12.0, ink);
    ui.horizontal(|ui| {
        ui.add_space(18.0);
        ui.vertical(|ui| label::paragraph(ui, text, Type::Body, ink));
    });
}

/// Capitalises the first letter and adds a full stop.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    let stop = if text.ends_with('.') { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assumption_is_said_of_the_run_it_is_about() {
        let went = Assumption::WentOnDifferently { event: 176 };
        let (free, limited) = ([Assumption::EndIsLater, went.clone()], [Assumption::EndIsLater]);
        let told = attributed(&free, &limited);
        assert_eq!(told, [(Of::Both, &Assumption::EndIsLater), (Of::NoLimit, &went)]);
        assert_eq!(attributed(&[], &limited), [(Of::Limit, &Assumption::EndIsLater)]);
    }

    #[test]
    fn phrases_become_sentences() {
        assert_eq!(sentence("segments grow in place"), "Segments grow in place.");
        assert_eq!(sentence("Done."), "Done.");
        assert_eq!(sentence(""), ".");
    }
}
