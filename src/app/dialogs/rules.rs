//! The dialog for the user's role rules, which map frames to roles.

use egui::{Align, Id, Layout, ScrollArea, Sense, Ui, vec2};

use super::frame::dialog;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::button::check;
use crate::app::widgets::{Field, Icon, Push, icon_button, label, select};
use vramscope_core::anatomy::roles::{Role, Rule, RuleError, Rules, Tally};
use vramscope_core::units::{Bytes, counted};

/// A change of the list in this frame.
enum Change {
    Move(usize, usize),
    Remove(usize),
}

/// Draws the dialog; true when it should close. Rules take effect while they are typed. `tallies` says how much each rule decided
/// in the recording in front; `None` while that is computed or without a recording.
pub(in crate::app) fn draw(rules: &mut Vec<Rule>, tallies: Option<&[Tally]>, ui: &mut Ui, tokens: &Tokens) -> bool {
    let (_, errors) = Rules::new(rules);
    let (is_done, is_closed) = dialog(ui, tokens, "role rules", ("Role rules", 760.0), |ui, _| {
        ui.add_space(6.0);
        label::paragraph(
            ui,
            "A regular expression is looked for in every frame of an allocation's stack, written as \
             path/file.py:71 function. The first rule that matches decides, before the profiler, metadata and vramscope's own rules. \
             Capitals do not matter.",
            Type::Body,
            tokens.text2,
        );
        ui.add_space(10.0);
        let mut change = None;
        // The field of a new rule gets the focus.
        let added = Id::unique("rule just added");
        let focus = ui.data_mut(|d| d.remove_temp::<usize>(added));
        let count = rules.len();
        ScrollArea::vertical().max_height(360.0).auto_shrink([false, true]).show(ui, |ui| {
            ui.spacing_mut().item_spacing.y = 4.0;
            for (i, rule) in rules.iter_mut().enumerate() {
                let error = errors.iter().find(|e| e.number == i + 1);
                let tally = tallies.and_then(|t| t.get(i)).copied();
                change = row(ui, tokens, (i, count, focus == Some(i)), rule, error, tally).or(change.take());
            }
            if count == 0 {
                label::paragraph(
                    ui,
                    "No rules yet. A rule gives a role of your choice to allocations. For example attention\\.py is for all that \
                     this file allocates, and train\\.py:71 for one line.",
                    Type::Body,
                    tokens.text3,
                );
            }
        });
        match change {
            Some(Change::Move(from, to)) if from < rules.len() && to < rules.len() => rules.swap(from, to),
            Some(Change::Remove(at)) if at < rules.len() => {
                rules.remove(at);
            }
            _ => {}
        }
        ui.add_space(10.0);
        ui.horizontal(|ui| {
            if Push::outlined("Add a rule").icon(Icon::Plus).show(ui).clicked() {
                ui.data_mut(|d| d.insert_temp(added, rules.len()));
                rules.push(Rule { role: Role::Activations, ..Rule::default() });
            }
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| Push::primary("Done").show(ui).clicked()).inner
        })
        .inner
    });
    is_done || is_closed
}

fn row(
    ui: &mut Ui,
    t: &Tokens,
    (i, count, takes_focus): (usize, usize, bool),
    rule: &mut Rule,
    error: Option<&RuleError>,
    tally: Option<Tally>,
) -> Option<Change> {
    let mut change = None;
    ui.push_id(("rule", i), |ui| {
        ui.horizontal(|ui| {
            ui.spacing_mut().item_spacing.x = 6.0;
            // All numbers have the same width, so that the fields are aligned.
            ui.allocate_ui(vec2(34.0, 22.0), |ui| {
                ui.set_min_width(34.0);
                check(ui, &format!("{}", i + 1), &mut rule.is_on);
            });
            let name = format!("Pattern of rule {}", i + 1);
            let field = Field::new(&name).hint("attention\\.py").mono().width(270.0).invalid(error.is_some());
            let response = field.show(ui, &mut rule.pattern);
            if takes_focus {
                response.request_focus();
                response.scroll_to_me(None);
            }
            rule.role = select(ui, "is", &rule.role, &Role::ALL, |role| role.text()).unwrap_or(rule.role);
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                if icon_button(ui, Icon::Close, &format!("Remove rule {}", i + 1)).clicked() {
                    change = Some(Change::Remove(i));
                }
                let later = ui.add_enabled_ui(i + 1 < count, |ui| icon_button(ui, Icon::ChevronDown, "Try it later")).inner;
                if later.clicked() {
                    change = Some(Change::Move(i, i + 1));
                }
                let sooner = ui.add_enabled_ui(i > 0, |ui| icon_button(ui, Icon::ChevronUp, "Try it sooner")).inner;
                if sooner.clicked() {
                    change = Some(Change::Move(i, i - 1));
                }
                let (rect, _) = ui.allocate_exact_size(ui.available_size_before_wrap().min(vec2(230.0, 20.0)), Sense::hover());
                let (words, ink) = match tally {
                    _ if !rule.is_on => ("off".to_owned(), t.text3),
                    _ if rule.pattern.trim().is_empty() || error.is_some() => (String::new(), t.text3),
                    Some(tally) if tally.count == 0 => ("matches nothing here".to_owned(), t.text3),
                    Some(tally) => {
                        let n = counted(tally.count, "allocation", "allocations");
                        (format!("{n}, {}", Bytes(tally.bytes)), t.text1)
                    }
                    None => ("counting".to_owned(), t.text3),
                };
                let inner = rect.with_max_x(rect.right() - 4.0);
                label::figure(ui.painter(), inner, &words, ink);
            });
        });
        if let Some(error) = error {
            ui.horizontal(|ui| {
                ui.add_space(44.0);
                ui.add(egui::Label::new(Type::Caption.text(&error.text).color(t.amber)).wrap());
            });
        }
    });
    change
}
