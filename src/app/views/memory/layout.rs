//! What the memory view shows, before it is drawn: figures, rounded shares that add up, rows, widths of the bar's parts.

use crate::app::state::ViewKind;
use std::collections::HashSet;

use vramscope_core::anatomy::{Composition, LineHeld, ModuleHeld, Role, RoleHeld, Which};
use vramscope_core::model::FrameId;
use vramscope_core::units::{GIBIBYTE, MEBIBYTE, count};

pub(super) const BAR: f32 = 16.0;
/// Right edge of the column of shares or blocks, as a distance from the right edge of the row.
pub(super) const SECOND: f32 = 72.0;
/// From this width on, modules and lines show their share too.
pub(super) const WIDE: f32 = 340.0;
/// Below this width the number of blocks is hidden.
pub(super) const NARROW: f32 = 250.0;
pub(super) const LINKS: f32 = 27.0;
pub(super) const LINKED: [ViewKind; 5] =
    [ViewKind::Accounting, ViewKind::Leaks, ViewKind::Steps, ViewKind::Allocations, ViewKind::Events];

#[derive(Clone, Copy)]
pub struct Folds<'a> {
    /// The keys of the rows that are open.
    pub open: &'a HashSet<String>,
    /// Most rows of one level; the rest is folded into one row.
    pub most: usize,
}

/// The number of rows per level for a pane's height. Fewer in a low pane, so that the findings below stay visible.
pub fn most(height: f32) -> usize {
    (((height - 600.0) / 20.0).max(0.0) as usize + 2).clamp(2, 9)
}

/// Narrower parts are left out of the bar.
const NARROWEST: f32 = 2.0;

/// Distributes `units` among parts by size, so that the printed shares add up. The largest remainders get the units that rounding
/// down leaves.
pub fn apportion(parts: &[u64], units: u64) -> Vec<u64> {
    let sum: u128 = parts.iter().map(|&p| u128::from(p)).sum();
    if sum == 0 {
        return vec![0; parts.len()];
    }
    let quota = |p: u64| u128::from(p) * u128::from(units);
    let mut shares: Vec<u64> = parts.iter().map(|&p| (quota(p) / sum) as u64).collect();
    let left = units - shares.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(quota(parts[i]) % sum), i));
    order.into_iter().take(left as usize).for_each(|i| shares[i] += 1);
    shares
}

/// The unit of a table with `all` bytes, as its size and name. All rows use it, and so do the figure and the findings beside the
/// table.
fn unit_of(all: u64) -> (u64, &'static str) {
    if all < GIBIBYTE { (MEBIBYTE, "MiB") } else { (GIBIBYTE, "GiB") }
}

/// The unit for the table's header.
pub fn unit(all: u64) -> &'static str {
    unit_of(all).1
}

/// Bytes in the unit of a table with `all` bytes: `1,572.00`. Each figure is rounded on its own, like in a finding beside the
/// table, so the rows may differ from the total by a hundredth.
fn figure(bytes: u64, all: u64) -> String {
    let unit = u128::from(unit_of(all).0);
    let hundredths = ((u128::from(bytes) * 100 + unit / 2) / unit) as u64;
    match (hundredths, bytes) {
        (0, 0) => "0".to_owned(),
        (0, _) => "<0.01".to_owned(),
        (n, _) => format!("{}.{:02}", count(n / 100), n % 100),
    }
}

/// Tenths of a percent as text: `49.5`.
fn percent(tenths: u64, bytes: u64) -> String {
    match (tenths, bytes) {
        (0, 0) => "0".to_owned(),
        (0, _) => "< 0.1".to_owned(),
        (n, _) => format!("{}.{}", n / 10, n % 10),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRow {
    pub role: Role,
    /// The role's name, or a name for what a trace's total holds beyond its blocks.
    pub name: &'static str,
    pub bytes: u64,
    pub count: u64,
    /// Most of it is inferred.
    pub is_probable: bool,
    pub share: String,
    /// Its size in the unit of the table.
    pub figure: String,
}

/// The table by role, most bytes first. Unknown comes after the known roles, and last come the roles that hold memory only at
/// other times.
pub fn role_rows(held: &Composition, elsewhere: &[Role]) -> Vec<RoleRow> {
    let absent = elsewhere.iter().filter(|&&role| role != Role::Unknown && held.role(role).count == 0);
    let known = held.roles.iter().copied().chain(absent.map(|&role| held.role(role)));
    let mut all: Vec<_> = known.map(|r| (r, r.role.text())).collect();
    // What a trace's total holds beyond its blocks gets its own rows, with the same names as in other views.
    if let Some((unknown, _)) = all.iter_mut().find(|(r, _)| r.role == Role::Unknown) {
        unknown.bytes = unknown.bytes.saturating_sub(held.beyond.all());
    }
    all.retain(|(r, _)| r.role != Role::Unknown || r.bytes > 0);
    all.extend(held.beyond.named().map(|(name, bytes)| (RoleHeld { role: Role::Unknown, bytes, count: 0, probable: 0 }, name)));
    all.sort_by_key(|(r, _)| (r.bytes == 0, r.role == Role::Unknown, std::cmp::Reverse(r.bytes), r.role));
    let bytes: Vec<u64> = all.iter().map(|(r, _)| r.bytes).collect();
    let rows = all.iter().zip(apportion(&bytes, 1000));
    rows.map(|((r, name), share)| RoleRow {
        role: r.role,
        name,
        bytes: r.bytes,
        count: r.count,
        is_probable: r.is_probable(),
        share: percent(share, r.bytes),
        figure: figure(r.bytes, held.bytes),
    })
    .collect()
}

/// The total in the table's last line.
pub fn whole(held: &Composition) -> String {
    figure(held.bytes, held.bytes)
}

/// Left and right ends of the bar's parts; `None` for parts too narrow to see.
pub fn bar(parts: &[u64], width: f32) -> Vec<Option<(f32, f32)>> {
    let sum = parts.iter().sum::<u64>().max(1) as f64;
    let mut before = 0u64;
    let spans = parts.iter().map(|&part| {
        let x = |bytes: u64| (bytes as f64 / sum * f64::from(width)) as f32;
        let (from, to) = (x(before), x(before + part));
        before += part;
        (to - from >= NARROWEST).then_some((from, to))
    });
    spans.collect()
}

/// A row of the tables of modules, lines and sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Identifies the row, also after its figures changed.
    pub key: String,
    /// Depth inside other modules, 0 for the outermost.
    pub depth: usize,
    pub name: String,
    /// The line of code that the row is about.
    pub line: Option<FrameId>,
    /// The role of most of its bytes.
    pub role: Option<Role>,
    /// All its roles as text, largest first.
    pub roles: String,
    pub bytes: u64,
    pub count: u64,
    /// Its size in the unit of the table.
    pub figure: String,
    /// `None` when there is nothing inside to open.
    pub is_open: Option<bool>,
    pub which: Option<Which>,
    /// An explanation of the name, when it needs one.
    pub about: &'static str,
}

/// The note on rows beside the modules: weights, optimizer state, the backward pass.
pub const NO_MODULE: &str = "These blocks are of no module.";

/// The key of the row that holds everything folded.
fn folded(prefix: &str) -> String {
    format!("{prefix}/\u{2026}")
}

/// What a module holds outside its submodules.
#[derive(Default)]
struct Own {
    bytes: u64,
    count: u64,
    which: Option<Which>,
}

/// The rows of one level in a table of `whole` bytes: the visible ones, one for everything folded, and one for the module's `own`
/// memory, which is in none of them.
fn level(all: Vec<Row>, own: Own, whole: u64, (depth, prefix): (usize, &str), folds: Folds<'_>) -> Vec<Row> {
    let rest_key = folded(prefix);
    let is_folded = all.len() > folds.most + 1 && !folds.open.contains(&rest_key);
    let shown = if is_folded { folds.most } else { all.len() };
    let (bytes, blocks) = all[shown..].iter().fold((0, 0), |(bytes, blocks), r| (bytes + r.bytes, blocks + r.count));
    let more = all.len() - shown;
    let mut rows: Vec<Row> = all.into_iter().take(shown).collect();
    if more > 0 {
        let name = format!("{} more", count(more as u64));
        rows.push(Row { key: rest_key, depth, name, bytes, count: blocks, is_open: Some(false), ..Row::default() });
    }
    if own.bytes > 0 {
        let (key, name) = (format!("{prefix}/"), "elsewhere".to_owned());
        rows.push(Row { key, depth, name, bytes: own.bytes, count: own.count, which: own.which, ..Row::default() });
    }
    rows.into_iter().map(|row| Row { figure: figure(row.bytes, whole), ..row }).collect()
}

/// The rows of modules, with those inside open modules.
pub fn module_rows(held: &Composition, folds: Folds<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    within(&held.modules, Own::default(), held.bytes, (0, ""), folds, &mut rows);
    rows
}

fn within(parts: &[ModuleHeld], own: Own, whole: u64, (depth, prefix): (usize, &str), folds: Folds<'_>, rows: &mut Vec<Row>) {
    let all = parts.iter().map(|m| {
        // Two modules may be shown under the same name, but their paths differ.
        let key = format!("{prefix}/{}{}", m.path.join("/"), if m.is_rest { "/" } else { "" });
        Row {
            depth,
            name: m.title(),
            line: m.line,
            bytes: m.bytes,
            count: m.count,
            is_open: (!m.parts.is_empty()).then(|| folds.open.contains(&key)),
            which: Some(m.which()),
            about: match (m.is_module, m.line) {
                (true, _) if !m.is_named() => "The stacks do not name modules: this is the line that calls one.",
                (false, Some(_)) if m.path.len() == 1 => "This line is in no module.",
                (false, None) if prefix.is_empty() => NO_MODULE,
                _ => "",
            },
            key,
            ..Row::default()
        }
    });
    for (i, row) in level(all.collect(), own, whole, (depth, prefix), folds).into_iter().enumerate() {
        let (is_open, key) = (row.is_open == Some(true), row.key.clone());
        rows.push(row);
        if is_open && let Some(module) = parts.get(i) {
            let inside = module.parts.iter().fold((0, 0), |(bytes, count), p| (bytes + p.bytes, count + p.count));
            let own = Own {
                bytes: module.bytes.saturating_sub(inside.0),
                count: module.count.saturating_sub(inside.1),
                which: Some(Which::Directly(module.path.clone())),
            };
            within(&module.parts, own, whole, (depth + 1, &key), folds, rows);
        }
    }
}

pub fn line_rows(lines: &[LineHeld], bytes: u64, folds: Folds<'_>) -> Vec<Row> {
    let all = lines.iter().map(|l| Row {
        key: l.place.clone(),
        name: l.place.clone(),
        line: l.frame,
        role: Some(l.role),
        roles: std::iter::once(l.role_text())
            .chain(l.other_roles.iter().map(|r| r.text().to_owned()))
            .collect::<Vec<_>>()
            .join(", "),
        bytes: l.bytes,
        count: l.count,
        which: Some(l.which()),
        ..Row::default()
    });
    level(all.collect(), Own::default(), bytes, (0, "lines"), folds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::tables::LifetimeId;

    const M: u64 = MEBIBYTE;

    fn module(name: &str, bytes: u64, parts: Vec<ModuleHeld>) -> ModuleHeld {
        let lifetimes = vec![LifetimeId(bytes as u32 % 97)];
        let line = name.contains(':').then_some(FrameId(1));
        let mut held = ModuleHeld::default();
        (held.name, held.path) = (name.to_owned(), vec![name.to_owned()]);
        (held.line, held.repeats, held.bytes, held.count) = (line, 1, bytes, 2);
        (held.parts, held.lifetimes) = (parts, lifetimes);
        held
    }

    fn printed(text: &str) -> u64 {
        text.replace([',', '.'], "").parse().unwrap()
    }

    #[test]
    fn shares_add_up_and_each_figure_is_the_one_that_a_sentence_says() {
        assert_eq!(apportion(&[1, 1, 1], 100), [34, 33, 33]);
        assert_eq!(apportion(&[], 100), Vec::<u64>::new());
        assert_eq!(apportion(&[0, 0], 100), [0, 0]);
        assert_eq!(apportion(&[u64::MAX / 2, u64::MAX / 2, 1], 1000), [500, 500, 0]);
        let role = |role, bytes| RoleHeld { role, bytes, count: 1, probable: 0 };
        // If the rounding rest were distributed over the rows, one of them would become 20.29.
        let part = GIBIBYTE * 20 + GIBIBYTE * 2843 / 10_000;
        let roles = vec![role(Role::Activations, part), role(Role::Weights, part), role(Role::Unknown, part)];
        let held = Composition { bytes: 3 * part, count: 3, roles, ..Composition::default() };
        let rows = role_rows(&held, &[]);
        let said = vramscope_core::units::Bytes(part).to_string();
        assert!(rows.iter().all(|r| said.split_whitespace().next() == Some(r.figure.as_str())), "{said}: {rows:?}");
        assert_eq!(whole(&held), "60.85");
        assert_eq!(rows.iter().map(|r| printed(&r.share)).sum::<u64>(), 1000);
    }

    #[test]
    fn the_unknown_comes_after_what_is_known_and_what_holds_nothing_here_last() {
        let role = |role, bytes, probable| RoleHeld { role, bytes, count: 1, probable };
        let roles = vec![role(Role::Unknown, 90 * M, 0), role(Role::Weights, 10 * M, 6 * M), role(Role::Inputs, 100, 0)];
        let held = Composition { bytes: 100 * M + 100, count: 3, roles, ..Composition::default() };
        let rows = role_rows(&held, &[Role::Gradients, Role::Weights, Role::Unknown]);
        let told: Vec<_> = rows.iter().map(|r| (r.role, r.share.as_str(), r.figure.as_str(), r.is_probable)).collect();
        assert_eq!(
            told,
            [
                (Role::Weights, "10.0", "10.00", true),
                (Role::Inputs, "< 0.1", "<0.01", false),
                (Role::Unknown, "90.0", "90.00", false),
                (Role::Gradients, "0", "0", false),
            ]
        );
    }

    #[test]
    fn what_a_trace_holds_beyond_its_blocks_has_its_own_name() {
        let roles = vec![RoleHeld { role: Role::Unknown, bytes: 30 * M, count: 1, probable: 0 }];
        let beyond = vramscope_core::model::Beyond { before: 20 * M, grew: 0 };
        let held = Composition { bytes: 30 * M, count: 1, roles, beyond, ..Composition::default() };
        let told: Vec<_> = role_rows(&held, &[]).into_iter().map(|r| (r.name, r.bytes / M)).collect();
        assert_eq!(told, [("held before profiling", 20), ("unknown", 10)]);
    }

    #[test]
    fn the_bar_leaves_out_what_can_not_be_seen() {
        assert_eq!(bar(&[75, 25], 200.0), [Some((0.0, 150.0)), Some((150.0, 200.0))]);
        assert_eq!(bar(&[995, 5], 200.0), [Some((0.0, 199.0)), None]);
        assert_eq!(bar(&[0], 200.0), [None]);
    }

    #[test]
    fn modules_open_and_what_does_not_fit_is_counted() {
        let blocks = module(
            "model.py:8",
            60 * M,
            vec![module("model.py:20", 40 * M, Vec::new()), module("model.py:21", 5 * M, Vec::new())],
        );
        let mut modules = vec![blocks];
        modules.extend((0..12).map(|i| module(&format!("part {i:02}"), M + i, Vec::new())));
        let bytes = modules.iter().map(|m| m.bytes).sum();
        let held = Composition { bytes, modules, ..Composition::default() };
        let mut open = HashSet::new();
        let rows = module_rows(&held, Folds { open: &open, most: 9 });
        assert_eq!(rows.len(), 10);
        assert_eq!((rows[0].is_open, rows[0].line, rows[1].line), (Some(false), Some(FrameId(1)), None));
        assert_eq!((rows[9].name.as_str(), rows[9].count), ("4 more", 8));
        assert_eq!(rows.iter().map(|r| r.bytes).sum::<u64>(), bytes);
        open.insert(rows[0].key.clone());
        open.insert(rows[9].key.clone());
        let rows = module_rows(&held, Folds { open: &open, most: 9 });
        let inside: Vec<_> = rows.iter().filter(|r| r.depth == 1).map(|r| (r.name.as_str(), r.figure.as_str())).collect();
        assert_eq!(inside, [("model.py:20", "40.00"), ("model.py:21", "5.00"), ("elsewhere", "15.00")]);
        assert_eq!(rows.len(), 13 + 3);
    }

    #[test]
    fn a_line_without_a_stack_has_its_blocks_too() {
        let line = |place: &str, stack| LineHeld {
            place: place.to_owned(),
            stack,
            bytes: M,
            count: 1,
            lifetimes: vec![LifetimeId(7)],
            ..LineHeld::default()
        };
        let rows = line_rows(
            &[line("train.py:3", Some(vramscope_core::model::StackId(4))), line("backward, no stack", None)],
            2 * M,
            Folds { open: &HashSet::new(), most: 9 },
        );
        let places = ["train.py:3", "backward, no stack"];
        assert_eq!(rows.iter().map(|r| r.which.clone()).collect::<Vec<_>>(), places.map(|p| Some(Which::Line(p.to_owned()))));
    }
}
