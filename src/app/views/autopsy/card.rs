//! A full device as one bar: tensors by role, other holders, free memory. Below it the request, which is larger than what is
//! free.

use egui::{Align2, Color32, Ui};

use crate::app::data::colours::role_paint;
use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::{Bar, Cut, LegendEntry, PaneHeader, Swatch, Tip, label, legend_row, row};
use vramscope_core::anatomy::roles::{ByRole, Role};
use vramscope_core::diagnose::oom::{Autopsy, FREE, INSIDE, TENSORS};
use vramscope_core::units::Bytes;

/// Height of header, two bars and legend.
pub(super) const HEIGHT: f32 = 152.0;

const BAR: f32 = 30.0;

struct Part {
    name: String,
    bytes: u64,
    swatch: Swatch,
    about: &'static str,
}

/// Who holds the device, in this order: tensors by role (largest first), others, PyTorch's free memory. The device's free memory
/// is the rest of the bar.
fn parts(cx: &ViewContext<'_>, a: &Autopsy, by_role: Option<&ByRole>) -> Vec<Part> {
    let t = cx.tokens;
    let mut parts = Vec::new();
    for (name, bytes) in a.holders() {
        let Some(bytes) = bytes else { continue };
        let swatch = match name {
            FREE => continue,
            TENSORS => match by_role {
                Some(held) => {
                    let mut roles: Vec<Role> = Role::ALL.into_iter().filter(|role| held[role.index()].bytes > 0).collect();
                    roles.sort_by_key(|role| std::cmp::Reverse(held[role.index()].bytes));
                    parts.extend(roles.into_iter().map(|role| {
                        let held = &held[role.index()];
                        let swatch = Swatch::Fill(role_paint(role).colour(t));
                        Part { name: held.words(role), bytes: held.bytes, swatch, about: role.about() }
                    }));
                    continue;
                }
                None => Swatch::Fill(t.slot(0)),
            },
            INSIDE => Swatch::Free,
            _ => Swatch::Fill(t.other),
        };
        parts.push(Part { name: name.to_owned(), bytes, swatch, about: "" });
    }
    // The hatched part of a bar must come last.
    parts.sort_by_key(|part| matches!(part.swatch, Swatch::Free));
    parts
}

pub(super) fn card(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy, by_role: Option<&ByRole>) {
    let t = cx.tokens;
    let parts = parts(cx, a, by_role);
    let used: u64 = parts.iter().map(|part| part.bytes).sum();
    let free = a.device_free_known().unwrap_or(0);
    let whole = match a.capacity {
        Some(all) => format!("{} in all", Bytes(all)),
        None => format!("{} of it are recorded", Bytes(used + free)),
    };
    PaneHeader::new("Who holds the device").caption(&whole).show(ui, |_| {});
    let (rect, _) = row::told(ui, 2.0 * BAR + 32.0, egui::Role::Canvas, || {
        let held: Vec<String> = parts.iter().map(|part| format!("{} {}", part.name, Bytes(part.bytes))).collect();
        format!("Who holds the device: {}", held.join(", "))
    });
    let plot = rect.inset(168.0, 0.0, 130.0, 0.0);
    if plot.width() >= 80.0 {
        let greatest = (used + free.max(a.segment)).max(1) as f64;
        let line = |top: f32| plot.down(top, top + BAR);
        let (device, request) = (line(rect.top() + 12.0), line(rect.top() + 20.0 + BAR));
        let mut bar = Bar::new(greatest).thickness(BAR);
        for part in &parts {
            bar = match part.swatch {
                Swatch::Fill(colour) => bar.part(part.bytes as f64, colour),
                _ => bar.hatched(part.bytes as f64),
            };
        }
        let p = ui.painter();
        bar.paint(p, t, device);
        let end = bar.end(device, (used + free) as f64).x;
        p.rect_stroke(device.with_max_x(end), 0.0, egui::Stroke::new(1.0, t.text2), egui::StrokeKind::Inside);
        Bar::new(greatest)
            .thickness(BAR)
            .part(used as f64, Color32::TRANSPARENT)
            .part(a.segment as f64, t.red)
            .paint(p, t, request);
        let from = bar.end(device, used as f64).x;
        for (row, name, figure, ink) in [
            (device, "The device", Bytes(free).to_string() + " free", t.text1),
            (request, "The request", Bytes(a.segment).to_string(), t.red),
        ] {
            label::text(p, row.middle(plot.left() - 12.0), Align2::RIGHT_CENTER, name, Type::Strong, t.text1);
            label::text(p, row.middle(rect.right() - 16.0), Align2::RIGHT_CENTER, &figure, Type::MonoStrong, ink);
        }
        let over = a.segment.saturating_sub(free);
        let note = format!("{} more than is free", Bytes(over));
        if over > 0 && plot.left() + label::width(p, &note, Type::Body) + 12.0 < from {
            label::text(p, request.middle(from - 10.0), Align2::RIGHT_CENTER, &note, Type::Body, t.text2);
        }
    }
    let entries: Vec<LegendEntry> = parts
        .iter()
        .map(|part| {
            let figure = Bytes(part.bytes).to_string();
            let tip = Tip::new(&part.name).row("bytes", figure.clone());
            let tip = if part.about.is_empty() { tip } else { tip.note(part.about) };
            LegendEntry::new(part.swatch, &part.name).value(figure).tip(tip)
        })
        .collect();
    legend_row(ui, "", plot.left() - rect.left(), &entries, "");
}
