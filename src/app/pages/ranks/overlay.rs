//! The curves of the chosen ranks on top of each other, to show where two ranks of a job diverge.

use egui::{Ui, Vec2b};
use egui_plot::{HoverPosition, Line, LineStyle, Plot, PlotPoints};

use super::Ranks;
use super::pictures::ink;
use crate::app::theme::{Tokens, Type};
use crate::app::widgets::{byte_unit, label};
use vramscope_core::compare::ranks::RankRow;
use vramscope_core::units::{Bytes, count};

/// Draws reserved and active of A and B over their runs, `height` points high; nothing when none is chosen.
pub fn overlay(page: &Ranks, ui: &mut Ui, t: &Tokens, height: f32) {
    // A rank has the colour of its bar. A row of another job than the one on screen has no bar.
    let ink = |row: &RankRow| page.rows().iter().position(|r| std::ptr::eq(r, row)).map_or(t.other, |at| ink(page, t, at));
    let chosen: Vec<(&RankRow, egui::Color32)> =
        [0, 1].into_iter().filter_map(|slot| page.chosen_row(slot)).map(|row| (row, ink(row))).collect();
    let Some(greatest) = chosen.iter().map(|(row, _)| row.peak_reserved).max() else { return };
    let (unit, divisor) = byte_unit(greatest as f64);
    ui.horizontal(|ui| {
        ui.add_space(16.0);
        let mut words = |text: String, ink| {
            let galley = label::galley(ui.painter(), &text, Type::Caption, ink);
            let (rect, _) = ui.allocate_exact_size(galley.size(), egui::Sense::hover());
            ui.painter().galley(rect.min, galley, ink);
        };
        words(format!("Reserved (thick) and active (thin), {unit}, over each run"), t.text3);
        for (slot, (row, ink)) in chosen.iter().enumerate() {
            let dashed = if slot > 0 { " (dashed)" } else { "" };
            words(format!("{}{dashed}", page.name_of(row)), *ink);
        }
    });
    let points = |values: &[u64]| -> PlotPoints<'static> {
        let most = values.len().saturating_sub(1).max(1) as f64;
        values.iter().enumerate().map(|(i, v)| [100.0 * i as f64 / most, *v as f64 / divisor]).collect()
    };
    // `egui_plot` labels its axes in the body style, and figures are monospaced here.
    ui.style_mut().text_styles.insert(egui::TextStyle::Body, Type::Mono.font());
    Plot::new("ranks over one another")
        .height(height)
        .show_background(false)
        .show_grid(false)
        .allow_scroll(false)
        .allow_zoom(Vec2b::new(true, false))
        .allow_drag(Vec2b::new(true, false))
        .allow_boxed_zoom(false)
        .include_y(0.0)
        .x_axis_formatter(|mark, _| format!("{:.0} %", mark.value))
        .y_axis_formatter(|mark, _| if mark.step_size < 1.0 { format!("{:.1}", mark.value) } else { count(mark.value as u64) })
        .label_formatter(move |hover| match hover {
            HoverPosition::NearDataPoint { plot_name, position, .. } => {
                Some(format!("{plot_name}\n{} at {:.0} % of the run", Bytes((position.y * divisor) as u64), position.x))
            }
            HoverPosition::Elsewhere { .. } => None,
        })
        .show(ui, |plot| {
            for (slot, (row, ink)) in chosen.into_iter().enumerate() {
                let name = page.name_of(row);
                // Two ranks of a job are often alike, so the second one is dashed and does not cover the first.
                let style = if slot > 0 { LineStyle::Dashed { length: 8.0 } } else { LineStyle::Solid };
                let line = |what: &str, values: &[u64], ink, width| {
                    Line::new(format!("{name}, {what}"), points(values)).color(ink).width(width).style(style)
                };
                plot.line(line("reserved", &row.reserved, ink, 2.0));
                plot.line(line("active", &row.active, Tokens::at(ink, 0.6), 1.0));
            }
        });
}
