//! The legend of block colours, in one row: under the timeline, or under the segment map when there is no timeline.

use std::sync::Arc;

use egui::{Rect, Ui};

use super::ViewContext;
use crate::app::data::colours::{Class, Colours, Paint};
use crate::app::data::device::DeviceData;
use crate::app::jobs::Derived;
use crate::app::jobs::identity::Identity;
use crate::app::state::{Action, ColourBy};
use crate::app::widgets::label::without_middle_letters;
use crate::app::widgets::{Figures, LegendEntry, Swatch, Term, Tip, legend_row, pane};
use vramscope_core::model::Beyond;
use vramscope_core::tables::{Quantity, State, without_stack};
use vramscope_core::units::{Bytes, GIBIBYTE, MEBIBYTE, NBSP, count};

/// The tooltip's note on memory that a trace's total counts but its blocks do not.
pub(super) const NO_BLOCKS: &str = "PyTorch's own total says so. The trace has no block and no stack for it.";

pub(super) const HEIGHT: f32 = 24.0;

/// What the legend counts at the cursor.
struct Counted {
    counts: ClassCounts,
    figures: Figures,
}

#[derive(Default)]
pub(super) struct BlockLegend {
    counts: Derived<(Identity, Identity), Counted>,
    /// The order is fixed when these colours are first drawn, so that names stay in place while the cursor moves.
    order: Option<(Identity, Vec<usize>)>,
}

impl BlockLegend {
    /// Draws the legend over a strip, with entries from `start` points on. A click dims the other classes.
    pub(super) fn ui(&mut self, ui: &mut Ui, cx: &ViewContext<'_>, rect: Rect, start: f32) {
        let counts = cx.state.and_then(|state| {
            let (data, state, colours) = (Arc::clone(cx.data), Arc::clone(state), Arc::clone(cx.colours));
            let key = (Identity::of(&state), Identity::of(&colours));
            let job = move |_: &_| {
                let figures = Figures::of(&data, &state);
                Some(Counted { counts: ClassCounts::of(&data, &state, &colours), figures })
            };
            self.counts.get(cx.jobs, "class counts", &key, job).value
        });
        let figures = counts.as_ref().map(|c| c.figures);
        let counts = counts.as_ref().map(|c| &c.counts).filter(|c| c.blocks.len() == cx.colours.classes.len());
        let focus = &cx.shared.focus_classes;
        let bright = cx.shared.hover_class.as_ref().map_or(focus.as_slice(), std::slice::from_ref);
        let names: Vec<&str> = cx.colours.classes.iter().map(|c| c.name.as_str()).collect();
        let (unit, names) = without_unit(&names, cx.shared.colour_by);
        let colours = Identity::of(cx.colours);
        let mut order = match &self.order {
            Some((of, order)) if *of == colours => order.clone(),
            _ => legend_order(&cx.colours.classes, counts.map(|c| c.bytes.as_slice()), cx.shared.colour_by),
        };
        if let Some(counts) = counts.filter(|_| !matches!(cx.shared.colour_by, ColourBy::SizeClass | ColourBy::Age)) {
            self.order = Some((colours, order.clone()));
            // Classes without bytes at the cursor come last.
            order.sort_by_key(|&class| counts.bytes[class] == 0);
        }
        let sums = counts.map(|c| Sums::of(c, cx.shared.colour_by)).unwrap_or_default();
        // Roles that hold almost nothing are left out, to make room for the others.
        let is_shown = |i: &usize| {
            cx.shared.colour_by != ColourBy::Role
                || sums == Sums::Sized
                || focus.contains(&(*i as u8))
                || counts.is_none_or(|c| c.bytes[*i] >= MEBIBYTE / 2)
        };
        let order: Vec<usize> = order.into_iter().filter(is_shown).collect();
        let mut entries: Vec<LegendEntry> = order
            .iter()
            .filter_map(|&i| Some((i, cx.colours.classes.get(i)?)))
            .map(|(i, class)| {
                let is_dim = !bright.is_empty() && !bright.contains(&(i as u8));
                let blocks = counts.map(|c| count(c.blocks[i])).unwrap_or_default();
                let bytes = counts.map(|c| Bytes(c.bytes[i]).to_string()).unwrap_or_default();
                // Beside size classes, a sum would look like another size. The tooltip shows it instead.
                let is_size = cx.shared.colour_by == ColourBy::SizeClass;
                let value = counts.filter(|_| !is_size).map(|c| sums.text(c.bytes[i])).unwrap_or_default();
                let name = without_middle_letters(&names[i], 10, 21);
                let entry = LegendEntry::new(Swatch::Fill(class.paint.colour(cx.tokens)), name).dimmed(is_dim);
                let entry = if class.paint == Paint::Other { entry } else { entry.mono() };
                let tip = Tip::new(class.name.as_str())
                    .swatch(class.paint.colour(cx.tokens))
                    .row("live blocks at the cursor", blocks.as_str())
                    .row("their bytes", bytes.as_str())
                    .note("Click dims the others, again brings them back; Ctrl + click chooses several.");
                entry.value(value).tip(tip)
            })
            .collect();
        let mut classes = order;
        let is_there = |class: &usize| counts.is_none_or(|c| c.bytes.get(*class).is_some_and(|&n| n > 0));
        let is_ramp = matches!(cx.shared.colour_by, ColourBy::SizeClass | ColourBy::Age);
        let mut shown = if is_ramp { classes.len() } else { classes.iter().take_while(|c| is_there(c)).count() };
        let has_segments = cx.data.tables.curves.peak(Quantity::Reserved).0 > 0;
        let free = counts.map(|c| sums.text(c.free)).unwrap_or_default();
        if let Some(counts) = counts {
            // A ramp keeps its order, so entries that are not on it come first.
            let first = if is_ramp { 0 } else { shown };
            for (at, (part, bytes)) in (first..).zip(counts.beyond.stacks()) {
                let (name, paint) = (without_stack(part), cx.tokens.beyond(part));
                let tip = Tip::new(name).row("at the cursor", Bytes(bytes)).note(NO_BLOCKS);
                entries.insert(at, LegendEntry::new(Swatch::Fill(paint), name).value(sums.text(bytes)).tip(tip));
                classes.insert(at, usize::MAX);
                shown += 1;
            }
        }
        if has_segments {
            let tip = figures.map(|figures| Term::Inactive.tip(&figures, cx.words()));
            let entry = LegendEntry::new(Swatch::Free, "free").value(free);
            let entry = match tip {
                Some(tip) => entry.tip(tip),
                None => entry,
            };
            // Insert before the classes without bytes at the cursor.
            entries.insert(shown, entry);
            classes.insert(shown, usize::MAX);
        }
        let name = match cx.shared.colour_by {
            ColourBy::Stack => "Stack",
            ColourBy::Role => "Role",
            ColourBy::SizeClass => "Block size",
            ColourBy::Age => "Age",
            ColourBy::Stream => "Stream",
            ColourBy::Pool => "Pool",
            ColourBy::Segment => "Segment",
        };
        let unit = match sums {
            Sums::Sized => unit,
            Sums::Mebibytes => "MiB",
            Sums::Gibibytes => "GiB",
        };
        let name = if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") };
        let mut row = pane::child(ui, rect, "legend");
        let trailing = match cx.shared.colour_by {
            _ if rect.width() <= 620.0 => "",
            _ if cx.data.device().events.is_empty() => "at the end",
            _ => "at the cursor",
        };
        if let Some(click) = legend_row(&mut row, &name, start, &entries, trailing)
            && let Some(&class) = classes.get(click.entry).filter(|&&c| c != usize::MAX)
        {
            cx.actions.send(Action::SetFocusClasses(toggled(focus, class as u8, click.several)));
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ClassCounts {
    /// Blocks of each class of the legend.
    blocks: Vec<u64>,
    bytes: Vec<u64>,
    /// Bytes reserved and not in a live block.
    free: u64,
    /// What a trace's total counts beyond its blocks.
    beyond: Beyond,
}

impl ClassCounts {
    fn of(data: &DeviceData, state: &State, colours: &Colours) -> Self {
        let mut counts = ClassCounts {
            blocks: vec![0; colours.classes.len()],
            bytes: vec![0; colours.classes.len()],
            ..ClassCounts::default()
        };
        for block in &state.blocks {
            if !block.lifetime.is_some() {
                counts.free += block.size;
                continue;
            }
            let class = usize::from(colours.class_of(data, block.lifetime, state.event));
            if let Some(n) = counts.blocks.get_mut(class) {
                *n += 1;
                counts.bytes[class] += block.size;
            }
        }
        counts.beyond = data.device().source_totals.beyond_parts(state.event, counts.bytes.iter().sum());
        if !data.tables.curves.has_all_segments() {
            counts.free = state.totals.reserved.saturating_sub(state.totals.active);
        }
        counts
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sums {
    /// Each value with its own unit.
    #[default]
    Sized,
    /// In whole MiB. The unit is written once, before them.
    Mebibytes,
    /// In GiB when one value is that large, as on the axis and in the table of roles.
    Gibibytes,
}

impl Sums {
    /// Whole MiB when a value is large enough for that and the class names have no unit of their own.
    fn of(counts: &ClassCounts, by: ColourBy) -> Self {
        let most = counts.bytes.iter().chain([&counts.free, &counts.beyond.before, &counts.beyond.grew]).max();
        match most.copied().unwrap_or(0) {
            _ if matches!(by, ColourBy::SizeClass | ColourBy::Age) => Sums::Sized,
            GIBIBYTE.. => Sums::Gibibytes,
            n if n >= 10 * MEBIBYTE => Sums::Mebibytes,
            _ => Sums::Sized,
        }
    }

    fn text(self, bytes: u64) -> String {
        match self {
            Sums::Sized => Bytes(bytes).to_string(),
            Sums::Mebibytes if (1..MEBIBYTE / 2).contains(&bytes) => "<1".to_owned(),
            Sums::Mebibytes => count((bytes + MEBIBYTE / 2) / MEBIBYTE),
            Sums::Gibibytes if bytes == 0 => "0".to_owned(),
            Sums::Gibibytes if bytes < GIBIBYTE / 200 => "<0.01".to_owned(),
            Sums::Gibibytes => format!("{:.2}", bytes as f64 / GIBIBYTE as f64),
        }
    }
}

/// The order of the classes: those with most bytes at the cursor first, then those without a colour of their own, then those
/// without bytes. Ramps keep their order.
fn legend_order(classes: &[Class], bytes: Option<&[u64]>, by: ColourBy) -> Vec<usize> {
    let mut order: Vec<usize> = (0..classes.len()).collect();
    if let Some(bytes) = bytes.filter(|_| !matches!(by, ColourBy::SizeClass | ColourBy::Age)) {
        let of = |i: usize| bytes.get(i).copied().unwrap_or(0);
        order.sort_by_key(|&i| (of(i) == 0, classes[i].paint == Paint::Other, std::cmp::Reverse(of(i)), i));
    }
    order
}

/// Takes a unit that all size classes share out of their names. Returns the unit and the shorter names.
fn without_unit(names: &[&str], by: ColourBy) -> (&'static str, Vec<String>) {
    let whole = || names.iter().map(|&n| n.to_owned()).collect();
    if by != ColourBy::SizeClass {
        return ("", whole());
    }
    let unit = ["KiB", "MiB", "GiB"].into_iter().find(|u| names.iter().all(|n| n.ends_with(u)));
    match unit {
        Some(unit) => {
            let suffix = format!("{NBSP}{unit}");
            // "3 MiB – 4 MiB" becomes "3–4". A name that mixes units ("512 KiB – 1 MiB") keeps them.
            (unit, names.iter().map(|n| n.replace(&suffix, "").replace(" – ", "–")).collect())
        }
        None => ("", whole()),
    }
}

/// The classes in focus after a click on one: only that class, or all again. With `several`, the click adds or removes the class.
fn toggled(focus: &[u8], class: u8, several: bool) -> Vec<u8> {
    if several {
        let mut next: Vec<u8> = focus.iter().copied().filter(|&c| c != class).collect();
        if next.len() == focus.len() {
            next.push(class);
        }
        return next;
    }
    if focus == [class] { Vec::new() } else { vec![class] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_the_unit_of_the_largest() {
        let counts = |bytes: &[u64]| ClassCounts { bytes: bytes.to_vec(), ..ClassCounts::default() };
        let texts = |bytes: [u64; 3]| bytes.map(|n| Sums::of(&counts(&bytes), ColourBy::Role).text(n));
        assert_eq!(texts([878 * MEBIBYTE, 300, 0]), ["878", "<1", "0"]);
        assert_eq!(texts([2878 * MEBIBYTE, 300, 0]), ["2.81", "<0.01", "0"]);
        assert_eq!(Sums::of(&counts(&[2878 * MEBIBYTE]), ColourBy::SizeClass), Sums::Sized, "sizes have a unit of their own");
        assert_eq!(Sums::of(&counts(&[9 * MEBIBYTE]), ColourBy::Role).text(512), "512\u{a0}B");
    }

    #[test]
    fn the_legend_leads_with_what_is_there() {
        let class = |paint| Class { name: "a".to_owned(), paint };
        let classes = [class(Paint::Slot(0)), class(Paint::Slot(1)), class(Paint::Slot(2)), class(Paint::Other)];
        assert_eq!(legend_order(&classes, Some(&[0, 5, 9, 7]), ColourBy::Stack), [2, 1, 3, 0]);
        assert_eq!(legend_order(&classes, Some(&[0, 5, 9, 7]), ColourBy::Age), [0, 1, 2, 3]);
        assert_eq!(legend_order(&classes, None, ColourBy::Stack), [0, 1, 2, 3]);
    }

    #[test]
    fn size_classes_name_their_unit_once() {
        let names = ["<\u{20}3.25\u{a0}MiB", "3.25\u{a0}MiB – 4\u{a0}MiB", "≥ 4\u{a0}MiB"];
        let (unit, short) = without_unit(&names, ColourBy::SizeClass);
        assert_eq!((unit, short), ("MiB", vec!["< 3.25".to_owned(), "3.25–4".to_owned(), "≥ 4".to_owned()]));
        assert_eq!(without_unit(&["< 3\u{a0}KiB", "≥ 3\u{a0}MiB"], ColourBy::SizeClass).0, "");
        assert_eq!(without_unit(&["a MiB"], ColourBy::Stack).0, "");
    }

    #[test]
    fn clicks_on_the_legend_choose_one_or_several_classes() {
        assert_eq!(toggled(&[], 2, false), vec![2]);
        assert_eq!(toggled(&[2], 2, false), Vec::<u8>::new());
        assert_eq!(toggled(&[2], 3, false), vec![3]);
        assert_eq!(toggled(&[2], 3, true), vec![2, 3]);
        assert_eq!(toggled(&[2, 3], 2, true), vec![3]);
    }

    #[test]
    fn long_names_keep_their_place() {
        assert_eq!(without_middle_letters("workloads.py:21", 10, 21), "workloads.py:21");
        let cut = without_middle_letters("cj3mlx6kifza5zozfocwmlvrwitgh53x53x77jiv6vmqoqlteoin.py:1271", 10, 21);
        assert!(cut.ends_with("teoin.py:1271") && cut.starts_with("cj3ml") && cut.chars().count() == 32, "{cut}");
    }
}
