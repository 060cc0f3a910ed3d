//! Which columns of the table fit, and where.

use crate::app::widgets::table::fit;
use vramscope_core::query::ordering::Order;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Column {
    /// Address and how many tenants it had before: `0x7f1dca2b7000_3`.
    Address,
    /// Requested bytes.
    Size,
    /// Bytes of the whole block.
    Block,
    /// Event of the allocation.
    Born,
    /// Event after which its memory was reusable.
    Gone,
    /// Number of events it lived.
    Age,
    Lived,
    /// What it is for.
    Role,
    /// Where it was allocated.
    Stack,
    /// Index of its stream.
    Stream,
    Pool,
    /// The step it was born in.
    Step,
}

impl Column {
    pub fn title(self) -> &'static str {
        match self {
            Column::Address => "allocation",
            Column::Size => "size",
            Column::Block => "block",
            Column::Born => "born",
            Column::Gone => "gone",
            Column::Age => "age, events",
            Column::Lived => "age",
            Column::Role => "role",
            Column::Stack => "allocated at",
            Column::Stream => "stream",
            Column::Pool => "pool",
            Column::Step => "step",
        }
    }

    /// What a click on the header sorts by.
    pub fn order(self) -> Order {
        match self {
            Column::Address => Order::Address,
            Column::Size => Order::Size,
            Column::Block => Order::Block,
            // Steps follow each other as births do.
            Column::Born | Column::Step => Order::Born,
            Column::Gone => Order::Gone,
            Column::Age | Column::Lived => Order::Age,
            Column::Role => Order::Role,
            Column::Stack => Order::Stack,
            Column::Stream => Order::Stream,
            Column::Pool => Order::Pool,
        }
    }

    /// True for figures, which are right aligned.
    pub fn is_figure(self) -> bool {
        !matches!(self, Column::Address | Column::Role | Column::Stack | Column::Pool)
    }

    fn width(self, events: usize) -> f32 {
        let number = (vramscope_core::units::count(events as u64).len() as f32 * 6.7).max(44.0).ceil() + 2.0;
        match self {
            // The number of earlier tenants tells allocations apart: in a long recording it has more digits.
            Column::Address => 138.0 + (events / 2).to_string().len().saturating_sub(3) as f32 * 6.7,
            Column::Size | Column::Block => 76.0,
            Column::Born | Column::Gone => number,
            Column::Age => number.max(74.0),
            Column::Lived => 66.0,
            Column::Role => 98.0,
            Column::Stack => 120.0,
            Column::Stream => 42.0,
            Column::Pool => 66.0,
            Column::Step => 36.0,
        }
    }
}

/// What the recording can tell, and so which columns make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The events have times.
    pub times: bool,
    /// Steps were found.
    pub steps: bool,
    /// More than one stream.
    pub streams: bool,
    /// Where blocks lie, and so which pool each is of.
    pub addresses: bool,
    /// Number of events; decides widths, and which columns make sense.
    pub events: usize,
}

/// The columns that fit `width` points, with their left and right edges. The stack takes what is left; those that say least
/// go first when it gets narrow.
pub fn columns(width: f32, known: Known) -> Vec<(Column, f32, f32)> {
    use Column as C;
    let mut shown =
        vec![C::Address, C::Size, C::Block, C::Role, C::Stack, C::Born, C::Gone, C::Age, C::Lived, C::Step, C::Pool, C::Stream];
    shown.retain(|c| match c {
        C::Lived => known.times,
        C::Step => known.steps,
        C::Stream => known.streams,
        C::Pool => known.addresses,
        // Without events nothing was born or lived for any number of them.
        C::Age | C::Born | C::Gone => known.events > 0,
        _ => true,
    });
    let shown = shown.into_iter().map(|c| (c, c.width(known.events))).collect();
    let goes = [C::Stream, C::Pool, C::Age, C::Block, C::Step, C::Lived, C::Gone, C::Role, C::Born, C::Stack];
    fit(shown, &goes, C::Stack, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Known = Known { times: true, steps: true, streams: true, addresses: true, events: 14_300_000 };

    #[test]
    fn columns_fit_or_go_and_the_stack_takes_the_rest() {
        let wide = columns(1400.0, ALL);
        assert_eq!(wide.len(), 12);
        assert_eq!(wide.last().map(|c| c.2), Some(1388.0));
        assert!(wide.windows(2).all(|w| w[0].2 + 12.0 == w[1].1));
        for width in [300.0, 420.0, 700.0, 900.0] {
            let fit = columns(width, ALL);
            assert!(fit.last().is_none_or(|c| c.2 <= width - 12.0 + 0.01), "{width}: {fit:?}");
            assert!(fit.iter().any(|c| c.0 == Column::Size), "{width}");
        }
        assert!(columns(10.0, ALL).len() >= 2);
        let none = columns(1400.0, Known { times: false, steps: false, streams: false, addresses: false, events: 9 });
        assert_eq!(none.len(), 8);
        let state = columns(1400.0, Known { events: 0, times: false, steps: false, streams: false, addresses: true });
        assert!(state.iter().all(|c| !matches!(c.0, Column::Age | Column::Born | Column::Gone)), "{state:?}");
    }
}
