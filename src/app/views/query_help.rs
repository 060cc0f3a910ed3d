//! Completions for queries, and a list of example queries, in the recording's own words.

use std::collections::HashSet;
use std::sync::Arc;

use egui::{Popup, Rect, Response, ScrollArea, Ui, vec2};

use super::ViewContext;
use super::query_field::QueryField;
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::pane::menu_below;
use crate::app::widgets::{Cut, label, row};
use vramscope_core::anatomy::steps::kind;
use vramscope_core::query::{Asked, Example, GRAMMAR, Query, Scope, Vocabulary, examples};
use vramscope_core::units::count;

const NAMES: usize = 2000;

/// The words of a recording, collected once.
#[derive(Default)]
pub struct QueryWords {
    /// Keyed by the roles and by the cursor at the time the list was last open, so that a moving cursor does not recount for a
    /// list that nobody sees.
    examples: Derived<(Option<Identity>, u32), Vec<Example>>,
    /// The cursor when the list was last open.
    counted_at: u32,
    /// Names of annotations without their numbers, each once.
    annotations: Derived<usize, Vec<String>>,
    /// Why a query matches nothing. The key has the cursor and the markers only when the answer depends on them.
    why: Derived<(Query, usize, Option<u32>, [Option<u32>; 2]), String>,
}

impl QueryWords {
    /// Shows a query field that completes this recording's words. Returns the text when it changed and parses. For the other
    /// parameters see [`QueryField::show`].
    pub fn show(
        &mut self,
        field: &mut QueryField,
        ui: &mut Ui,
        cx: &ViewContext<'_>,
        asked: (&str, &str, &str),
        in_force: Option<&str>,
    ) -> Option<String> {
        let names: Vec<&str> = (0..cx.data.names.len().min(NAMES)).map(|i| cx.data.names.text(i)).collect();
        let annotations = self.annotations(cx);
        let annotations: Vec<&str> = annotations.iter().map(String::as_str).collect();
        if Popup::is_any_open(ui.ctx()) {
            self.counted_at = cx.shared.cursor;
        }
        let examples = self.examples(cx);
        let steps = cx.data.known_steps().map_or(0, |s| s.len());
        let known = Vocabulary { stacks: &names, annotations: &annotations, steps, streams: cx.data.device().streams.len() };
        field.show(ui, asked, known, examples.as_deref().map(Vec::as_slice), in_force)
    }

    /// Names of annotations that can follow `during~`.
    fn annotations(&mut self, cx: &ViewContext<'_>) -> Arc<Vec<String>> {
        let data = Arc::clone(cx.data);
        let key = cx.data.device().annotations.len();
        let shown = self.annotations.get(cx.jobs, "names of annotations", &key, move |_| {
            let mut seen = HashSet::new();
            let stacks = &data.recording.stacks;
            let kinds = data.device().annotations.iter().map(|a| kind(stacks.text(a.name)));
            Some(kinds.filter(|k| seen.insert(*k)).take(NAMES).map(str::to_owned).collect())
        });
        shown.value.unwrap_or_default()
    }

    /// Why a query matches nothing; empty until known.
    pub fn why_none(&mut self, cx: &ViewContext<'_>, query: &Query, asked: Asked) -> String {
        let (data, query, roles) = (Arc::clone(cx.data), query.clone(), cx.roles.cloned());
        let (cursor, markers) = (Some(cx.shared.cursor), cx.shared.flags());
        let key = (
            query.clone(),
            data.device().events.len(),
            cursor.filter(|_| query.follows_cursor()),
            if query.follows_markers() { markers } else { [None; 2] },
        );
        let shown = self.why.get(cx.jobs, "why a query holds for nothing", &key, move |progress| {
            let scope = Scope { cursor, markers, ..data.scope(&query, roles.as_deref()) };
            query.why_none(&scope, asked, progress).ok().map(|sentences| sentences.join(" "))
        });
        shown.fresh().map_or_else(String::new, |said| said.as_str().to_owned())
    }

    fn examples(&mut self, cx: &ViewContext<'_>) -> Option<Arc<Vec<Example>>> {
        let roles = cx.roles.cloned();
        let key = (roles.as_ref().map(Identity::of), self.counted_at);
        let (data, cursor) = (Arc::clone(cx.data), Some(self.counted_at));
        let shown = self.examples.get(cx.jobs, "examples of queries", &key, move |progress| {
            let scope = Scope {
                roles: roles.as_deref(),
                steps: Some(data.steps()),
                cursor,
                ..Scope::new(&data.recording, data.device(), &data.tables)
            };
            examples(&scope, &data.names, progress).ok()
        });
        shown.value
    }
}

const ROW: f32 = 22.0;
const WIDTH: f32 = 720.0;
/// Left edge of the explanations, and right edge of the counts.
const ABOUT: f32 = 236.0;

/// Shows the list while its button is open. Returns the query that was clicked.
pub(super) fn show(button: &Response, examples: Option<&[Example]>) -> Option<String> {
    let mut clicked = None;
    menu_below(button, WIDTH, |ui| {
        let t = Tokens::of(ui);
        let inner = row::line(ui, ROW).shrink2(vec2(10.0, 0.0));
        let columns = |rect: Rect| (rect.cell(0.0, ABOUT - 10.0), rect.inset(ABOUT, 0.0, 76.0, 0.0));
        let (query, about) = columns(inner);
        label::text_in(ui.painter(), query, "click to ask", Type::Column, t.text3);
        label::text_in(ui.painter(), about, "terms side by side must all hold", Type::Column, t.text3);
        label::text_in_right(ui.painter(), inner, "allocations", Type::Column, t.text3);
        let Some(examples) = examples else {
            label::paragraph(ui, "Looking for examples in this recording…", Type::Body, t.text2);
            return;
        };
        ScrollArea::vertical().max_height(ROW * 20.5).show(ui, |ui| {
            for example in examples {
                let name = || format!("{}: {}", example.query, example.about);
                let (rect, response) = row::clicked(ui, ROW, egui::Role::MenuItem, name);
                if response.hovered() || response.has_focus() {
                    ui.painter().rect_filled(rect, 0, t.s4);
                }
                let inner = rect.shrink2(vec2(10.0, 0.0));
                let (query, about) = columns(inner);
                label::text_in(ui.painter(), query, &example.query, Type::Mono, t.text1);
                label::text_in(ui.painter(), about, example.about, Type::Body, t.text2);
                if let Some(holds) = example.holds {
                    let ink = if holds == 0 { t.text3 } else { t.text2 };
                    label::figure(ui.painter(), inner, &count(holds as u64), ink);
                }
                if response.clicked() {
                    clicked = Some(example.query.clone());
                    ui.close();
                }
            }
            for (written, meaning) in GRAMMAR {
                let (rect, _) = row::told(ui, ROW, egui::Role::Label, || format!("{written}: {meaning}"));
                let (query, about) = columns(rect.shrink2(vec2(10.0, 0.0)));
                label::text_in(ui.painter(), query, written, Type::Mono, t.text3);
                label::text_in(ui.painter(), about, meaning, Type::Body, t.text3);
            }
        });
    });
    clicked
}
