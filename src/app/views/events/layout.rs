//! Where the columns of the events table lie.

use crate::app::widgets::table::fit;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Event,
    /// Milliseconds since the first event, to the microsecond.
    Time,
    Action,
    /// Size in bytes.
    Size,
    /// Block or segment address.
    Address,
    /// Index of the stream.
    Stream,
    /// The user's own frames of the stack.
    Stack,
}

impl Column {
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

    /// True for figures, which are right aligned.
    pub fn is_figure(self) -> bool {
        matches!(self, Column::Event | Column::Time | Column::Size | Column::Stream)
    }

    /// Its width; `events` is the number of the last event.
    fn width(self, events: usize) -> f32 {
        match self {
            Column::Event => (vramscope_core::units::count(events as u64).len() as f32 * 6.7).max(36.0).ceil() + 2.0,
            Column::Time => 82.0,
            // "segment unmap", the longest, after its swatch.
            Column::Action => 116.0,
            Column::Size => 76.0,
            // An address, or "134.31 GiB free" beside a request that failed.
            Column::Address => 104.0,
            Column::Stream => 40.0,
            Column::Stack => 84.0,
        }
    }
}

/// The columns that fit `width` points, with their left and right edges. The last one takes what is left; those that say
/// least go first when it gets narrow.
pub fn columns(width: f32, has_time: bool, events: usize) -> Vec<(Column, f32, f32)> {
    use Column as C;
    let mut shown = vec![C::Event, C::Time, C::Action, C::Size, C::Address, C::Stream, C::Stack];
    if !has_time {
        shown.retain(|c| *c != C::Time);
    }
    let shown = shown.into_iter().map(|c| (c, c.width(events))).collect();
    fit(shown, &[C::Stream, C::Address, C::Time, C::Stack], C::Stack, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_or_go() {
        let all = columns(900.0, true, 50_000_000);
        assert_eq!(all.len(), 7);
        assert_eq!(all.last().map(|c| (c.0, c.2)), Some((Column::Stack, 888.0)));
        assert!(all.windows(2).all(|w| w[0].2 + 12.0 == w[1].1));
        assert_eq!(columns(900.0, false, 9).len(), 6);
        let few = columns(320.0, true, 30_000);
        assert!(few.iter().any(|c| c.0 == Column::Event) && few.iter().any(|c| c.0 == Column::Size), "{few:?}");
        assert!(columns(10.0, true, 9).len() >= 3);
    }
}
