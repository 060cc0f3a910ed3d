//! The table of allocations: its picture, its field, keys and rows.

use crate::alone::{Alone, alone, sample};
use crate::hand::{press, press_key};
use crate::pictures::Pictures;
use egui::{Key, Theme};
use egui_kittest::kittest::{NodeT, Queryable};
use vramscope::app::state::{Action, Item, ViewKind};

#[test]
fn picture() {
    let mut pictures = Pictures::new();
    let h = alone(&sample("gpt_train.pickle"), ViewKind::Allocations, Theme::Dark, [760.0, 220.0], |link| link.cursor = 1933);
    pictures.compare("allocations_dark", h);
}

fn selected(asked: &[Action]) -> Vec<u32> {
    let id = |a: &Action| match a {
        Action::Select(Some(Item::Lifetime(id))) => Some(id.0),
        _ => None,
    };
    asked.iter().filter_map(id).collect()
}

fn table() -> egui_kittest::Harness<'static, Alone> {
    alone(&sample("gpt_train.pickle"), ViewKind::Allocations, Theme::Dark, [1100.0, 400.0], |_| {})
}

#[test]
fn a_query_is_sent_once_it_can_be_read() {
    let mut h = table();
    let sent = |h: &egui_kittest::Harness<'static, Alone>| -> Vec<String> {
        let text = |a: &Action| match a {
            Action::SetQuery(text) => Some(text.clone()),
            _ => None,
        };
        h.state().asked.iter().filter_map(text).collect()
    };
    h.get_by_label("Query allocations").focus();
    h.run_steps(2);
    h.get_by_label("Query allocations").type_text("size>");
    h.run_steps(2);
    assert_eq!(sent(&h), Vec::<String>::new(), "half a term asks for nothing");
    h.get_by_label("Query allocations").type_text("1MiB ro");
    h.run_steps(2);
    assert_eq!(sent(&h).last().map(String::as_str), Some("size>1MiB ro"));
    // Tab takes the completion and stays in the field. The completed term has no value yet.
    press_key(&mut h, Key::Tab);
    h.get_by_label("Query allocations").type_text("grad");
    h.run_steps(2);
    assert_eq!(sent(&h).last().map(String::as_str), Some("size>1MiB role=grad"));
}

#[test]
fn rows_are_chosen_by_click_and_keys_and_lead_to_their_birth() {
    let mut h = table();
    let row = h.query_all_by_role(egui::accesskit::Role::Row).next().expect("a row");
    row.click();
    h.run_steps(3);
    let first = selected(&h.state().asked);
    assert_eq!(first.len(), 1);
    press_key(&mut h, Key::ArrowDown);
    let second = selected(&h.state().asked);
    assert_eq!(second.len(), 2);
    assert_ne!(second[0], second[1]);
    // Sorting by another column sends no action and starts at the top.
    press(&mut h, "Sort by born");
    let name = h.query_all_by_role(egui::accesskit::Role::Row).next().and_then(|n| n.accesskit_node().label()).expect("a row");
    assert!(name.starts_with("Allocation 0:"), "{name}");
}
