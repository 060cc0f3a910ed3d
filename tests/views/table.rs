//! Keyboard control of a table, and copying from it.

use crate::hand::{press, press_key};
use crate::pictures::builder;
use egui::{Key, Ui, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable as _;
use vramscope::app::theme::{self, Type};
use vramscope::app::widgets::{Column, Sort, Table, Width};

/// A table of three rows, the rows that were chosen and opened, and its sort order.
struct Shown {
    sort: Sort<&'static str>,
    chosen: Vec<usize>,
    opened: Vec<usize>,
    copied: Option<String>,
}

const NAMES: [&str; 3] = ["weights", "a name that is much too long for its column", "gradients"];
const SIZES: [u64; 3] = [30, 10, 20];

fn shown() -> Harness<'static, Shown> {
    let state = Shown { sort: Sort::new("size", true), chosen: Vec::new(), opened: Vec::new(), copied: None };
    let ui = |ui: &mut Ui, state: &mut Shown| {
        let columns: Vec<Column<'_, usize, &str>> = vec![
            Column::text("name", Width::Exact(60.0), |c, &i: &usize| _ = c.text(NAMES[i], Type::Body, c.t.text1)),
            Column::figure("size", 60.0, |c, &i: &usize| c.figure(SIZES[i].to_string(), c.t.text1))
                .by("size", |i| SIZES[i] as f64),
            Column::figure("hidden", 60.0, |c, &i: &usize| c.figure(format!("#{i}"), c.t.text1)).from(9_000.0),
        ];
        let out = Table::sorted("things", columns, &mut state.sort).show(ui, 3, Some, |i, _| NAMES[i].to_owned());
        state.chosen.extend(out.chosen());
        state.opened.extend(out.opened());
        let copied = ui.output(|o| {
            o.commands.iter().find_map(|c| match c {
                egui::OutputCommand::CopyText(text) => Some(text.clone()),
                _ => None,
            })
        });
        state.copied = copied.or(state.copied.take());
    };
    builder().with_size(vec2(240.0, 200.0)).with_context_setup(theme::install).build_ui_state(ui, state)
}

#[test]
fn keys_move_through_the_rows_as_they_are_sorted() {
    let mut h = shown();
    h.run_steps(2);
    press(&mut h, "weights");
    for key in [Key::ArrowDown, Key::ArrowDown, Key::ArrowDown, Key::ArrowUp] {
        press_key(&mut h, key);
    }
    // The largest first. Below the last row there is nothing.
    assert_eq!(h.state().chosen, [0, 2, 1, 2]);
    press_key(&mut h, Key::Enter);
    assert_eq!(h.state().opened, [2]);
}

#[test]
fn a_title_turns_the_order() {
    let mut h = shown();
    h.run_steps(2);
    press(&mut h, "Sort by size");
    let top = |name| h.get_by_label(name).rect().top();
    assert!(top(NAMES[1]) < top(NAMES[2]) && top(NAMES[2]) < top(NAMES[0]));
}

#[test]
fn a_row_is_copied_whole() {
    let mut h = shown();
    h.run_steps(2);
    press(&mut h, NAMES[1]);
    h.event(egui::Event::Copy);
    h.step();
    assert_eq!(h.state().copied.as_deref(), Some("a name that is much too long for its column\t10\t#1"));
}

#[test]
fn the_table_is_copied_in_its_order() {
    let mut h = shown();
    h.run_steps(2);
    h.get_by_label("Sort by size").click_secondary();
    h.run_steps(3);
    h.get_by_label("Copy table").click();
    h.step();
    h.step();
    let text = "name\tsize\thidden\nweights\t30\t#0\ngradients\t20\t#2\na name that is much too long for its column\t10\t#1";
    assert_eq!(h.state().copied.as_deref(), Some(text));
}
