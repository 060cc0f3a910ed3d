//! The help pages: how to record with each framework, the manual, and about this program.

mod markdown;
mod recipes;

use egui::{ScrollArea, Ui, UiBuilder, vec2};

use super::frame::dialog;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{ListRow, label, pane};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::app) enum Page {
    Record,
    Chapter(usize),
    About,
}

pub(in crate::app) struct Reading {
    page: Page,
    /// The line of code that the recording lacks, and how often its recipe was scrolled into view. The page needs several frames
    /// until its layout is final.
    asked: Option<(String, u8)>,
}

impl From<Page> for Reading {
    fn from(page: Page) -> Self {
        Reading { page, asked: None }
    }
}

impl Reading {
    /// Opens the page of recipes at the recipe for a line of code.
    pub(in crate::app) fn how_to_record(line: String) -> Self {
        Reading { page: Page::Record, asked: Some((line, 0)) }
    }
}

/// The chapters of the manual, embedded from the repository's docs.
const CHAPTERS: [(&str, &str); 11] = [
    ("Manual", include_str!("../../../../docs/MANUAL.md")),
    ("Watch and catch", include_str!("../../../../docs/LIVE.md")),
    ("Findings", include_str!("../../../../docs/FINDINGS.md")),
    ("What-if", include_str!("../../../../docs/WHATIF.md")),
    ("Plan", include_str!("../../../../docs/PLAN.md")),
    ("Probe", include_str!("../../../../docs/PROBE.md")),
    ("Export and gates", include_str!("../../../../docs/EXPORT.md")),
    ("Reports and agents", include_str!("../../../../docs/REPORT.md")),
    ("Formats", include_str!("../../../../docs/FORMATS.md")),
    ("Trust", include_str!("../../../../docs/TRUST.md")),
    ("Speed and memory", include_str!("../../../../docs/PERFORMANCE.md")),
];

impl Page {
    fn all() -> impl Iterator<Item = Page> {
        [Page::Record].into_iter().chain((0..CHAPTERS.len()).map(Page::Chapter)).chain([Page::About])
    }

    fn name(self) -> &'static str {
        match self {
            Page::Record => "Record",
            Page::Chapter(i) => CHAPTERS.get(i).map_or("", |c| c.0),
            Page::About => "About vramscope",
        }
    }
}

/// True when it should close.
pub(in crate::app) fn draw(reading: &mut Reading, ui: &mut Ui, t: &Tokens) -> bool {
    let Reading { page, asked } = reading;
    let window = ui.ctx().content_rect().size();
    let size = vec2(900.0f32.min(window.x - 64.0), (window.y - 110.0).clamp(200.0, 760.0));
    let ((), is_closed) = dialog(ui, t, "guide", ("Guide", size.x), |ui, _| {
        ui.add_space(10.0);
        let (rect, _) = ui.allocate_exact_size(size - vec2(0.0, 40.0), egui::Sense::hover());
        let split = rect.left() + NAMES;
        let mut left = ui.new_child(UiBuilder::new().id_salt("pages").max_rect(rect.with_max_x(split - 16.0)));
        for each in Page::all() {
            let row = ListRow::new(each.name()).height(26.0).selected(each == *page);
            let is_chosen = row.show(&mut left, |ui| {
                ui.add(egui::Label::new(Type::Body.text(each.name()).color(t.text1)).selectable(false));
            });
            if is_chosen.clicked() {
                *page = each;
            }
        }
        let mut right = ui.new_child(UiBuilder::new().id_salt("page").max_rect(rect.with_min_x(split)));
        ScrollArea::vertical().id_salt(page.name()).auto_shrink(false).show(&mut right, |ui| {
            // Keeps the text away from the scroll bar.
            ui.set_max_width(ui.available_width() - 14.0);
            match *page {
                Page::Record => recipes::draw(ui, t, asked.as_mut()),
                Page::Chapter(i) => markdown::draw(ui, t, CHAPTERS.get(i).map_or("", |c| c.1)),
                Page::About => about(ui, t),
            }
        });
    });
    is_closed
}

/// Width of the list of pages.
const NAMES: f32 = 176.0;

fn about(ui: &mut Ui, t: &Tokens) {
    label::paragraph(ui, concat!("vramscope ", env!("CARGO_PKG_VERSION")), Type::LeadStrong, t.text1);
    ui.add_space(6.0);
    let what = "Shows where a PyTorch program's GPU memory went and why it ran out. Opening a file needs no GPU, no Python and no network, and \
                never runs anything that the file contains. Nothing leaves this machine.";
    label::paragraph(ui, what, Type::Body, t.text2);
    ui.add_space(10.0);
    pane::rule(ui);
    ui.add_space(10.0);
    let licence = "MIT or Apache-2.0, as you like. Fonts: Inter and JetBrains Mono, under the SIL Open Font License 1.1.";
    label::paragraph(ui, licence, Type::Body, t.text2);
    ui.add_space(6.0);
    let machine = format!("{} on {}.", std::env::consts::OS, std::env::consts::ARCH);
    label::rich_paragraph(ui, &format!("{machine} What this machine has: `vramscope doctor`"), Type::Body, t.text2, t.text1);
}
