//! The right column: the chosen size by role, and the code of the chosen change.

use egui::{ScrollArea, Sense, Ui, vec2};

use super::ViewContext;
use super::layout::slope;
use super::model::PlanView;
use super::scene::{Kind, Outcome, Row, Scene, outcome};
use crate::app::data::colours::role_paint;
use crate::app::state::{Action, PlannedRun};
use crate::app::theme::{Tokens, Type};
use crate::app::views::block_name::paint_role;
use crate::app::widgets::{
    Batch, CodeWell, Column, Cut, PaneHeader, Push, Swatch, Table, Width, label, padded, pane, row, section, segmented,
};
use vramscope_core::anatomy::Role;
use vramscope_core::plan::Predicted;
use vramscope_core::plan::names::is_batch;
use vramscope_core::units::{Bytes, MEBIBYTE, SizeColumn, capital, counted};

const LIBRARIES: [&str; 3] = ["PyTorch", "HF Trainer", "Lightning"];

/// The roles that hold memory in any of these predictions, in stacking order: those that do not grow come first.
pub(super) fn roles_of<'a>(all: impl Iterator<Item = &'a Predicted>) -> Vec<Role> {
    let mut has = [false; Role::ALL.len()];
    for predicted in all {
        for (i, role) in Role::ALL.iter().enumerate() {
            has[i] |= predicted.by_role.get(role.name()).is_some_and(|bytes| *bytes > 0);
        }
    }
    const ORDER: [Role; 11] = [
        Role::Weights,
        Role::OptimizerState,
        Role::Gradients,
        Role::Buckets,
        Role::Workspaces,
        Role::Unknown,
        Role::KvCache,
        Role::AutocastCopies,
        Role::Inputs,
        Role::Activations,
        Role::Temporaries,
    ];
    ORDER.into_iter().filter(|role| has[role.index()]).collect()
}

impl PlanView {
    /// Opens the planned run at the chosen size, with the changes of the selected row.
    pub(super) fn open_run(&self, cx: &ViewContext<'_>, scene: &Scene) {
        let (changes, conf) = self.chosen_row(scene).and_then(|row| row.kind.run()).unwrap_or(("", &scene.own));
        cx.actions.send(Action::OpenPlanned(Box::new(PlannedRun {
            plan: std::sync::Arc::clone(&scene.plan),
            title: match changes {
                "" if conf != scene.own => format!("Plan: {}, {conf}", scene.named(scene.chosen)),
                "" => format!("Plan: {}", scene.named(scene.chosen)),
                changes => format!("Plan: {}, {}", scene.named(scene.chosen), changes.replace('+', " and ").replace('_', " ")),
            },
            size: scene.size(scene.chosen),
            changes: changes.to_owned(),
            setting: super::runs::setting(&scene.plan, conf, Some(scene.limit)),
        })));
    }

    /// The row that the user chose, unless it is the recorded program itself.
    pub(super) fn chosen_row<'a>(&self, scene: &'a Scene) -> Option<&'a Row> {
        scene.rows.get(scene.selected).filter(|row| self.row.is_some() && row.kind.run().is_some())
    }

    pub(super) fn open_button(&self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        let with = self.chosen_row(scene).map_or(String::new(), |row| format!(" with {}", row.title));
        let about = format!(
            "Timeline, segment map and autopsy of {}{with}. This run was never made, and is marked as predicted.",
            scene.named(scene.chosen)
        );
        if Push::plain("Open as recording").small().show(ui).on_hover_text(about).clicked() {
            self.open_run(cx, scene);
        }
    }

    /// Figures at the chosen size, and its roles.
    pub(super) fn roles(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        let t = cx.tokens;
        let Some(point) = &scene.at_row else {
            ui.add_space(14.0);
            pane::note(ui, "Running this size on the model\u{2026}", Type::Body, t.text3);
            return;
        };
        let shown = &point.capped;
        ui.add_space(10.0);
        padded(ui, |ui| {
            ui.horizontal(|ui| {
                ui.spacing_mut().item_spacing.x = 8.0;
                ui.label(Type::Display.text(Bytes(shown.peak_reserved_bytes).to_string()).color(t.text1));
                let left = scene.limit.saturating_sub(shown.peak_reserved_bytes);
                let words = match outcome(shown) {
                    Outcome::Fits => format!("reserved, {} left", Bytes(left)),
                    Outcome::May if shown.oom => "may fit".to_owned(),
                    Outcome::May => "reserved; it may fit".to_owned(),
                    _ => "does not fit".to_owned(),
                };
                let room = ui.available_width();
                let (rect, _) = ui.allocate_exact_size(vec2(room, 28.0), Sense::hover());
                let place = rect.with_min_y(rect.top() + 6.0);
                let ink = if outcome(shown) == Outcome::Fails { t.red } else { t.text2 };
                label::text_in(ui.painter(), place, &words, Type::Body, ink);
            });
            if let Some(row) = self.chosen_row(scene) {
                label::paragraph(ui, &format!("With {}.", row.title), Type::Body, t.text2);
            }
            for sentence in notes(scene, point) {
                label::paragraph(ui, &sentence, Type::Body, t.text2);
            }
        });
        section(ui, "By role, at the peak", "", false);
        self.role = self.role_list(ui, cx, scene, shown);
    }

    /// Draws the bar and the list. Returns the role under the pointer.
    fn role_list(&self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene, shown: &Predicted) -> Option<&'static str> {
        let t = cx.tokens;
        let roles = roles_of(std::iter::once(shown));
        let bytes = |role: &Role| shown.by_role.get(role.name()).copied().unwrap_or(0);
        let free = shown.peak_reserved_bytes.saturating_sub(shown.peak_allocated_bytes);
        let (bar, response) = row::told(ui, 14.0, egui::Role::Image, || "Memory by role");
        let bar = bar.shrink2(vec2(16.0, 0.0));
        let all = shown.peak_reserved_bytes.max(1) as f32;
        let mut batch = Batch::new(ui.painter()).hatch_origin(bar.min);
        let mut x = bar.left();
        let mut hovered = None;
        let dim =
            |role: &Role, ink| if self.role.is_some_and(|r| r != role.name()) { Tokens::over(ink, t.s1, 0.25) } else { ink };
        for role in &roles {
            let to = x + bytes(role) as f32 / all * bar.width();
            let part = bar.across(x, (to - 0.8).max(x));
            batch.rect(part, dim(role, role_paint(*role).colour(t)));
            if response.hover_pos().is_some_and(|p| part.contains(p)) {
                hovered = Some(role.name());
            }
            x = to;
        }
        batch.hole(bar.with_min_x(x), egui::Color32::TRANSPARENT, t.hatch, t.line2);
        batch.paint(ui.painter());
        ui.add_space(6.0);
        let mut rows: Vec<Option<Role>> = roles.iter().copied().map(Some).chain([None]).collect();
        let of = |role: &Option<Role>| role.map_or(free, |role| bytes(&role));
        rows.sort_by_key(|role| (role.is_none(), std::cmp::Reverse(of(role))));
        // The unit of the figure above them.
        let unit = SizeColumn::narrow(rows.iter().map(of).chain([shown.peak_reserved_bytes]).collect::<Vec<_>>());
        // How roles grow is known of the program as it was recorded.
        let grows = scene.knows && self.chosen_row(scene).is_none();
        let per = if grows { per_one(&scene.name) } else { String::new() };
        let text = |role: &Option<Role>| role.map_or("free inside reserved", |role| role.text());
        let columns: Vec<Column<'_, Option<Role>>> = vec![
            Column::text("", Width::Share(1.0, 60.0), |c, role: &Option<Role>| {
                let swatch = role.map_or(Swatch::Free, |r| Swatch::Fill(dim(&r, role_paint(r).colour(t))));
                let c = c.swatch(swatch);
                match role {
                    Some(role) => paint_role(c.p, t, *role, scene.plan.is_probable(*role), c.rect, t.text1),
                    // Free memory does not grow with the size, so its name may use that column's room.
                    None => _ = label::text_in(c.p, c.rect.with_max_x(c.rect.right() + 60.0), text(role), Type::Body, t.text2),
                }
            }),
            Column::figure(per, if grows { 76.0 } else { 0.0 }, |c, role: &Option<Role>| {
                if let Some(per) = role.filter(|_| grows).and_then(|role| slope_of(scene, role.name())) {
                    c.figure(per, t.text3);
                }
            }),
            Column::figure(unit.unit(), 68.0, |c, role: &Option<Role>| c.figure(unit.figure(of(role)), t.text1)),
        ];
        let table = Table::plain("roles", columns).row_height(20.0).spaced(16.0, 8.0, 16.0).whole();
        let out = table.show(ui, rows.len(), |i| rows.get(i).copied(), |_, role| text(role).to_owned());
        for (i, response) in out.seen {
            if let Some(role) = rows[i] {
                hovered = if response.hovered() { Some(role.name()) } else { hovered };
                response.on_hover_text(role.about());
            }
        }
        hovered
    }

    pub(super) fn code(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        let t = cx.tokens;
        let Some(row) = scene.rows.get(scene.selected) else { return };
        let code = [&row.code.pytorch, &row.code.hf_trainer, &row.code.lightning];
        let head = match (row.is_best, &row.kind) {
            (true, _) => format!("Cheapest for {}", scene.named(scene.wanted)),
            (false, _) if scene.knows => format!("Chosen, for the wanted {}", scene.named(scene.wanted)),
            (false, _) => "Chosen".to_owned(),
        };
        let peak = row.figures.as_ref().map_or(String::new(), |f| Bytes(f.peak).to_string());
        section(ui, &head, &peak, false);
        padded(ui, |ui| {
            match row.is_setting() {
                true => label::paragraph(ui, &row.title, Type::MonoStrong, t.text1),
                false => label::paragraph(ui, &capital(&row.title), Type::Strong, t.text1),
            };
            let costs = row.known().filter(|f| !f.cost.is_empty()).map(|f| f.costs(|n| Bytes(n).to_string()));
            let useless = row.useless().map(|why| format!("It does nothing here: {why}."));
            if let Some(words) = useless.or(costs.map(|costs| format!("It costs: {costs}."))) {
                label::paragraph(ui, &words, Type::Body, t.text2);
            }
            if code[0].is_empty() || row.useless().is_some() {
                if row.kind == Kind::Own {
                    let words = if scene.own.is_empty() { "PyTorch's default settings" } else { scene.own.as_str() };
                    label::paragraph(ui, words, Type::Body, t.text2);
                    label::paragraph(ui, "Click a row of the table for the lines to paste.", Type::Body, t.text3);
                }
                return;
            }
            ui.add_space(8.0);
            let mut at = 0;
            if !row.is_setting() {
                segmented(ui, "Library", &mut self.library, &LIBRARIES);
                ui.add_space(8.0);
                at = self.library.min(2);
            }
            CodeWell::new(code[at]).python().copy(true).show(ui);
        });
        ui.add_space(12.0);
    }

    pub(super) fn right(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        let named = scene.named(scene.chosen);
        let title = if scene.knows { format!("At {named}") } else { "This run".to_owned() };
        PaneHeader::new(&title)
            .caption(match &scene.at_row {
                Some(point) if point.capped.oom => "without the limit",
                _ if scene.recorded.contains(&scene.chosen) => "recorded",
                _ => "predicted",
            })
            .show(ui, |ui| self.open_button(ui, cx, scene));
        ScrollArea::vertical().id_salt("plan right").auto_shrink(false).show(ui, |ui| {
            ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
            self.roles(ui, cx, scene);
            self.code(ui, cx, scene);
        });
    }

    /// In a one-column layout, roles and code are side by side.
    pub(super) fn right_across(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, scene: &Scene) {
        ScrollArea::vertical().id_salt("plan across").auto_shrink(false).show(ui, |ui| {
            ui.spacing_mut().item_spacing = vec2(0.0, 0.0);
            ui.columns_const(|[roles, code]: &mut [Ui; 2]| {
                self.roles(roles, cx, scene);
                self.code(code, cx, scene);
            });
            ui.add_space(8.0);
        });
    }
}

/// The header of the column "growth per unit of size". For a batch the unit is a sample.
fn per_one(name: &str) -> String {
    format!("per {}", if is_batch(name) { "sample" } else { name })
}

/// How much a role grows per unit of the size, around the chosen size.
fn slope_of(scene: &Scene, role: &str) -> Option<String> {
    let of_role = |p: &super::runs::Point| p.free.by_role.get(role).copied().unwrap_or(0);
    let points: Vec<(u64, u64)> = scene.points.iter().map(|(v, p)| (*v, of_role(p))).collect();
    // The predicted peaks may be at different instants, with more or fewer of these blocks live. Each block itself keeps its
    // size.
    let is_fixed = [Role::Weights, Role::Gradients, Role::OptimizerState].iter().any(|r| r.name() == role);
    if is_fixed && scene.knows {
        return Some("fixed".to_owned());
    }
    let bytes = slope(&points, scene.chosen).filter(|_| scene.knows)?;
    Some(match bytes {
        _ if bytes < 1.0 => "fixed".to_owned(),
        _ if bytes < 0.05 * MEBIBYTE as f64 => format!("{:+.1} KiB", bytes / 1024.0),
        _ => format!("{:+.2} MiB", bytes / MEBIBYTE as f64),
    })
}

/// Sentences about the size, shown beside its figures.
fn notes(scene: &Scene, point: &super::runs::Point) -> Vec<String> {
    let mut out = Vec::new();
    let (free, capped) = (&point.free, &point.capped);
    if !capped.oom && capped.peak_reserved_bytes < free.peak_reserved_bytes {
        let times = match capped.retries {
            0 => String::new(),
            1 => " once".to_owned(),
            n => format!(" {}", counted(n, "time", "times")),
        };
        out.push(format!(
            "Without the limit it would reserve {}: PyTorch gives cached memory back and asks again{times}.",
            Bytes(free.peak_reserved_bytes)
        ));
    }
    let below = scene.points.iter().rev().find(|(value, _)| *value < scene.chosen).filter(|_| scene.at_row == scene.at);
    if let Some((value, before)) = below {
        let named = scene.named(*value);
        if free.peak_reserved_bytes < before.free.peak_reserved_bytes {
            out.push(format!("It reserves less than {named}: its blocks fill their segments better."));
        }
        let gradients = |of: &Predicted| of.by_role.get(Role::Gradients.name()).is_some_and(|bytes| *bytes > 0);
        if !gradients(free) && scene.points.iter().any(|(value, p)| *value < scene.chosen && gradients(&p.free)) {
            out.push("At this size the peak comes before the gradients are made, at smaller sizes after that.".to_owned());
        }
    }
    let [low, high] = capped.span;
    // Ends that round to the same text are not shown as a range.
    let span = (Bytes(low).to_string() != Bytes(high).to_string()).then(|| format!("Between {} and {}", Bytes(low), Bytes(high)));
    let is_open = outcome(capped) == Outcome::May;
    let some = format!("Of the runs that were tried some fit {}", scene.place);
    if let Some(said) = if is_open { Some(span.map_or(some.clone(), |span| format!("{span}. {some}"))) } else { span } {
        let why = match capped.uncertain_because {
            Some("placement") => ", by where the driver puts segments",
            Some("steps") => ", since one recording has a single step and another more",
            _ if scene.is_single() => ", since one recording leaves open what grows",
            _ => ", since some sizes could not be predicted exactly",
        };
        out.push(format!("{said}{why}."));
    }
    out
}
