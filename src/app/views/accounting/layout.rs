//! Where the bars of the waterfall begin and end. Only arithmetic.

use vramscope_core::diagnose::accounting::{Part, Waterfall};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub part: Part,
    pub bytes: u64,
    /// Left edge, as a share of the width.
    pub from: f64,
    /// Right edge, as a share of the width.
    pub to: f64,
    /// The bar is cut, because it is longer than all others together.
    pub is_broken: bool,
}

/// The width of a cut bar, as a share.
const CUT: f64 = 0.2;

/// The share of the width that one byte takes in bars that are not cut.
pub(super) fn share_of_a_byte(waterfall: &Waterfall) -> f64 {
    let whole = stairs(waterfall).into_iter().filter(|s| !s.is_broken && s.bytes > 0).max_by_key(|s| s.bytes);
    whole.map_or(0.0, |s| (s.to - s.from) / s.bytes as f64)
}

/// The rows with known bytes, each beginning where the previous one ends.
pub(super) fn stairs(waterfall: &Waterfall) -> Vec<Step> {
    let told = || waterfall.rows.iter().filter_map(|r| Some((r.part, r.bytes?)));
    let sum = |parts: &dyn Fn(Part) -> bool| told().filter(|r| parts(r.0)).map(|r| r.1 as f64).sum::<f64>();
    let free = sum(&|p| p == Part::DeviceFree);
    let others = sum(&|p| p != Part::DeviceFree);
    let is_cut = free > others && others > 0.0;
    let (start, scale) = if is_cut { (CUT, (1.0 - CUT) / others) } else { (0.0, 1.0 / (free + others).max(1.0)) };
    let mut at = 0.0;
    told()
        .map(|(part, bytes)| {
            let is_broken = is_cut && part == Part::DeviceFree;
            let length = if is_broken { start } else { bytes as f64 * scale };
            let from = at;
            at += length;
            Step { part, bytes, from, to: at.min(1.0), is_broken }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::diagnose::accounting::Row;

    fn waterfall(rows: &[(Part, Option<u64>)]) -> Waterfall {
        Waterfall { total: None, reserved: None, rows: rows.iter().map(|&(part, bytes)| Row { part, bytes }).collect() }
    }

    #[test]
    fn each_bar_begins_where_the_last_ended() {
        let steps = stairs(&waterfall(&[
            (Part::DeviceFree, Some(10)),
            (Part::Driver, None),
            (Part::CachedWhole, Some(30)),
            (Part::Requested, Some(60)),
        ]));
        let places: Vec<(u64, f64, f64)> = steps.iter().map(|s| (s.bytes, s.from, s.to)).collect();
        assert_eq!(places, [(10, 0.0, 0.1), (30, 0.1, 0.4), (60, 0.4, 1.0)]);
        assert!(steps.iter().all(|s| !s.is_broken));
        let rows = [(Part::DeviceFree, Some(10)), (Part::CachedWhole, Some(30)), (Part::Requested, Some(60))];
        assert!((share_of_a_byte(&waterfall(&rows)) - 0.01).abs() < 1e-9, "categories take it up");
    }

    #[test]
    fn a_free_card_is_cut_so_that_the_rest_can_be_read() {
        let steps =
            stairs(&waterfall(&[(Part::DeviceFree, Some(100_000)), (Part::CachedWhole, Some(25)), (Part::Requested, Some(75))]));
        assert!(steps[0].is_broken && !steps[1].is_broken);
        assert!((steps[0].to - CUT).abs() < 1e-9 && (steps[1].to - 0.4).abs() < 1e-9 && (steps[2].to - 1.0).abs() < 1e-9);
        assert_eq!(stairs(&waterfall(&[(Part::Requested, Some(0))]))[0].to, 0.0);
    }
}
