//! What the selected setting needs: the smallest limit under which it passes, and how much the batch could grow under the active
//! limit.

use std::sync::Arc;

use egui::Ui;

use super::ViewContext;
use super::model::WhatIfView;
use crate::app::data::device::DeviceData;
use crate::app::theme::Type;
use crate::app::widgets::{Push, label, link_with, pane};
use vramscope_core::inference::{Horizon, Needed};
use vramscope_core::model::{AllocConf, Cancelled, Progress};
use vramscope_core::tables::{NO_EVENT, Quantity};
use vramscope_core::units::Bytes;

/// Up to this many requests the search starts by itself. It simulates all requests about 16 times.
const QUICK: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// `None` when a request fails without any limit.
    needed: Option<Needed>,
    /// Active bytes that stay from step to step: parameters and optimizer state. `None` when the recording has no steps.
    fixed: Option<u64>,
}

/// A note on memory that PyTorch's limit does not cover.
const CARD_NEEDS_MORE: &str = "That is PyTorch's reserved memory alone. A card needs more: 450 to 700 MiB for a CUDA context, and what NCCL, other libraries and other processes hold.";

fn search(data: &DeviceData, conf: &AllocConf, progress: &Progress) -> Result<Needs, Cancelled> {
    let needed = data.what_if(progress)?.needed(conf, progress)?;
    Ok(Needs { needed, fixed: between_steps(data) })
}

/// The least active bytes at the ends of the later half of the steps. `None` for a run that ends at its failure, because it lacks
/// the later requests of a larger batch, and for a history that no longer contains the peak of a step.
fn between_steps(data: &DeviceData) -> Option<u64> {
    let device = data.device();
    if Horizon::of(device).is_some() {
        return None;
    }
    let steps = data.steps();
    if steps.len() <= 1 && data.tables.before_earlier_peak().is_some() {
        return None;
    }
    let ends: Vec<u32> = (0..steps.len()).map_while(|step| steps.over(step)).collect();
    let later = &ends[ends.len() / 2..];
    let active = |&end: &u32| data.tables.curves.at(device, &data.tables.lifetimes, Quantity::Active, end.saturating_sub(1));
    later.iter().filter(|&&e| e != NO_EVENT).map(active).min()
}

impl WhatIfView {
    pub(super) fn needs_ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>) {
        let t = cx.tokens;
        let Some(setting) = self.settings.get(self.selected) else { return };
        let (text, conf) = (setting.text.clone(), setting.conf.clone());
        let Some(own) = self.runs.own() else { return };
        let free = self.answer(self.selected, None).map(|a| a.row.peak_reserved_bytes);
        pane::section(ui, "Smallest limit", "", false);
        let is_asked = own.requests <= QUICK || self.asked_needs.contains(&text);
        if !is_asked {
            pane::padded(ui, |ui| {
                label::paragraph(ui, "The search replays every request about 16 times.", Type::Body, t.text2);
                ui.add_space(6.0);
                if Push::plain("Find the smallest limit").small().show(ui).clicked() {
                    self.asked_needs.push(text.clone());
                }
            });
            return;
        }
        let data = Arc::clone(cx.data);
        let shown = self.needs.get(cx.jobs, "smallest limit", &text, move |progress| search(&data, &conf, progress).ok());
        let found = shown.value.filter(|_| shown.is_fresh);
        pane::padded(ui, |ui| match found.as_deref() {
            None => {
                label::paragraph(ui, "Searching…", Type::Body, t.text3);
            }
            Some(Needs { needed: None, .. }) => {
                label::paragraph(ui, "A request fails even without a limit.", Type::Body, t.text2);
            }
            Some(Needs { needed: Some(needed), fixed }) => {
                let least = needed.smallest_limit_bytes;
                let sentence = format!(
                    "With this setting every request is served under a limit of {} or more. 2 MiB below, one fails.",
                    Bytes(least).limit()
                );
                label::paragraph(ui, &sentence, Type::Body, t.text1);
                if free.is_some_and(|free| Bytes(free).limit() != Bytes(least).limit() && free > least) {
                    let less = "It is less than the peak without a limit: near one, the allocator gives cached segments back.";
                    label::paragraph(ui, less, Type::Body, t.text2);
                }
                ui.add_space(2.0);
                label::paragraph(ui, &cx.words().say(CARD_NEEDS_MORE), Type::Body, t.text2);
                if self.limit() != Some(least) {
                    ui.add_space(2.0);
                    if link_with(ui, "Use it as the limit", Type::Body, None).clicked() {
                        self.choose_limit(least);
                    }
                }
                if let (Some(fixed), Some(limit)) = (*fixed, self.limit())
                    && let Some(factor) = needed.batch_headroom(fixed, limit)
                {
                    ui.add_space(4.0);
                    label::paragraph(ui, &headroom(factor, fixed, limit), Type::Body, t.text2);
                }
            }
        });
    }
}

fn headroom(factor: f64, fixed: u64, limit: u64) -> String {
    let stays = format!("{} stay from step to step", Bytes(fixed));
    if factor >= 1.005 {
        format!(
            "At {} what grows with the batch may be {factor:.2} times as large, as a first estimate; {stays}.",
            Bytes(limit).limit()
        )
    } else if factor <= 0.995 {
        let share = (factor * 100.0).floor();
        format!(
            "To fit {} what grows with the batch has to shrink to {share:.0} % or less, as a first estimate; {stays}.",
            Bytes(limit).limit()
        )
    } else {
        format!("At {} the batch is as large as it can be; {stays}.", Bytes(limit).limit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headroom_is_said_in_the_direction_it_has() {
        let m = |n: u64| n << 20;
        assert!(headroom(1.25, m(500), m(4000)).contains("1.25 times"));
        assert!(headroom(0.836, m(500), m(4000)).contains("shrink to 83 %"));
        assert!(headroom(1.0, m(500), m(4000)).contains("as large as it can be"));
    }
}
