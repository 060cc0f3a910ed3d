//! Compare: two instants, two recordings, two ranks, or a recording and a simulation of it, by stack, role and block.

mod curves;
mod layout;
mod side;
mod sources;
mod table;

use std::sync::Arc;

use egui::{Rect, Ui};

use super::{View, ViewContext, ViewInfo};
use crate::app::data::compare::{Compared, Outcome, Suggestion, name_of, suggest, title_beside};
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Action, Source, ViewKind};
use crate::app::widgets::{Cut, Push, Sort, button, pane};
use curves::Align;
use layout::Order;

pub const INFO: ViewInfo = ViewInfo {
    kind: ViewKind::Compare,
    legend: &[
        ("A, B", "choose them in the header, drag their flags in the timeline, or press Shift A and Shift B"),
        ("change", "whole blocks in use at B less those at A, by the place that allocates and your line that calls it"),
        ("two colours", "a line that allocates several kinds of memory: the two largest; rest on a row for all of them"),
        ("which blocks", "by identity: outlined freed since A, filled born since A, grey alive at both"),
        ("curves", "in use at A's side (grey) and B's side, with both steps, or both recordings, laid over each other"),
        ("click", "select the stack in all views; it is outlined in the flame graph"),
        ("header", "sort; click again to reverse the order"),
    ],
    create: || Box::new(CompareView::default()),
};

#[derive(Default)]
struct CompareView {
    /// The view proposes a pair once; after that the user decides.
    has_proposed: bool,
    /// The proposed pair, as long as nothing else was chosen.
    proposed: Option<Suggestion>,
    /// 0: stacks. 1: curves.
    show: usize,
    /// 0: rows that changed, and all others from 1 MiB on. 1: all rows.
    least: usize,
    sort: Sort<Order>,
    align: Option<Align>,
    /// Names of annotations that both sides have, keyed by the comparison.
    kinds: Derived<Identity, Vec<String>>,
    curves: Derived<curves::Key, curves::Lines>,
    dialog: sources::Dialog,
}

impl View for CompareView {
    fn header_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let steps = cx.comparing.steps(&cx.here());
        let outcome = cx.comparing.get(&cx.here());
        if self.show == 0 {
            button::selector(ui, "list", &mut self.least, &["changed or over 1 MiB", "all"]);
        } else {
            let kinds = self.kinds(cx, &outcome);
            let is_one = matches!(&outcome, Outcome::Ready(c, _) if curves::is_one(c));
            let choices = Align::choices(is_one, &kinds);
            let chosen = button::select(ui, "align", &self.align_of(&outcome), &choices, Align::name);
            self.align = chosen.or(self.align.take());
        }
        button::selector(ui, "show", &mut self.show, &["stacks", "curves"]);
        for which in [1, 0] {
            let called = |event| {
                title_beside(&cx.shared.compared[1 - which], cx.data, event).unwrap_or_else(|| name_of(steps.as_deref(), event))
            };
            let title = match (&cx.shared.compared[which], &outcome) {
                (Source::Marker, _) => cx.shared.markers[which].map_or_else(|| "not set".to_owned(), called),
                (Source::At(event), _) => called(*event),
                (_, Outcome::Ready(c, _)) => c.sides[which].title.clone(),
                _ => "…".to_owned(),
            };
            sources::selector(ui, cx, &mut self.dialog, which, &title);
        }
    }

    fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        self.dialog.poll(cx);
        let pane_rect = ui.max_rect();
        let compared = match cx.comparing.get(&cx.here()) {
            Outcome::NotChosen => {
                self.propose(ui, cx);
                return;
            }
            Outcome::Failed(sentence) => {
                return pane::empty_state(ui, &sentence, None);
            }
            Outcome::Loading(share) => {
                return pane::progress_line(ui, pane_rect, share);
            }
            Outcome::Ready(compared, is_fresh) => {
                self.has_proposed = true;
                if !is_fresh {
                    pane::progress_line(ui, pane_rect, None);
                }
                compared
            }
        };
        let (left, right) = layout::areas(pane_rect);
        pane::inside(ui, left, "summary", |ui| side::show(ui, cx, &compared, self.why(cx)));
        let between = if left.right() < right.left() {
            left.across(left.right(), right.left())
        } else {
            Rect::from_min_max(left.left_bottom(), right.right_top())
        };
        ui.painter().rect_filled(between, 0, cx.tokens.line);
        pane::inside(ui, right, "changes", |ui| {
            if self.show == 0 { self.table(ui, cx, &compared) } else { self.curves_ui(ui, cx, &compared) }
        });
    }
}

impl CompareView {
    /// How the curves are aligned when the user has not chosen: by step for one recording with steps, otherwise from the start.
    fn align_of(&self, outcome: &Outcome) -> Align {
        let is_one = matches!(outcome, Outcome::Ready(c, _) if curves::is_one(c));
        match &self.align {
            Some(Align::Steps | Align::Start | Align::Time) | None if is_one => Align::Step,
            Some(chosen) => chosen.clone(),
            None => Align::Start,
        }
    }

    fn kinds(&mut self, cx: &ViewContext<'_>, outcome: &Outcome) -> Arc<Vec<String>> {
        let Outcome::Ready(compared, _) = outcome else { return Arc::default() };
        let of = Arc::clone(compared);
        let key = Identity::of(compared);
        self.kinds.get(cx.jobs, "annotations of both sides", &key, move |_| Some(curves::kinds(&of))).value.unwrap_or_default()
    }

    /// Proposes a pair worth looking at once. Afterwards shows how to choose A and B.
    fn propose(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let events = cx.data.device().events.len() as u32;
        if events == 0 && !cx.data.device().samples.is_empty() {
            let sentence = "A watch has samples and no blocks. Choose a recording for A above to compare two of them.";
            return pane::empty_state(ui, sentence, None);
        }
        if events == 0 {
            return cx.without_history(ui, "This recording has only the state at its end. Choose another recording for A above to compare it with, or record the history:");
        }
        let Some(table) = cx.comparing.steps(&cx.here()) else {
            return pane::progress_line(ui, ui.max_rect(), None);
        };
        let Some(pair) = suggest(&table, events, cx.data.last_oom(), cx.data.tables.curves.peak_event()) else {
            let sentence = "This recording has a single event, so it has no two instants. Choose another recording for A above.";
            return pane::empty_state(ui, sentence, None);
        };
        let is_untouched = cx.shared.markers == [None, None] && cx.shared.compared == [Source::Marker, Source::Marker];
        let mut is_chosen = !self.has_proposed && is_untouched;
        if !is_chosen {
            let sentence = "Nothing is compared yet. Choose A and B above, press Shift A and Shift B at the cursor, or drag their flags \
                            in the timeline.";
            pane::empty_state(ui, sentence, None);
            ui.add_space(12.0);
            let name = |e| name_of(Some(&table), e);
            let button = ui.horizontal(|ui| {
                ui.add_space(((ui.available_width() - 300.0) / 2.0).max(16.0));
                Push::plain(&format!("A at {}, B at {}", name(pair.a), name(pair.b))).show(ui)
            });
            is_chosen = button.inner.clicked();
        }
        if is_chosen {
            // Markers belong to the user, so a proposed pair sets none.
            cx.actions.send(Action::Compare(0, Source::At(pair.a)));
            cx.actions.send(Action::Compare(1, Source::At(pair.b)));
            (self.has_proposed, self.proposed) = (true, Some(pair));
        }
    }

    /// Why A and B were chosen, while they are still the proposed pair.
    fn why(&self, cx: &ViewContext<'_>) -> Option<&str> {
        let p = self.proposed.as_ref()?;
        (cx.shared.compared == [Source::At(p.a), Source::At(p.b)]).then_some(p.why.as_str())
    }

    fn curves_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, compared: &Arc<Compared>) {
        let align = self.align_of(&Outcome::Ready(Arc::clone(compared), true));
        curves::show(ui, cx, compared, &align, &mut self.curves);
    }
}
