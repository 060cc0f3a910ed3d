//! The menu bar: menus, the search field, the device in front, the theme.

use egui::{Align, Layout, Popup, Rangef, Rect, RectAlign, Sense, Stroke, Ui, UiBuilder, vec2};

use super::heights::{MENU_BAR, TAB_BAR};
use crate::app::data::device::holds;
use crate::app::state::{Action, ColourBy, Command, ViewKind, Workspace};
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{
    Cut, Icon, icon_button, label, menu_item, paint_key_cap, paint_logo, segmented, selector_button, told_at,
};
use crate::app::window::App;
use vramscope_core::units::counted;

pub(super) fn menu_bar(app: &mut App, ui: &mut Ui, tokens: &Tokens) {
    let height = MENU_BAR;
    let menus_end = ui.horizontal_centered(|ui| {
        ui.set_height(height);
        let (logo, _) = ui.allocate_exact_size(vec2(16.0, 16.0), Sense::hover());
        paint_logo(ui.painter(), logo.min + vec2(0.0, 2.0), 16.0, tokens.accent, tokens.text1, tokens.text3);
        ui.add_space(-2.0);
        ui.label(Type::Title.text("vramscope").size(13.0).color(tokens.text1));
        ui.add_space(4.0);
        let bar = egui::MenuBar::new().ui(ui, |ui| {
            menus(app, ui);
            // The bar itself has the full width.
            ui.cursor().left()
        });
        bar.inner
    });
    let menus_end = menus_end.inner;
    let full = ui.max_rect();
    let mut right = ui.new_child(UiBuilder::new().max_rect(full).layout(Layout::right_to_left(Align::Center)));
    right.spacing_mut().item_spacing.x = 8.0;
    let (icon, label) = if tokens.dark { (Icon::Sun, "Light theme") } else { (Icon::Moon, "Dark theme") };
    if icon_button(&mut right, icon, label).clicked() {
        app.actions.run(Command::ToggleTheme);
    }
    device_chooser(app, &mut right, tokens);
    // The search field is centred in the window, or placed beside the menus when there is no room in the centre.
    let free = Rangef::new(menus_end + 16.0, right.min_rect().left() - 16.0);
    let width = 400.0f32.min(full.width() * 0.3).max(150.0).min(free.span());
    let middle = full.center().x.clamp(free.min + width / 2.0, (free.max - width / 2.0).max(free.min + width / 2.0));
    let rect = Rect::from_center_size(full.middle(middle), vec2(width, 24.0));
    if width >= 96.0 {
        let response = told_at(ui, rect, "find", Sense::click(), egui::Role::Button, || "Find a block, a stack, a command");
        let stroke = if response.hovered() { tokens.line2 } else { tokens.line };
        ui.painter().rect(rect, 4.0, tokens.s1, Stroke::new(1.0, stroke), egui::StrokeKind::Inside);
        Icon::Search.paint(ui.painter(), rect.middle(rect.left() + 14.0), 14.0, tokens.text3);
        let words = rect.inset(27.0, 0.0, 52.0, 0.0);
        let text = if words.width() < 190.0 { "Find…" } else { "Find a block, a stack, a command…" };
        label::text_in(ui.painter(), words, text, Type::Body, tokens.text3);
        paint_key_cap(ui.painter(), tokens, rect.middle(rect.right() - 6.0), "Ctrl K");
        if response.on_hover_text("Find a block, a stack, a command").clicked() {
            app.actions.run(Command::Palette);
        }
    }
}

fn menus(app: &mut App, ui: &mut Ui) {
    let recents: Vec<std::path::PathBuf> = app.settings.recents.iter().map(|r| r.path.clone()).collect();
    ui.menu_button("File", |ui| {
        entry(app, ui, Command::Open);
        entry(app, ui, Command::OpenPath);
        entry(app, ui, Command::OpenRanks);
        entry(app, ui, Command::CompareFiles);
        entry(app, ui, Command::WatchFolder);
        entry(app, ui, Command::SaveRecording);
        entry(app, ui, Command::SaveReport);
        entry(app, ui, Command::SavePicture);
        entry(app, ui, Command::AddFile);
        entry(app, ui, Command::Probe);
        entry(app, ui, Command::Replay);
        entry(app, ui, Command::Explain);
        entry(app, ui, Command::WatchMachine);
        ui.menu_button("Open recent", |ui| {
            if recents.is_empty() {
                ui.label("No file was opened yet.");
            }
            for path in recents {
                let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
                let folder = path.parent().map(|f| f.display().to_string()).unwrap_or_default();
                let folder = label::without_middle(ui.painter(), &folder, Type::Body, 220.0);
                let entry = ui.add(egui::Button::new(name).shortcut_text(folder));
                if entry.on_hover_text(path.display().to_string()).clicked() {
                    app.actions.send(Action::Open(vec![path]));
                }
            }
        });
        if !app.samples.is_empty() {
            let samples = app.samples.clone();
            ui.menu_button("Open a sample", |ui| {
                for (i, sample) in samples.iter().enumerate() {
                    if ui.button(sample.name).on_hover_text(sample.sentence).clicked() {
                        app.actions.send(Action::OpenSample(i));
                    }
                }
            });
        }
        ui.separator();
        entry(app, ui, Command::RoleRules);
        entry(app, ui, Command::Settings);
        entry(app, ui, Command::Welcome);
        entry(app, ui, Command::Close);
        entry(app, ui, Command::Reopen);
        entry(app, ui, Command::Quit);
    });
    ui.menu_button("Edit", |ui| {
        for command in [Command::Undo, Command::SelectionBack, Command::SelectionForward, Command::Clear] {
            entry(app, ui, command);
        }
        ui.separator();
        for command in [Command::CopyAddress, Command::CopyStack, Command::Palette, Command::FindInView] {
            entry(app, ui, command);
        }
    });
    ui.menu_button("View", |ui| {
        for &workspace in Workspace::ALL {
            entry(app, ui, Command::Workspace(workspace));
        }
        ui.separator();
        ui.menu_button("Add a view", |ui| {
            for kind in ViewKind::all() {
                let enabled = app.is_enabled(Command::Show(kind));
                if ui.add_enabled(enabled, egui::Button::new(kind.title())).on_hover_text(kind.about()).clicked() {
                    app.actions.run(Command::Show(kind));
                }
            }
        });
        ui.menu_button("Colour by", |ui| {
            for &by in ColourBy::ALL {
                entry(app, ui, Command::Colour(by));
            }
        });
        ui.separator();
        for command in [Command::ZoomFit, Command::ZoomIn, Command::ZoomOut, Command::FitSelection, Command::ToggleAxis] {
            entry(app, ui, command);
        }
        ui.separator();
        entry(app, ui, Command::ResetLayout);
        entry(app, ui, Command::ToggleTheme);
        for command in [Command::LargerInterface, Command::SmallerInterface, Command::UsualInterface] {
            entry(app, ui, command);
        }
    });
    ui.menu_button("Go", |ui| {
        for command in [
            Command::OutOfMemory,
            Command::Peak,
            Command::PreviousPeak,
            Command::NextPeak,
            Command::First,
            Command::Last,
            Command::EventBack,
            Command::EventForward,
            Command::PreviousSameStack,
            Command::NextSameStack,
            Command::SetMarker(0),
            Command::SetMarker(1),
            Command::ClearMarkers,
        ] {
            entry(app, ui, command);
        }
    });
    ui.menu_button("Help", |ui| {
        for command in [Command::Help, Command::Tour, Command::HowToRecord, Command::Manual, Command::About] {
            entry(app, ui, command);
        }
    });
}

/// One menu entry with its shortcut. Disabled when the command does not apply.
fn entry(app: &App, ui: &mut Ui, command: Command) {
    let mut button = egui::Button::new(command.text());
    let keys = command.keys();
    if !keys.is_empty() {
        button = button.shortcut_text(keys);
    }
    let mut response = ui.add_enabled(app.is_enabled(command), button);
    if !command.tooltip().is_empty() {
        response = response.on_hover_text(command.tooltip());
    }
    if response.clicked() {
        app.actions.run(command);
    }
}

/// Up to this many devices are shown side by side, so that users notice them. More are in a menu.
const BESIDE: usize = 3;

fn device_chooser(app: &App, ui: &mut Ui, tokens: &Tokens) {
    let Some(document) = app.active_document() else { return };
    let (Some(recording), Some(view)) = (&document.recording, document.view()) else { return };
    let title = |i: usize| {
        let device = &recording.devices[i];
        match &device.name {
            Some(name) => format!("{} {name}", device.id),
            None => device.id.to_string(),
        }
    };
    if recording.has_no_device() {
        ui.label(Type::Body.text("no GPU").color(tokens.text2));
        return;
    }
    if recording.devices.len() == 1 {
        ui.label(Type::Body.text(title(view.data.index)).color(tokens.text1));
        return;
    }
    if recording.devices.len() <= BESIDE {
        let failed = view.data.failed_devices();
        let names = recording.devices.iter().enumerate();
        let names: Vec<String> =
            names.map(|(i, d)| format!("{}{}", d.id, if failed.contains(&i) { ", failed" } else { "" })).collect();
        let mut at = view.data.index;
        if segmented(ui, "Device", &mut at, &names) {
            app.actions.send(Action::SetDevice(at));
        }
        if let Some(name) = &view.data.device().name {
            ui.label(Type::Body.text(name).color(tokens.text2));
        }
        return;
    }
    let mut chosen = None;
    let response = selector_button(ui, "device", &title(view.data.index));
    // Opens below the tab bar, so that tabs and workspaces stay visible and clickable.
    let gap = ui.ctx().content_rect().top() + MENU_BAR + TAB_BAR + 4.0 - response.rect.bottom();
    Popup::menu(&response).align(RectAlign::BOTTOM_END).gap(gap.max(4.0)).show(|ui| {
        ui.set_width(320.0);
        for (i, device) in recording.devices.iter().enumerate() {
            let segments = counted(device.segments.len() as u64, "segment", "segments");
            let held = holds(recording, device);
            let has_no_segments = recording.has_only_counters() || (device.segments.is_empty() && !device.samples.is_empty());
            let detail = if has_no_segments { held } else { format!("{held}, {segments}") };
            let name = title(i);
            let mut item = menu_item(ui, &name, Some(i == view.data.index), Some(&detail), true);
            if view.data.failed_devices().contains(&i) {
                let after = item.rect.left() + 24.0 + label::width(ui.painter(), &name, Type::Body) + 9.0;
                ui.painter().circle_filled(item.rect.middle(after), 3.0, tokens.red);
                item = item.on_hover_text("Ran out of memory");
            }
            if item.clicked() {
                chosen = Some(i);
                ui.close();
            }
        }
    });
    response.on_hover_text("Which device of this recording to show");
    if let Some(i) = chosen {
        app.actions.send(Action::SetDevice(i));
    }
}
