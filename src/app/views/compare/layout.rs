//! Rows of Compare and their texts. Only arithmetic.

use egui::Rect;

use crate::app::widgets::label::change;
use vramscope_core::anatomy::roles::Role;
use vramscope_core::compare::diff::{Comparison, Group, Held, Parts, Purpose, Row};
use vramscope_core::units::{Bytes, NBSP, SizeColumn, count, counted};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    A,
    B,
    #[default]
    Change,
    Ratio,
    Blocks,
}

/// The summary at the left and the table at the right; one below the other in a narrow pane.
pub(super) fn areas(pane: Rect) -> (Rect, Rect) {
    if pane.width() >= 760.0 {
        let left = (pane.width() * 0.285).clamp(300.0, 452.0);
        let x = pane.left() + left;
        (pane.with_max_x(x), pane.with_min_x(x + 1.0))
    } else {
        let y = pane.top() + (pane.height() * 0.42).min(260.0);
        (pane.with_max_y(y), pane.with_min_y(y + 1.0))
    }
}

/// For example `+2,145.83 MiB`, `−3 KiB` or `no change`.
pub(super) fn signed(bytes: i64) -> String {
    if bytes == 0 { "no change".to_owned() } else { change(bytes, |n| Bytes(n).to_string()) }
}

/// True for a change below a thousandth of what the larger side holds.
pub(super) fn is_slight(c: &Comparison, change: u64) -> bool {
    change > 0 && change.saturating_mul(1000) < c.a.bytes.max(c.b.bytes)
}

/// A note on blocks without a stack, which are not part of the comparison by block.
pub(super) fn without_stack(parts: &Parts) -> Option<String> {
    let [a, b] = parts.without_stack;
    (a.bytes + b.bytes > 0).then(|| {
        let of = |h: Held| match h.count {
            // For memory that a trace's total held before profiling, no blocks are known.
            0 if h.bytes > 0 => format!("*{}*", Bytes(h.bytes)),
            n => format!("*{}* in {}", Bytes(h.bytes), counted(n, "block", "blocks")),
        };
        format!("Without a stack: {} at A, {} at B. Nothing tells whether they are alike.", of(a), of(b))
    })
}

/// Like [`signed`], without the unit; `same` for no change.
pub(super) fn signed_figure(bytes: i64, column: SizeColumn) -> String {
    change(bytes, |n| column.figure(n))
}

/// `2.67`, or `None` when A holds nothing. Above a thousand the exact figure is useless.
pub(super) fn ratio(a: u64, b: u64) -> Option<String> {
    let times = b as f64 / a.max(1) as f64;
    (a > 0).then(|| if times >= 1000.0 { "> 999".to_owned() } else { format!("{times:.2}") })
}

/// The line beside the change: `2.67 × A, 335 blocks in each, same stacks`. Different recordings rarely share whole stacks, so
/// they are compared by place in the code.
pub(super) fn beside(c: &Comparison, groups: &[Group], is_backward: bool) -> String {
    let mut parts = Vec::new();
    if let Some(times) = ratio(c.a.bytes, c.b.bytes) {
        parts.push(format!("{times}{NBSP}× A"));
    }
    parts.push(if c.a.count == c.b.count {
        format!("{} in each", counted(c.b.count, "block", "blocks"))
    } else {
        format!("{} blocks, {} in A", count(c.b.count), count(c.a.count))
    });
    let (what, new, gone) = if c.blocks.is_some() {
        let number = |of: fn(&Row) -> u64| c.rows.iter().filter(|r| of(r) == 0).count() as u64;
        ("stack", number(|r| r.a.count), number(|r| r.b.count))
    } else {
        let number = |of: fn(&Group) -> u64| groups.iter().filter(|g| of(g) == 0).count() as u64;
        ("place", number(|g| g.a.count), number(|g| g.b.count))
    };
    let (new, gone) = if is_backward { (gone, new) } else { (new, gone) };
    let (one, many) = (format!("new {what}"), format!("new {what}s"));
    parts.push(match (new, gone) {
        (0, 0) => format!("same {what}s"),
        (n, 0) => counted(n, &one, &many),
        (0, n) => format!("{} gone", counted(n, what, &format!("{what}s"))),
        (n, m) => format!("{}, {} gone", counted(n, &one, &many), count(m)),
    });
    parts.join(", ")
}

/// A sentence on the figures: which place changed most, and how that compares with the rest.
pub(super) fn reading(c: &Comparison, groups: &[Group], name: impl Fn(&Group) -> String) -> String {
    let change = c.change();
    let Some(first) = groups.first().filter(|g| g.change() != 0) else {
        return "Nothing changed: every place holds as much as before.".to_owned();
    };
    let all: u64 = groups.iter().map(|g| g.change().unsigned_abs()).sum();
    if is_slight(c, all) {
        return format!("Almost nothing changed: the places hold {} more or less, all together.", Bytes(all));
    }
    let share = first.change().unsigned_abs() as f64 / all.max(1) as f64 * 100.0;
    let mut text = format!("*{}* changed most, by {}: {share:.0}{NBSP}% of all change.", name(first), signed(first.change()));
    let (rest_a, rest_b) = (c.a.bytes.saturating_sub(first.a.bytes), c.b.bytes.saturating_sub(first.b.bytes));
    if let (Some(own), Some(rest)) = (ratio(first.a.bytes, first.b.bytes), ratio(rest_a, rest_b))
        && change != 0
    {
        text += &format!(" It holds {own}{NBSP}× what it held at A, everything else {rest}{NBSP}×.");
    }
    text
}

/// The roles of a place, sorted by the larger of their two sides.
pub(super) fn by_weight(purposes: &[Purpose]) -> Vec<Purpose> {
    let mut order = purposes.to_vec();
    order.sort_by_key(|p| (std::cmp::Reverse(p.1.bytes.max(p.2.bytes)), p.0));
    order
}

/// The two largest roles of a place that has several.
pub(super) fn two_largest(purposes: &[Purpose]) -> Option<(Role, Role)> {
    match by_weight(purposes).as_slice() {
        [first, second, ..] => Some((first.0, second.0)),
        _ => None,
    }
}

/// How much each role of a place grew. `None` when there is only one role or when one shrank.
pub(super) fn grown_parts(purposes: &[Purpose]) -> Option<Vec<(Role, u64)>> {
    let grown = |p: &Purpose| Some((p.0, p.2.bytes.checked_sub(p.1.bytes)?));
    if purposes.len() > 1 { by_weight(purposes).iter().map(grown).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::model::StackId;

    fn group(a: u64, b: u64) -> Group {
        let held = |bytes| Held { bytes, requested: bytes, count: u64::from(bytes > 0), probable: 0 };
        Group { stack: StackId(0), rows: vec![0], a: held(a), b: held(b), role: Role::Unknown, purposes: Vec::new() }
    }

    #[test]
    fn a_place_of_several_purposes_has_the_colours_of_the_two_largest() {
        let held = |bytes| Held { bytes, requested: bytes, count: 1, probable: 0 };
        let of = |role, a, b| (role, held(a), held(b));
        let mixed = [of(Role::Activations, 10, 30), of(Role::Weights, 50, 50), of(Role::Workspaces, 1, 2)];
        assert_eq!(two_largest(&mixed), Some((Role::Weights, Role::Activations)));
        assert_eq!(two_largest(&mixed[..1]), None);
        let parts = grown_parts(&mixed).expect("none shrank");
        assert_eq!(parts.iter().map(|p| p.1).sum::<u64>(), 21, "the parts are the whole change");
        assert_eq!(grown_parts(&[of(Role::Activations, 10, 30), of(Role::Weights, 50, 40)]), None);
        assert_eq!(grown_parts(&mixed[..1]), None);
    }

    #[test]
    fn words_have_signs_and_say_what_is_the_same() {
        assert_eq!(signed(-(3 << 20)), "−3\u{a0}MiB");
        assert_eq!(
            (signed_figure(0, SizeColumn::default()), signed_figure(-512, SizeColumn::default())),
            ("same".to_owned(), "−512\u{a0}B".to_owned())
        );
        assert_eq!((ratio(0, 5), ratio(1, 5000)), (None, Some("> 999".to_owned())));
        let groups = [group(100, 400), group(100, 100)];
        let held = |g: fn(&Group) -> Held| {
            groups.iter().map(g).fold(Held::default(), |mut s, h| {
                s.add(h);
                s
            })
        };
        let mut c = Comparison::default();
        (c.a, c.b) = (held(|g| g.a), held(|g| g.b));
        assert_eq!(beside(&c, &groups, false), "2.50\u{a0}× A, 2\u{a0}blocks in each, same places");
        c.blocks = Some(Default::default());
        assert!(beside(&c, &groups, false).ends_with("same stacks"));
        let text = reading(&c, &groups, |_| "x.py:1".to_owned());
        assert_eq!(
            text,
            "*x.py:1* changed most, by +300\u{a0}B: 100\u{a0}% of all change. It holds 4.00\u{a0}× what it held at A, everything else 1.00\u{a0}×."
        );
    }

    #[test]
    fn a_narrow_pane_puts_the_table_under_the_summary() {
        let wide = areas(Rect::from_min_max(egui::Pos2::ZERO, egui::pos2(1600.0, 400.0)));
        assert!(wide.0.right() < wide.1.left() && wide.0.width() == 452.0);
        let narrow = areas(Rect::from_min_max(egui::Pos2::ZERO, egui::pos2(500.0, 600.0)));
        assert!(narrow.0.bottom() < narrow.1.top());
    }
}
