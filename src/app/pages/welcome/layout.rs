//! Positions of the parts of the welcome page. Only arithmetic.

/// A column's left edge and width, in points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub x: f32,
    pub width: f32,
}

/// The contents of a column, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Logo, ways to start, this machine.
    Start,
    /// Recent files and samples.
    Files,
    /// How to record, and the glossary.
    Record,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Empty space above the columns.
    pub top: f32,
    pub columns: Vec<(Span, Vec<Part>)>,
}

const START: f32 = 336.0;
const FILES: f32 = 520.0;
const RECORD: f32 = 424.0;
const GAP: f32 = 64.0;

/// Lays out the page: three columns from 1,456 points on, two from 860, otherwise one.
pub fn layout(width: f32, height: f32) -> Layout {
    let wanted = START + FILES + RECORD + 2.0 * GAP;
    // In a small window the content needs this space.
    let above = if width >= wanted + 48.0 { height * 0.14 } else { height * 0.14 - 76.0 };
    let top = above.clamp(20.0, 128.0);
    let columns = if width >= wanted + 48.0 {
        let x = ((width - wanted) / 2.0).floor();
        vec![
            (Span { x, width: START }, vec![Part::Start]),
            (Span { x: x + START + GAP, width: FILES }, vec![Part::Files]),
            (Span { x: x + START + FILES + 2.0 * GAP, width: RECORD }, vec![Part::Record]),
        ]
    } else if width >= 860.0 {
        let gap = 56.0;
        let least = ((width - START - gap - FILES) / 2.0).clamp(36.0, 96.0).floor();
        let second = (width - 2.0 * least - START - gap).min(640.0);
        let margin = ((width - START - gap - second) / 2.0).floor();
        vec![
            (Span { x: margin, width: START }, vec![Part::Start]),
            (Span { x: margin + START + gap, width: second }, vec![Part::Files, Part::Record]),
        ]
    } else {
        let margin = 28.0;
        let span = Span { x: margin, width: (width - 2.0 * margin).clamp(200.0, FILES) };
        vec![(span, vec![Part::Start, Part::Files, Part::Record])]
    };
    Layout { top, columns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wide_page_is_the_designed_one() {
        let l = layout(1600.0, 912.0);
        let xs: Vec<_> = l.columns.iter().map(|(s, _)| (s.x, s.width)).collect();
        assert_eq!(xs, [(96.0, 336.0), (496.0, 520.0), (1080.0, 424.0)]);
        assert!((l.top - 128.0).abs() < 1.0);
    }

    #[test]
    fn every_width_holds_every_part_and_nothing_sticks_out() {
        for width in (320..4000).step_by(7).map(|w| w as f32) {
            let l = layout(width, 600.0);
            let parts: Vec<_> = l.columns.iter().flat_map(|(_, p)| p).collect();
            assert_eq!(parts, [&Part::Start, &Part::Files, &Part::Record]);
            for pair in l.columns.windows(2) {
                assert!(pair[0].0.x + pair[0].0.width < pair[1].0.x);
            }
            let last = l.columns[l.columns.len() - 1].0;
            assert!(last.x + last.width <= width - 20.0 || width < 420.0, "{width}: {last:?}");
        }
    }
}
