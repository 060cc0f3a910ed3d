//! What grew between the peaks of two recordings: by line and by role.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::when;
use crate::cli::Table;
use vramscope_core::anatomy::roles::{Roles, Rules};
use vramscope_core::anatomy::{Composition, Role};
use vramscope_core::model::{DeviceId, DeviceRecording, Progress, Recording};
use vramscope_core::tables::{DeviceTables, Quantity, StackNames};
use vramscope_core::units::Bytes;

/// Maximum number of rows listed.
const LISTED: usize = 5;
/// Roles named in a sentence.
const NAMED: usize = 3;
/// Lines of one file that are matched in their order; more are matched by their numbers alone.
const MATCHED: usize = 500;

/// Two peaks of which less than this part lies in files of both are of two programs.
const STRANGE: u64 = 10;

/// Why a file without history need not have the peak.
const ONE_INSTANT: &str = "the file is of one instant, which need not be the peak";

/// What a device holds at its peak of allocated memory.
#[derive(Debug)]
pub(super) struct AtPeak {
    /// Allocated bytes of whole blocks.
    pub(super) bytes: u64,
    event: u32,
    lines: Vec<Line>,
    roles: [u64; Role::ALL.len()],
    /// Why this may not be the peak of the program, in a clause.
    pub(super) caveat: Option<&'static str>,
    /// What was reserved before the first event, where that is the most: so much may have been allocated then.
    pub(super) before: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    /// `model.py:41`, or in words where no line is known.
    place: String,
    /// The place without the number; all of it where no line is known.
    file: String,
    number: Option<u32>,
    role: Role,
    bytes: u64,
}

impl Line {
    fn new(place: &str, role: Role, bytes: u64) -> Self {
        let split = place.rsplit_once(':').and_then(|(file, number)| Some((file, number.parse().ok()?)));
        let (file, number) = split.map_or((place, None), |(file, number)| (file, Some(number)));
        Line { place: place.to_owned(), file: file.to_owned(), number, role, bytes }
    }

    /// One line on both sides, or on one of them.
    fn grown(old: Option<&Line>, new: Option<&Line>) -> Grown {
        let bytes = |line: Option<&Line>| line.map_or(0, |l| l.bytes);
        let named = new.or(old);
        Grown {
            name: named.map(|l| l.place.clone()).unwrap_or_default(),
            role: named.map_or(Role::Unknown, |l| l.role),
            old: bytes(old),
            new: bytes(new),
        }
    }
}

impl AtPeak {
    /// For one device. What waits for another stream was freed by the program, and is not allocated. O(lifetimes).
    pub(super) fn of(rec: &Recording, device: &DeviceRecording, tables: &DeviceTables, rules: &Rules) -> Result<Self, String> {
        let (bytes, event) = tables.curves.peak(Quantity::Allocated);
        let roles = Roles::build(rec, device, tables, rules, &Progress::new()).map_err(|e| e.to_string())?;
        let names = StackNames::of(&rec.stacks);
        let is_allocated = |id: Result<_, _>| !id.is_ok_and(|id| tables.lifetimes.is_requested_free_at(id, event));
        let held = Composition::at(rec, device, tables, &names, &roles, event, is_allocated);
        let caveat = if device.events.is_empty() && device.has_blocks() {
            Some(ONE_INSTANT)
        } else if rec.is_relative(device) {
            Some("the file does not tell what was allocated before it began")
        } else {
            None
        };
        let lines = held.lines.iter().map(|l| Line::new(&l.place, l.role, l.bytes)).collect();
        Ok(AtPeak { bytes, event, lines, roles: Role::ALL.map(|r| held.role(r).bytes), caveat, before: tables.reserved_before() })
    }

    /// When that was, in a sentence about it.
    pub(super) fn when(&self) -> String {
        if self.is_instant() { "when the file was written".to_owned() } else { when(self.event) }
    }

    pub(super) fn is_instant(&self) -> bool {
        self.caveat == Some(ONE_INSTANT)
    }

    /// True if the two peaks share hardly any source file: they are of two programs. False where either has no lines.
    pub(super) fn is_of_another_program(&self, other: &AtPeak) -> bool {
        let strange = |own: &AtPeak, other: &AtPeak| {
            let lines = || own.lines.iter().filter(|l| l.number.is_some());
            let files: BTreeSet<&str> = other.lines.iter().filter(|l| l.number.is_some()).map(|l| l.file.as_str()).collect();
            let all: u64 = lines().map(|l| l.bytes).sum();
            let shared: u64 = lines().filter(|l| files.contains(l.file.as_str())).map(|l| l.bytes).sum();
            all > 0 && !files.is_empty() && shared < all / STRANGE
        };
        strange(self, other) && strange(other, self)
    }

    /// Who held it, behind a sentence about a limit: `: activations 2.81 GiB, weights 371 MiB; most of it at model.py:12 (1.2 GiB)`.
    /// Of one role its line alone.
    pub(super) fn holders(&self, of: Option<Role>) -> String {
        let mut roles: Vec<(Role, u64)> = Role::ALL.map(|role| (role, self.role(role))).into_iter().filter(|r| r.1 > 0).collect();
        roles.sort_by_key(|r| std::cmp::Reverse(r.1));
        let roles = roles.iter().take(if of.is_some() { 0 } else { NAMED });
        let roles: Vec<String> = roles.map(|(role, bytes)| format!("{} {}", role.text(), Bytes(*bytes))).collect();
        let lines = self.lines.iter().filter(|line| line.number.is_some() && of.is_none_or(|role| line.role == role));
        let line = lines.max_by_key(|line| line.bytes).map(|line| format!("most at {} ({})", line.place, Bytes(line.bytes)));
        let said: Vec<String> = Some(roles.join(", ")).filter(|said| !said.is_empty()).into_iter().chain(line).collect();
        if said.is_empty() { String::new() } else { format!(": {}", said.join("; ")) }
    }

    pub(super) fn role(&self, role: Role) -> u64 {
        self.roles[role.index()]
    }
}

/// What grew on one device.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    pub(super) device: DeviceId,
    pub(super) lines: Vec<Grown>,
    pub(super) roles: Vec<Grown>,
}

/// What one line or role held in the baseline, and holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grown {
    /// The line; the role's name where it is about that.
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) old: u64,
    pub(super) new: u64,
}

impl Grown {
    /// `+1 MiB`.
    pub(super) fn by(&self) -> String {
        format!("+{}", Bytes(self.new.saturating_sub(self.old)))
    }

    fn json(&self, is_line: bool) -> Value {
        let mut row = json!({"role": self.role.name(), "old_bytes": self.old, "bytes": self.new, "growth_bytes": self.new.saturating_sub(self.old)});
        if is_line {
            row["place"] = json!(self.name);
        }
        row
    }
}

impl Growth {
    /// The largest growths, largest first.
    pub(super) fn between(device: DeviceId, old: &AtPeak, new: &AtPeak) -> Self {
        let roles = Role::ALL.map(|r| Grown { name: r.text().to_owned(), role: r, old: old.role(r), new: new.role(r) });
        Growth { device, lines: largest(pairs(&old.lines, &new.lines)), roles: largest(roles.into()) }
    }

    /// The rows of JSON, by line and by role.
    pub(super) fn json(&self) -> [Value; 2] {
        let rows = |rows: &[Grown], is_line| rows.iter().map(|g| g.json(is_line)).collect();
        [rows(&self.lines, true), rows(&self.roles, false)]
    }

    /// The growth as a table for people.
    pub(super) fn text(&self) -> String {
        let mut table = Table::new("rrrll");
        table.row(["growth", "baseline", "now", "role", "allocated at"]);
        let cells = |g: &Grown, place: &str| {
            [g.by(), Bytes(g.old).to_string(), Bytes(g.new).to_string(), g.role.text().to_owned(), place.to_owned()]
        };
        for g in &self.lines {
            table.row(cells(g, &g.name));
        }
        for g in &self.roles {
            table.row(cells(g, "all lines"));
        }
        format!("{}, what grew at the peak of allocated memory:\n{table}", self.device)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.roles.is_empty()
    }
}

fn largest(mut rows: Vec<Grown>) -> Vec<Grown> {
    rows.retain(|g| g.new > g.old);
    rows.sort_by(|a, b| (b.new - b.old, &a.name).cmp(&(a.new - a.old, &b.name)));
    rows.truncate(LISTED);
    rows
}

/// Lines of the two sides, matched. A change of the program moves the lines below it: where a file's lines are others than before, they
/// are matched in their order, so that the least has changed.
fn pairs(old: &[Line], new: &[Line]) -> Vec<Grown> {
    let mut files = BTreeMap::<&str, [Vec<&Line>; 2]>::new();
    for (side, lines) in [old, new].into_iter().enumerate() {
        for line in lines {
            files.entry(&line.file).or_default()[side].push(line);
        }
    }
    let mut rows = Vec::new();
    for [mut old, mut new] in files.into_values() {
        old.sort_by_key(|l| l.number);
        new.sort_by_key(|l| l.number);
        let has_moved = old.iter().map(|l| l.number).ne(new.iter().map(|l| l.number));
        if has_moved && old.len().max(new.len()) <= MATCHED {
            rows.extend(in_order(&old, &new).into_iter().map(|(a, b)| Line::grown(a, b)));
        } else {
            let mut numbers = BTreeMap::<Option<u32>, [Option<&Line>; 2]>::new();
            old.iter().for_each(|&l| numbers.entry(l.number).or_default()[0] = Some(l));
            new.iter().for_each(|&l| numbers.entry(l.number).or_default()[1] = Some(l));
            rows.extend(numbers.into_values().map(|[a, b]| Line::grown(a, b)));
        }
    }
    rows
}

/// Matches lines in their order: the least bytes changed in sum, then the fewest lines at other numbers. O(old × new).
fn in_order<'a>(old: &[&'a Line], new: &[&'a Line]) -> Vec<(Option<&'a Line>, Option<&'a Line>)> {
    let width = new.len() + 1;
    // What matching the first `i` old lines with the first `j` new ones takes, at `i * width + j`.
    let mut costs: Vec<(u64, u32)> = Vec::with_capacity((old.len() + 1) * width);
    let both = |a: &Line, b: &Line| (a.bytes.abs_diff(b.bytes), u32::from(a.number != b.number));
    let plus = |(bytes, lines): (u64, u32), more: (u64, u32)| (bytes.saturating_add(more.0), lines + more.1);
    let ways = |costs: &[(u64, u32)], i: usize, j: usize| {
        let a = i.checked_sub(1).and_then(|i| old.get(i));
        let b = j.checked_sub(1).and_then(|j| new.get(j));
        let at = i * width + j;
        [
            a.zip(b).map(|(a, b)| plus(costs[at - width - 1], both(a, b))),
            a.map(|a| plus(costs[at - width], (a.bytes, 1))),
            b.map(|b| plus(costs[at - 1], (b.bytes, 1))),
        ]
    };
    for i in 0..=old.len() {
        for j in 0..=new.len() {
            let least = ways(&costs, i, j).into_iter().flatten().min();
            costs.push(least.unwrap_or_default());
        }
    }
    let (mut i, mut j, mut rows) = (old.len(), new.len(), Vec::new());
    while i > 0 || j > 0 {
        let least = costs[i * width + j];
        let [is_both, is_old, _] = ways(&costs, i, j).map(|way| way == Some(least));
        let (takes_old, takes_new) = (is_both || is_old, is_both || !is_old);
        i -= usize::from(takes_old);
        j -= usize::from(takes_new);
        rows.push((takes_old.then(|| old[i]), takes_new.then(|| new[j])));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(of: &[(&str, u64)]) -> Vec<Line> {
        of.iter().map(|&(place, bytes)| Line::new(place, Role::Unknown, bytes)).collect()
    }

    fn grown(old: &[(&str, u64)], new: &[(&str, u64)]) -> Vec<(String, u64, u64)> {
        largest(pairs(&lines(old), &lines(new))).into_iter().map(|g| (g.name, g.old, g.new)).collect()
    }

    #[test]
    fn lines_that_moved_are_found_again() {
        let old = [("a.py:10", 500), ("a.py:20", 300), ("b.py:5", 70), ("no stack", 9)];
        let is = |place: &str, old, new| vec![(place.to_owned(), old, new)];
        assert_eq!(grown(&old, &old), []);
        // Two lines were added above, and one of the lines below holds more.
        assert_eq!(grown(&old, &[("a.py:12", 500), ("a.py:22", 340), ("b.py:5", 70), ("no stack", 9)]), is("a.py:22", 300, 340));
        // A new line, which moved the last one.
        assert_eq!(grown(&old, &[("a.py:10", 500), ("a.py:15", 80), ("a.py:21", 300)]), is("a.py:15", 0, 80));
        // A new line, and nothing has moved: the number decides where the sizes do not.
        assert_eq!(grown(&old, &[("a.py:10", 500), ("a.py:15", 300), ("a.py:20", 300)]), is("a.py:15", 0, 300));
        // The same lines: two that changed places are not taken for lines that moved.
        assert_eq!(grown(&old, &[("a.py:10", 300), ("a.py:20", 500)]), is("a.py:20", 300, 500));
        assert_eq!(grown(&[], &[("a.py:1", 5), ("no stack", 7)]), [is("no stack", 0, 7), is("a.py:1", 0, 5)].concat());
    }

    #[test]
    fn a_file_of_too_many_lines_is_matched_by_number() {
        let many: Vec<Line> = (0..=MATCHED as u32).map(|n| Line::new(&format!("a.py:{n}"), Role::Unknown, 100)).collect();
        let mut more = many.clone();
        more.remove(3);
        more[7].bytes += 1;
        assert_eq!(largest(pairs(&many, &more)), [Grown { name: "a.py:8".into(), role: Role::Unknown, old: 100, new: 101 }]);
    }
}
