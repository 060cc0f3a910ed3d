//! A request that is too large, split into parts: how many parts are needed so that each fits.

use egui::Ui;

use crate::app::theme::Type;
use crate::app::views::ViewContext;
use crate::app::widgets::{Bar, Column, PaneHeader, Table, Width, label};
use vramscope_core::diagnose::oom::{Autopsy, Fits, Part};
use vramscope_core::units::{Bytes, count};

/// The size of one part for each number of parts, compared with what this process could get. Empty for requests that cannot be
/// split.
pub(super) fn parts(ui: &mut Ui, cx: &ViewContext<'_>, a: &Autopsy) {
    if a.parts.is_empty() {
        return;
    }
    let t = cx.tokens;
    ui.add_space(8.0);
    PaneHeader::new("The request in parts").caption("one after the other, each on its own").show(ui, |_| {});
    let most = Bytes(a.most_free());
    let marks = match a.device_free_known() {
        Some(free) => format!("marks: {} free, {most} at most", Bytes(free)),
        None => format!("mark: {most} at most"),
    };
    let room = ui.available_width() - 350.0;
    let marks = if label::width(ui.painter(), &marks, Type::Caption) <= room { marks.as_str() } else { "" };
    let greatest = a.requested.max(1) as f64;
    let said = |fits: Fits| match fits {
        Fits::Never => ("does not fit", t.text3, t.red),
        Fits::IfAllIsFreed => ("if all else is freed", t.text2, t.other),
        Fits::AsItWas => ("fits as memory was", t.text1, t.slot(2)),
    };
    let columns: Vec<Column<'_, &Part>> = vec![
        Column::text("parts", Width::Exact(56.0), |c, part: &&Part| _ = c.text(count(part.parts), Type::Mono, t.text1)),
        Column::text(marks, Width::Share(1.0, 24.0), |c, part: &&Part| {
            let bar = Bar::new(greatest).part(part.bytes as f64, said(part.fits).2).tick(a.most_free() as f64, t.text1);
            c.bar(&a.device_free_known().map_or(bar.clone(), |free| bar.tick(free as f64, t.text2)));
        }),
        Column::figure("each", 78.0, |c, part: &&Part| c.figure(Bytes(part.bytes).to_string(), said(part.fits).1)),
        Column::figure("outcome", 168.0, |c, part: &&Part| {
            let (text, ink, _) = said(part.fits);
            c.right(text, if part.fits == Fits::AsItWas { Type::Strong } else { Type::Body }, ink);
        }),
    ];
    Table::plain("parts", columns).captions().show(
        ui,
        a.parts.len(),
        |i| a.parts.get(i),
        |_, part| format!("{} parts of {}: {}", part.parts, Bytes(part.bytes), said(part.fits).0),
    );
}
