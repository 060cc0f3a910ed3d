//! Where rows and columns of the events table lie. Scroll positions count rows in f64, so the table is exact at any length.

/// A place in a list of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scroll {
    /// The row at the top edge; its fraction is how much of it is above.
    pub top: f64,
}

impl Scroll {
    /// Keeps the place inside a list of `rows`, of which `seen` fit.
    pub fn clamp(&mut self, rows: usize, seen: f64) {
        self.top = self.top.clamp(0.0, (rows as f64 - seen).max(0.0));
    }

    /// Moves as little as shows a row whole; a row that was far away comes to the middle.
    pub fn reveal(&mut self, row: usize, seen: f64) {
        let row = row as f64;
        if row < self.top || row + 1.0 > self.top + seen {
            let is_near = row > self.top - 2.0 && row < self.top + seen + 1.0;
            self.top = match (is_near, row < self.top) {
                (true, true) => row,
                (true, false) => row + 1.0 - seen,
                (false, _) => (row - (seen - 1.0) / 2.0).floor(),
            };
        }
    }

    /// Top and length of the scroll bar's handle in a track of `track` points; `None` when every row is seen.
    #[must_use]
    pub fn handle(&self, rows: usize, seen: f64, track: f32) -> Option<(f32, f32)> {
        let hidden = rows as f64 - seen;
        if hidden <= 0.0 {
            return None;
        }
        let length = (f64::from(track) * seen / rows as f64).max(24.0).min(f64::from(track));
        Some((((f64::from(track) - length) * self.top / hidden) as f32, length as f32))
    }

    /// Moves the handle's top to `at` points from the track's top.
    pub fn drag(&mut self, at: f32, rows: usize, seen: f64, track: f32) {
        if let Some((_, length)) = self.handle(rows, seen, track) {
            let room = (track - length).max(1.0);
            self.top = f64::from(at.clamp(0.0, room)) / f64::from(room) * (rows as f64 - seen);
        }
    }
}

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Its number.
    Event,
    /// Milliseconds since the first event, to the microsecond.
    Time,
    /// What happened.
    Action,
    /// Bytes.
    Size,
    /// Block or segment address.
    Address,
    /// Index of the stream.
    Stream,
    /// Short name of the stack.
    Stack,
}

impl Column {
    /// Its header.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Column::Event => "event",
            Column::Time => "time, ms",
            Column::Action => "action",
            Column::Size => "size",
            Column::Address => "address",
            Column::Stream => "stream",
            Column::Stack => "stack",
        }
    }

    /// True for figures: they stand right aligned.
    #[must_use]
    pub fn is_figure(self) -> bool {
        matches!(self, Column::Event | Column::Time | Column::Size | Column::Stream)
    }

    /// Its width; `events` is the number of the last event.
    fn width(self, events: usize) -> f32 {
        match self {
            Column::Event => (crate::units::count(events as u64).len() as f32 * 6.7).max(36.0).ceil() + 2.0,
            Column::Time => 82.0,
            Column::Action => 100.0,
            Column::Size => 76.0,
            Column::Address => 96.0,
            Column::Stream => 40.0,
            Column::Stack => 84.0,
        }
    }
}

/// Gap between columns.
const GAP: f32 = 12.0;
/// Space at both sides.
const PAD: f32 = 12.0;

/// The columns that fit `width` points, with their left and right edges. The last one takes what is left; those that say
/// least go first when it gets narrow.
#[must_use]
pub fn columns(width: f32, has_time: bool, events: usize) -> Vec<(Column, f32, f32)> {
    use Column as C;
    let mut shown = vec![C::Event, C::Time, C::Action, C::Size, C::Address, C::Stream, C::Stack];
    if !has_time {
        shown.retain(|c| *c != C::Time);
    }
    let needed = |shown: &[C]| shown.iter().map(|c| c.width(events) + GAP).sum::<f32>() - GAP + 2.0 * PAD;
    for column in [C::Stream, C::Address, C::Time, C::Stack] {
        if needed(&shown) <= width {
            break;
        }
        shown.retain(|c| *c != column);
    }
    let mut x = PAD;
    let last = shown.len() - 1;
    shown
        .iter()
        .enumerate()
        .map(|(i, &c)| {
            let right = if i == last && c == C::Stack { (width - PAD).max(x + c.width(events)) } else { x + c.width(events) };
            let place = (c, x, right);
            x = right + GAP;
            place
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_million_rows_are_exact_to_the_row() {
        let rows = 50_000_000;
        let mut s = Scroll::default();
        s.reveal(49_999_998, 20.0);
        s.clamp(rows, 20.0);
        assert_eq!(s.top, 49_999_980.0);
        s.reveal(25_000_001, 20.0);
        assert_eq!(s.top, 24_999_991.0, "in the middle, on a whole row");
        let before = s;
        s.reveal(25_000_005, 20.0);
        assert_eq!(s, before, "what is seen stays where it is");
        s.top += 0.1;
        assert!((s.top - before.top - 0.1).abs() < 1e-6, "a tenth of a row is not lost");
        let (top, length) = s.handle(rows, 20.0, 400.0).unwrap();
        assert!(length >= 24.0 && top + length <= 400.0);
        s.drag(376.0, rows, 20.0, 400.0);
        assert_eq!(s.top, 49_999_980.0);
    }

    #[test]
    fn a_neighbour_scrolls_by_a_row() {
        let mut s = Scroll { top: 10.0 };
        s.reveal(30, 20.0);
        assert_eq!(s.top, 11.0);
        s.reveal(10, 20.0);
        assert_eq!(s.top, 10.0);
        s.clamp(5, 20.0);
        assert_eq!(s.top, 0.0);
        assert_eq!(s.handle(5, 20.0, 100.0), None);
    }

    #[test]
    fn columns_fit_or_go() {
        let all = columns(900.0, true, 50_000_000);
        assert_eq!(all.len(), 7);
        assert_eq!(all.last().map(|c| (c.0, c.2)), Some((Column::Stack, 888.0)));
        assert!(all.windows(2).all(|w| w[0].2 + GAP == w[1].1));
        assert_eq!(columns(900.0, false, 9).len(), 6);
        let few = columns(320.0, true, 30_000);
        assert!(few.iter().any(|c| c.0 == Column::Event) && few.iter().any(|c| c.0 == Column::Size), "{few:?}");
        assert!(columns(10.0, true, 9).len() >= 3);
    }
}
