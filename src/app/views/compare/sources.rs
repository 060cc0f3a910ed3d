//! The menus that choose A and B.

use egui::Ui;

use crate::app::data::compare::held_against;
use crate::app::state::{Action, Moment, Other, Source};
use crate::app::views::ViewContext;
use crate::app::views::file_dialog::FileDialog;
use crate::app::widgets::pane::menu_below;
use crate::app::widgets::{menu_item, selector_button};
use vramscope_core::anatomy::steps::number;
use vramscope_core::inference::whatif::SUGGESTED;
use vramscope_core::units::count;

/// The file dialog, and the side it was opened for.
#[derive(Default)]
pub(super) struct Dialog {
    file: FileDialog,
    which: usize,
}

impl Dialog {
    fn open(&mut self, cx: &ViewContext<'_>, which: usize) {
        self.which = which;
        let endings = &["pickle", "pkl", "json", "gz", "zst", "html", "prof"];
        self.file.open(cx, "Choose a recording to compare with", endings);
    }

    pub fn poll(&mut self, cx: &ViewContext<'_>) {
        let tip = "No file was chosen. On a desktop without a file dialog, open the file in a tab and choose it in this menu.";
        if let Some(path) = self.file.poll(cx, tip) {
            choose(cx, self.which, Other::File(path), Moment::Peak);
        }
    }
}

/// Sets one side, and moves the other side to the same phase. The user can choose another instant afterwards.
fn choose(cx: &ViewContext<'_>, which: usize, other: Other, moment: Moment) {
    let against = 1 - which;
    let held = held_against(&cx.shared.compared[against], moment, cx.data);
    if let Some(text) = moved(cx, against, &held, moment) {
        cx.actions.send(Action::Notify(text));
    }
    cx.actions.send(Action::Compare(which, Source::Other(other, moment)));
    cx.actions.send(Action::Compare(against, held));
}

/// A message when the other side was moved too, because the user did not click that one.
fn moved(cx: &ViewContext<'_>, side: usize, to: &Source, moment: Moment) -> Option<String> {
    let was = match (&cx.shared.compared[side], cx.shared.markers[side]) {
        (Source::At(event), _) => *event,
        (Source::Marker, Some(event)) => event,
        _ => return None,
    };
    let name = ["A", "B"][side];
    matches!(to, Source::At(event) if *event != was).then(|| {
        let was = count(u64::from(was));
        let when = moment.text();
        format!("{name} was moved from event {was} to this recording {when}, for both to be compared in the same phase; its menu has the other instants.")
    })
}

/// The steps whose peaks a side's menu offers: all when they are few, otherwise the first, those around the cursor, and the last.
fn offered_steps(steps: usize, here: Option<usize>) -> Vec<usize> {
    const ALL: usize = 12;
    if steps <= ALL {
        return (0..steps).collect();
    }
    let here = here.unwrap_or(0);
    let mut offered = vec![0, here.saturating_sub(1), here, here + 1, steps - 1];
    offered.retain(|&step| step < steps);
    offered.sort_unstable();
    offered.dedup();
    offered
}

/// Sets a side to its marker, and the marker to an event of this device.
pub(super) fn place(cx: &ViewContext<'_>, which: usize, event: u32) {
    cx.actions.send(Action::Compare(which, Source::Marker));
    cx.actions.send(Action::SetMarker(which, Some(event)));
}

pub(super) fn selector(ui: &mut Ui, cx: &ViewContext<'_>, dialog: &mut Dialog, which: usize, title: &str) {
    let name = ["A", "B"][which];
    let response = selector_button(ui, name, title);
    menu_below(&response, 340.0, |ui| {
        let steps = cx.comparing.steps(&cx.here());
        // Several entries may stand for the same event. Only the first one gets the tick.
        let mut is_ticked = false;
        let mut at = |ui: &mut Ui, text: &str, event: Option<u32>| {
            let Some(event) = event else { return };
            let is_chosen = !is_ticked
                && match cx.shared.compared[which] {
                    Source::Marker => cx.shared.markers[which] == Some(event),
                    Source::At(own) => own == event,
                    Source::Other(..) => false,
                };
            is_ticked |= is_chosen;
            if menu_item(ui, text, Some(is_chosen), None, true).clicked() {
                place(cx, which, event);
                ui.close();
            }
        };
        heading(ui, cx, "This recording");
        let oom = if cx.data.ooms.len() > 1 { "At the last out-of-memory event" } else { "At the out-of-memory event" };
        at(ui, oom, cx.data.last_oom());
        at(ui, "At the start", (!cx.data.device().events.is_empty()).then_some(0));
        at(ui, "At the peak", Some(cx.data.tables.curves.peak_event()).filter(|&e| e != vramscope_core::tables::NO_EVENT));
        at(ui, "At the end", (cx.data.device().events.len() as u32).checked_sub(1));
        if let Some(table) = &steps {
            for step in offered_steps(table.figures.len(), table.steps.of(cx.shared.cursor)) {
                if let Some(f) = table.figures.get(step) {
                    at(ui, &format!("At the peak of step {}", number(step)), Some(f.peak_event));
                }
            }
        }
        at(ui, &format!("At the cursor, event {}", count(u64::from(cx.shared.cursor))), Some(cx.shared.cursor));
        let other = |ui: &mut Ui, text: &str, other: Other| {
            let (is_chosen, moment) = match &cx.shared.compared[which] {
                Source::Other(o, moment) => (*o == other, *moment),
                _ => (false, Moment::Peak),
            };
            if menu_item(ui, text, Some(is_chosen), None, true).clicked() {
                choose(cx, which, other, moment);
                ui.close();
            }
        };
        let devices = &cx.data.recording.devices;
        let others: Vec<usize> = (0..devices.len()).filter(|&i| i != cx.data.index && !devices[i].events.is_empty()).collect();
        if !others.is_empty() {
            heading(ui, cx, "Another device of this recording");
            for i in others {
                other(ui, &devices[i].id.to_string(), Other::Device(i));
            }
        }
        let open = cx.comparing.open();
        heading(ui, cx, "Another recording, another rank");
        for o in &open {
            other(ui, &o.title, Other::Document(o.id));
        }
        if menu_item(ui, "Choose a file…", None, None, true).clicked() {
            dialog.open(cx, which);
            ui.close();
        }
        heading(ui, cx, "The same requests under other settings, simulated");
        for (conf, _) in SUGGESTED.iter().take(5) {
            let text = if conf.is_empty() { "PyTorch's defaults" } else { conf };
            other(ui, text, Other::Simulation((*conf).to_owned()));
        }
        if let Source::Other(chosen, moment) = &cx.shared.compared[which] {
            heading(ui, cx, "When");
            for m in Moment::ALL {
                if menu_item(ui, m.text(), Some(m == *moment), None, true).clicked() {
                    choose(cx, which, chosen.clone(), m);
                    ui.close();
                }
            }
        }
    });
}

fn heading(ui: &mut Ui, cx: &ViewContext<'_>, text: &str) {
    ui.add_space(4.0);
    ui.horizontal(|ui| {
        ui.add_space(10.0);
        ui.label(crate::app::theme::Type::Caption.text(text).color(cx.tokens.text3));
    });
}

#[cfg(test)]
mod tests {
    use crate::app::views::compare::sources::offered_steps;

    #[test]
    fn few_steps_are_all_offered_and_of_many_the_ends_and_those_at_the_cursor() {
        assert_eq!(offered_steps(4, Some(1)), [0, 1, 2, 3]);
        assert_eq!(offered_steps(59, Some(20)), [0, 19, 20, 21, 58]);
        assert_eq!(offered_steps(59, Some(58)), [0, 57, 58]);
        assert_eq!(offered_steps(59, None), [0, 1, 58]);
        assert!(offered_steps(0, None).is_empty());
    }
}
