//! A request that is too large, in parts: from how many on one fits.

use egui::{ScrollArea, Sense, Ui, vec2};

use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::bar::Bar;
use crate::app::widgets::cut::Cut;
use crate::app::widgets::pane::PaneHeader;
use crate::app::widgets::table::captions;
use crate::app::widgets::{label, row};
use vramscope_core::diagnose::oom::{Autopsy, Fits, Part};
use vramscope_core::units::{Bytes, count};

const ROW: f32 = 24.0;

/// The size of one part for each number of parts, against what this process could get. Nothing for requests that are not split.
pub(super) fn parts(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy) {
    if a.parts.is_empty() {
        return;
    }
    let t = cx.tokens;
    ui.add_space(8.0);
    PaneHeader::new("The request in parts").caption("one after the other, each on its own").show(ui, |_| {});
    let columns = |rect: egui::Rect| {
        let outcome = rect.across(rect.right() - 184.0, rect.right() - 16.0);
        let size = rect.across(outcome.left() - 90.0, outcome.left() - 12.0);
        [rect.cell(16.0, 72.0), rect.across(rect.left() + 80.0, size.left() - 12.0), size, outcome]
    };
    let rect = row::line(ui, ROW);
    let [parts, bar, each, outcome] = columns(rect);
    let most = Bytes(a.most_free());
    let marks = match a.device_free_known() {
        Some(free) => format!("marks: {} free, {most} at most", Bytes(free)),
        None => format!("mark: {most} at most"),
    };
    let marks = if label::width(ui.painter(), &marks, Type::Caption) <= bar.width() { marks.as_str() } else { "" };
    captions(ui, rect, [("parts", parts, false), (marks, bar, false), ("each", each, true), ("outcome", outcome, true)]);
    let greatest = a.requested.max(1) as f64;
    ScrollArea::vertical().id_salt("parts").auto_shrink(false).show(ui, |ui| {
        for Part { parts, bytes, fits } in a.parts.iter().copied() {
            let (rect, response) = ui.allocate_exact_size(vec2(ui.available_width(), ROW), Sense::hover());
            let (outcome, ink) = match fits {
                Fits::Never => ("does not fit", t.text3),
                Fits::IfAllIsFreed => ("if all else is freed", t.text2),
                Fits::AsItWas => ("fits as memory was", t.text1),
            };
            response.widget_info(|| {
                egui::WidgetInfo::labeled(egui::Role::Label, true, format!("{parts} parts of {}: {outcome}", Bytes(bytes)))
            });
            let (p, at) = (ui.painter(), columns(rect));
            label::text_in(p, at[0], &count(parts), Type::Mono, t.text1);
            if at[1].width() > 24.0 {
                let colour = match fits {
                    Fits::Never => t.red,
                    Fits::IfAllIsFreed => t.other,
                    Fits::AsItWas => t.slot(2),
                };
                let mut bar = Bar::new(greatest).part(bytes as f64, colour).tick(a.most_free() as f64, t.text1);
                if let Some(free) = a.device_free_known() {
                    bar = bar.tick(free as f64, t.text2);
                }
                bar.paint(p, t, at[1]);
            }
            label::figure(p, at[2], &Bytes(bytes).to_string(), ink);
            let face = if fits == Fits::AsItWas { Type::Strong } else { Type::Body };
            label::text_in_right(p, at[3], outcome, face, ink);
        }
    });
}
