//! What grew between the peaks of two recordings: by line and by role.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{cut_off, when};
use crate::cli::Table;
use vramscope_core::anatomy::roles::{Roles, Rules};
use vramscope_core::anatomy::{Composition, LineHeld, Role, RoleHeld};
use vramscope_core::model::{DeviceId, DeviceRecording, Frame, FrameId, Progress, Recording};
use vramscope_core::tables::{DeviceTables, Quantity, StackNames, is_framework};
use vramscope_core::units::Bytes;

const LISTED: usize = 5;
const NAMED: usize = 3;
/// Most lines of one function that are matched in order. With more lines, only equal line numbers match.
const MATCHED: usize = 500;

/// The recordings are of different programs when less than one part in this many of the two peaks was allocated in functions of
/// both.
const STRANGE: u64 = 10;

/// Without lines that tell, two programs are different when less than one part in this many of their memory is in blocks of the
/// same sizes; where lines say that they are different, they are the same nevertheless, renamed, from [`ALIKE`] on.
const UNLIKE: u64 = 10;
/// As [`UNLIKE`], for a renamed program: one part in this many.
const ALIKE: u64 = 2;

/// Why a file without history may not contain the peak.
const ONE_INSTANT: &str = "the file is of one instant, which need not be the peak";

/// The memory of a device at its peak of allocated memory.
#[derive(Debug)]
pub(super) struct AtPeak {
    /// Allocated bytes of whole blocks.
    pub(super) bytes: u64,
    event: u32,
    lines: Vec<Line>,
    roles: [RoleHeld; Role::ALL.len()],
    /// The bytes in blocks of each size.
    sizes: BTreeMap<u64, u64>,
    /// For each function of the program, its lines that occur on any stack of the recording.
    functions: BTreeMap<Function, BTreeSet<u32>>,
    /// Why this may not be the program's peak, as a clause.
    pub(super) caveat: Option<&'static str>,
    /// What was reserved before the first event, when that is the maximum. As much may have been allocated then.
    pub(super) before: u64,
    /// The same where it exceeds later use by so much that the peak was probably before the first event.
    pub(super) earlier: Option<u64>,
}

/// The name of a source file without its folder, and of a function in it.
type Function = (String, String);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    /// `model.py:41`, or a description when no line is known.
    place: String,
    /// The place without its line number, or the whole description.
    file: String,
    number: Option<u32>,
    /// Its function. `None` for library code, whose lines do not move, and when no line is known.
    function: Option<Function>,
    roles: [u64; Role::ALL.len()],
    /// Most of its roles are inferred.
    is_probable: bool,
    bytes: u64,
}

impl Line {
    fn new(place: &str) -> Self {
        let split = place.rsplit_once(':').and_then(|(file, number)| Some((file, number.parse().ok()?)));
        let (file, number) = split.map_or((place, None), |(file, number)| (file, Some(number)));
        Line { place: place.to_owned(), file: file.to_owned(), number, ..Line::default() }
    }

    fn of(recording: &Recording, held: &LineHeld) -> Self {
        let stacks = &recording.stacks;
        let frame = held.frame.and_then(|id| stacks.frame(id)).filter(|frame| !is_framework(stacks, *frame));
        let function = frame.map(|frame| (base(stacks.text(frame.file)).to_owned(), stacks.text(frame.name).to_owned()));
        let mut roles = held.by_role;
        let of_blocks: u64 = roles.iter().sum();
        roles[Role::Unknown.index()] += held.bytes.saturating_sub(of_blocks);
        let line = Line::new(&held.place);
        let function = function.filter(|_| line.number.is_some());
        Line { function, roles, is_probable: held.probable * 2 > held.bytes, bytes: held.bytes, ..line }
    }

    /// A line on both sides or on one of them. Its role is the one that grew most.
    fn grown(old: Option<&Line>, new: Option<&Line>) -> Grown {
        let bytes = |line: Option<&Line>| line.map_or(0, |l| l.bytes);
        let of = |line: Option<&Line>, role: Role| line.map_or(0, |l| l.roles[role.index()]);
        let named = new.or(old);
        let role = Role::ALL.into_iter().rev().max_by_key(|&role| i128::from(of(new, role)) - i128::from(of(old, role)));
        Grown {
            name: named.map(|l| l.place.clone()).unwrap_or_default(),
            was: old.zip(new).filter(|(old, new)| old.place != new.place).map(|(old, _)| old.place.clone()),
            role: role.unwrap_or(Role::Unknown),
            is_probable: named.is_some_and(|l| l.is_probable),
            old: bytes(old),
            new: bytes(new),
        }
    }
}

/// The name of a file without its folder.
fn base(file: &str) -> &str {
    file.rsplit(['/', '\\']).next().unwrap_or(file)
}

/// For each function of the program, its lines that occur on any stack. O(frames).
fn functions(recording: &Recording) -> BTreeMap<Function, BTreeSet<u32>> {
    let stacks = &recording.stacks;
    let mut lines = BTreeMap::<_, BTreeSet<u32>>::new();
    for frame in (0..stacks.frame_count()).filter_map(|i| stacks.frame(FrameId(i as u32))) {
        lines.entry((frame.file, frame.name)).or_default().insert(frame.line);
    }
    let mut functions = BTreeMap::<Function, BTreeSet<u32>>::new();
    for ((file, name), lines) in lines {
        let first = lines.first().copied().unwrap_or_default();
        if !is_framework(stacks, Frame { file, name, line: first }) {
            let function = (base(stacks.text(file)).to_owned(), stacks.text(name).to_owned());
            functions.entry(function).or_default().extend(lines);
        }
    }
    functions
}

impl AtPeak {
    /// Memory that waits for another stream was freed by the program and is not counted. O(lifetimes).
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
            cut_off(device)
        };
        let mut sizes = BTreeMap::<u64, u64>::new();
        for id in tables.states.live_at(&tables.lifetimes, event) {
            let size = tables.lifetimes.block_size(id);
            let bytes = sizes.entry(size).or_default();
            *bytes = bytes.saturating_add(size);
        }
        let lines = held.lines.iter().map(|l| Line::of(rec, l)).collect();
        let (roles, functions) = (Role::ALL.map(|r| held.role(r)), functions(rec));
        Ok(AtPeak {
            bytes,
            event,
            lines,
            roles,
            sizes,
            functions,
            caveat,
            before: tables.reserved_before(),
            earlier: tables.before_earlier_peak(),
        })
    }

    /// The instant of the peak, as part of a sentence.
    pub(super) fn when(&self) -> String {
        if self.is_instant() { "when the file was written".to_owned() } else { when(self.event) }
    }

    pub(super) fn is_instant(&self) -> bool {
        self.caveat == Some(ONE_INSTANT)
    }

    /// Why the two peaks are of different programs: they share hardly any function, or have none and share hardly any size of
    /// blocks. A program whose files or functions were renamed has its sizes still.
    pub(super) fn is_of_another_program(&self, other: &AtPeak) -> Option<&'static str> {
        let strange = |own: &AtPeak, other: &AtPeak| {
            let sum = |is: &dyn Fn(&Function) -> bool| -> u64 {
                own.lines.iter().filter(|l| l.function.as_ref().is_some_and(is)).map(|l| l.bytes).sum()
            };
            let all = sum(&|_| true);
            all > 0 && sum(&|function| other.functions.contains_key(function)) < all / STRANGE
        };
        let shared: u64 = self.sizes.iter().map(|(size, bytes)| other.sizes.get(size).map_or(0, |there| *bytes.min(there))).sum();
        let smaller = self.bytes.min(other.bytes);
        if strange(self, other) && strange(other, self) && shared < smaller / ALIKE {
            return Some("the two share hardly any source file or function");
        }
        let has_no_lines = self.has_no_lines() || other.has_no_lines();
        (has_no_lines && shared < smaller / UNLIKE)
            .then_some("there are no call stacks to compare, and the two share hardly any size of a block")
    }

    /// True when memory is held but none of its lines are known.
    fn has_no_lines(&self) -> bool {
        self.lines.iter().all(|l| l.number.is_none())
    }

    /// Who held the memory, as an addition to a sentence about a limit: `: activations 2.81 GiB, weights 371 MiB; most of it at
    /// model.py:12 (1.2 GiB)`. For a single role only its line.
    pub(super) fn holders(&self, of: Option<Role>) -> String {
        let mut roles: Vec<(Role, u64)> = Role::ALL.map(|role| (role, self.role(role))).into_iter().filter(|r| r.1 > 0).collect();
        roles.sort_by_key(|r| std::cmp::Reverse(r.1));
        let roles = roles.iter().take(if of.is_some() { 0 } else { NAMED });
        let roles: Vec<String> =
            roles.map(|(role, bytes)| format!("{} {}", self.roles[role.index()].words(), Bytes(*bytes))).collect();
        let bytes = |line: &Line| of.map_or(line.bytes, |role| line.roles[role.index()]);
        let lines = self.lines.iter().filter(|line| line.number.is_some() && bytes(line) > 0);
        let line = lines.max_by_key(|line| bytes(line)).map(|line| format!("most at {} ({})", line.place, Bytes(bytes(line))));
        let said: Vec<String> = Some(roles.join(", ")).filter(|said| !said.is_empty()).into_iter().chain(line).collect();
        if said.is_empty() { String::new() } else { format!(": {}", said.join("; ")) }
    }

    pub(super) fn role(&self, role: Role) -> u64 {
        self.roles[role.index()].bytes
    }

    /// True when most of the role's memory is inferred.
    pub(super) fn is_probable(&self, role: Role) -> bool {
        self.roles[role.index()].is_probable()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Growth {
    pub(super) device: DeviceId,
    /// The lines that grew, largest growth first; empty when lines cannot be compared.
    pub(super) lines: Vec<Grown>,
    /// The roles that grew and those that shrank, largest change first.
    pub(super) roles: Vec<Grown>,
    shrunk: Vec<Grown>,
    /// Why lines cannot be compared, as a sentence.
    no_lines: Option<String>,
}

/// What one line or role held in the baseline, and what it holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grown {
    /// The line, or the name of the role.
    pub(super) name: String,
    /// The line in the baseline, if it has moved.
    was: Option<String>,
    role: Role,
    is_probable: bool,
    pub(super) old: u64,
    pub(super) new: u64,
}

impl Grown {
    /// `+1 MiB`.
    pub(super) fn by(&self) -> String {
        format!("+{}", Bytes(self.new.saturating_sub(self.old)))
    }

    /// `train.py:23, before train.py:20`.
    pub(super) fn place(&self) -> String {
        self.was.as_ref().map_or_else(|| self.name.clone(), |was| format!("{}, before {was}", self.name))
    }

    /// The role's name, with "probably" when it is inferred.
    pub(super) fn role(&self) -> String {
        self.role.words(self.is_probable)
    }

    fn json(&self, is_line: bool) -> Value {
        let growth = i128::from(self.new) - i128::from(self.old);
        let mut row = json!({"role": self.role.name(), "role_is_probable": self.is_probable, "old_bytes": self.old, "bytes": self.new, "growth_bytes": growth});
        if is_line {
            row["place"] = json!(self.name);
            row["old_place"] = json!(self.was);
        }
        row
    }
}

impl Growth {
    pub(super) fn between(device: DeviceId, old: &AtPeak, new: &AtPeak) -> Self {
        let roles = Role::ALL.map(|r| {
            let is_probable = [new, old].into_iter().find(|peak| peak.role(r) > 0).is_some_and(|p| p.is_probable(r));
            Grown { name: r.text().to_owned(), was: None, role: r, is_probable, old: old.role(r), new: new.role(r) }
        });
        let mut shrunk: Vec<Grown> = roles.iter().filter(|g| g.new < g.old).cloned().collect();
        shrunk.sort_by_key(|g| std::cmp::Reverse(g.old - g.new));
        let no_lines = match [old, new].map(AtPeak::has_no_lines) {
            // Rows without stacks would only repeat the roles.
            [true, true] => Some("neither recording has call stacks"),
            [true, false] => Some("the baseline has no call stacks"),
            [false, true] => Some("the recording has no call stacks"),
            [false, false] => None,
        };
        let mut lines = if no_lines.is_some() { Vec::new() } else { largest(pairs(old, new)) };
        lines.truncate(LISTED);
        let no_lines = no_lines.map(|why| format!("Lines cannot be compared, only roles: {why}."));
        Growth { device, lines, roles: largest(roles.into()), shrunk, no_lines }
    }

    /// The JSON keys: growth by line and by role, and the roles that shrank.
    pub(super) fn json(&self) -> Value {
        let rows = |rows: &[Grown], is_line| -> Value { rows.iter().map(|g| g.json(is_line)).collect() };
        let [lines, roles, shrunk] = [rows(&self.lines, true), rows(&self.roles, false), rows(&self.shrunk, false)];
        json!({"by_line": lines, "by_role": roles, "shrunk_by_role": shrunk})
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new("rrrll");
        table.row(["growth", "baseline", "now", "role", "allocated at"]);
        let cells =
            |g: &Grown, place: &str| [g.by(), Bytes(g.old).to_string(), Bytes(g.new).to_string(), g.role(), place.to_owned()];
        for g in &self.roles {
            table.row(cells(g, "all lines"));
        }
        for g in &self.lines {
            table.row(cells(g, &g.place()));
        }
        let notes: String = self.notes().iter().map(|note| format!("{note}\n")).collect();
        format!("{}, what grew at the peak of allocated memory:\n{table}{notes}", self.device)
    }

    /// Notes on what the rows lack: roles that shrank, so that the figures add up, and why there are no lines.
    pub(super) fn notes(&self) -> Vec<String> {
        let shrunk: Vec<String> = self.shrunk.iter().map(|g| format!("{} {} less", g.role(), Bytes(g.old - g.new))).collect();
        let shrunk = (!shrunk.is_empty()).then(|| format!("Shrank: {}.", shrunk.join(", ")));
        shrunk.into_iter().chain(self.no_lines.clone()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.roles.is_empty()
    }
}

fn largest(mut rows: Vec<Grown>) -> Vec<Grown> {
    rows.retain(|g| g.new > g.old);
    rows.sort_by(|a, b| (b.new - b.old, &a.name).cmp(&(a.new - a.old, &b.name)));
    rows
}

/// A line of the baseline, of the recording, or a matched pair.
type Pair<'a> = (Option<&'a Line>, Option<&'a Line>);

/// Matches the lines of the two sides. Equal lines match, unless their function has moved. The remaining lines of a function are
/// matched in order with the least change, because an edit moves the lines below it. Lines of libraries never move. A renamed
/// function counts as the same function.
fn pairs(old: &AtPeak, new: &AtPeak) -> Vec<Grown> {
    let renamed = renamed(old, new);
    let mut groups = BTreeMap::<(&str, Option<&Function>), [Vec<&Line>; 2]>::new();
    for (side, peak) in [old, new].into_iter().enumerate() {
        for line in &peak.lines {
            let function =
                line.function.as_ref().map(|function| match renamed.iter().find(|(was, _)| side == 0 && *was == function) {
                    Some((_, is)) => *is,
                    None => function,
                });
            groups.entry((&line.file, function)).or_default()[side].push(line);
        }
    }
    let mut rows = Vec::new();
    for ((_, function), [mut a, mut b]) in groups {
        a.sort_by_key(|l| l.number);
        b.sort_by_key(|l| l.number);
        let function = function.filter(|_| a.len().max(b.len()) <= MATCHED);
        let mut found = by_number(&a, &b, function.is_some());
        if let Some(function) = function.filter(|_| a.iter().map(|l| l.number).ne(b.iter().map(|l| l.number))) {
            let moved = in_order(&a, &b);
            let is_moved = match unchanged(&moved).cmp(&unchanged(&found)) {
                Ordering::Equal => {
                    let was = renamed.iter().find(|(_, is)| *is == function).map_or(function, |(was, _)| was);
                    has_moved(old.functions.get(was), new.functions.get(function))
                }
                order => order == Ordering::Greater,
            };
            found = if is_moved { moved } else { found };
        }
        rows.extend(found.into_iter().map(|(a, b)| Line::grown(a, b)));
    }
    rows
}

/// Functions that only one side has but that are the same by their lines, with the names in the baseline and now. At least half
/// of the lines must have the same distances as before. A single line counts only when it has not moved.
fn renamed<'a>(old: &'a AtPeak, new: &'a AtPeak) -> Vec<(&'a Function, &'a Function)> {
    let mut gone: Vec<_> = old.functions.iter().filter(|(function, _)| !new.functions.contains_key(*function)).collect();
    let mut found = Vec::new();
    for (function, lines) in new.functions.iter().filter(|(function, _)| !old.functions.contains_key(*function)) {
        let alike = |was: &(&Function, &BTreeSet<u32>)| {
            let far = offsets(was.1, lines);
            let (apart, most) = far.into_iter().max_by_key(|&(apart, n)| (n, apart == 0)).unwrap_or_default();
            let is_same = was.0.0 == function.0 && most as usize * 2 >= was.1.len().max(lines.len()) && (most > 1 || apart == 0);
            is_same.then_some(most)
        };
        let best = gone
            .iter()
            .enumerate()
            .filter_map(|(i, was)| Some((alike(was)?, i)))
            .max_by_key(|&(most, i)| (most, std::cmp::Reverse(i)));
        if let Some((_, i)) = best {
            found.push((gone.remove(i).0, function));
        }
    }
    found
}

/// For each offset, how many pairs of lines have it. Empty when there are very many lines.
fn offsets(old: &BTreeSet<u32>, new: &BTreeSet<u32>) -> BTreeMap<i64, u32> {
    let mut found = BTreeMap::<i64, u32>::new();
    if old.len().max(new.len()) <= MATCHED {
        for (a, b) in old.iter().flat_map(|a| new.iter().map(move |b| (*a, *b))) {
            *found.entry(i64::from(b) - i64::from(a)).or_default() += 1;
        }
    }
    found
}

/// How many matched lines hold exactly the same bytes. The more there are, the more likely the match is right.
fn unchanged(pairs: &[Pair<'_>]) -> usize {
    pairs.iter().filter(|(a, b)| a.zip(*b).is_some_and(|(a, b)| a.bytes == b.bytes)).count()
}

/// Matches lines of equal number. Between two such matches, lines are matched in order if they may have moved.
fn by_number<'a>(mut old: &[&'a Line], mut new: &[&'a Line], may_move: bool) -> Vec<Pair<'a>> {
    let mut rows = Vec::new();
    while !(old.is_empty() && new.is_empty()) {
        let same = old.iter().enumerate().find_map(|(i, a)| Some((i, new.iter().position(|b| b.number == a.number)?)));
        let (i, j) = same.unwrap_or((old.len(), new.len()));
        if may_move {
            rows.extend(in_order(&old[..i], &new[..j]));
        } else {
            rows.extend(old[..i].iter().map(|&a| (Some(a), None)));
            rows.extend(new[..j].iter().map(|&b| (None, Some(b))));
        }
        rows.extend(same.map(|_| (old.get(i).copied(), new.get(j).copied())));
        (old, new) = (old.get(i + 1..).unwrap_or_default(), new.get(j + 1..).unwrap_or_default());
    }
    rows
}

/// True when more lines of a function match at one common offset than at their own numbers.
fn has_moved(old: Option<&BTreeSet<u32>>, new: Option<&BTreeSet<u32>>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    let found = offsets(old, new);
    let stayed = found.get(&0).copied().unwrap_or_default();
    found.values().any(|&moved| moved > stayed)
}

/// Matches lines in order, with the smallest total change in bytes, and then the fewest changed line numbers. O(old × new).
fn in_order<'a>(old: &[&'a Line], new: &[&'a Line]) -> Vec<Pair<'a>> {
    let width = new.len() + 1;
    // `costs[i * width + j]` is the cost of matching the first `i` old lines with the first `j` new ones.
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

    /// A peak whose lines are all in one function per file, or in the function named before a `/`: `fit/a.py:10`.
    fn peak(of: &[(&str, u64)]) -> AtPeak {
        let line = |&(named, bytes): &(&str, u64)| {
            let (function, place) = named.split_once('/').unwrap_or(("forward", named));
            let line = Line::new(place);
            let function = line.number.filter(|_| function != "library").map(|_| (line.file.clone(), function.to_owned()));
            Line { function, bytes, ..line }
        };
        let lines: Vec<Line> = of.iter().map(line).collect();
        let mut functions = BTreeMap::<Function, BTreeSet<u32>>::new();
        for line in &lines {
            if let Some(function) = &line.function {
                functions.entry(function.clone()).or_default().extend(line.number);
            }
        }
        let roles = Role::ALL.map(|role| RoleHeld { role, ..RoleHeld::default() });
        let sizes = BTreeMap::new();
        AtPeak { bytes: 0, event: 0, lines, roles, sizes, functions, caveat: None, before: 0, earlier: None }
    }

    fn grown(old: &[(&str, u64)], new: &[(&str, u64)]) -> Vec<(String, u64, u64)> {
        largest(pairs(&peak(old), &peak(new))).into_iter().map(|g| (g.name, g.old, g.new)).collect()
    }

    #[test]
    fn lines_that_moved_are_found_again() {
        let old = [("a.py:10", 500), ("a.py:20", 300), ("b.py:5", 70), ("no stack", 9)];
        let is = |place: &str, old, new| vec![(place.to_owned(), old, new)];
        assert_eq!(grown(&old, &old), []);
        // Two lines were added above, and one of the lines below holds more.
        assert_eq!(grown(&old, &[("a.py:12", 500), ("a.py:22", 340), ("b.py:5", 70), ("no stack", 9)]), is("a.py:22", 300, 340));
        // A new line was inserted, which moved the last line.
        assert_eq!(grown(&old, &[("a.py:10", 500), ("a.py:15", 80), ("a.py:21", 300)]), is("a.py:15", 0, 80));
        // A new line was inserted and nothing moved. Where sizes do not decide, the line number does.
        assert_eq!(grown(&old, &[("a.py:10", 500), ("a.py:15", 300), ("a.py:20", 300)]), is("a.py:15", 0, 300));
        // Two lines that swapped their sizes have not moved.
        assert_eq!(grown(&old, &[("a.py:10", 300), ("a.py:20", 500)]), is("a.py:20", 300, 500));
        assert_eq!(grown(&[], &[("a.py:1", 5), ("no stack", 7)]), [is("no stack", 0, 7), is("a.py:1", 0, 5)].concat());
    }

    #[test]
    fn lines_that_did_not_move_are_matched_with_themselves() {
        let is = |place: &str, old, new| vec![(place.to_owned(), old, new)];
        // A line as large as another one was before is not taken for that one.
        assert_eq!(grown(&[("a.py:10", 500), ("a.py:20", 30)], &[("a.py:10", 20), ("a.py:20", 510)]), is("a.py:20", 30, 510));
        let old = [("step/a.py:128", 400), ("step/a.py:140", 60)];
        assert_eq!(grown(&old, &[("step/a.py:127", 20), ("step/a.py:128", 700), ("step/a.py:140", 60)]), {
            [is("a.py:128", 400, 700), is("a.py:127", 0, 20)].concat()
        });
        // Lines do not move to another function.
        assert_eq!(grown(&[("fit/a.py:10", 500)], &[("evaluate/a.py:30", 500)]), is("a.py:30", 0, 500));
        // Lines of libraries do not move.
        assert_eq!(grown(&[("library/resnet.py:97", 500)], &[("library/resnet.py:102", 500)]), is("resnet.py:102", 0, 500));
        // A line was inserted between neighbouring lines and takes the number of one that moved.
        let old = [("a.py:22", 100), ("a.py:23", 200), ("a.py:24", 300)];
        assert_eq!(grown(&old, &[("a.py:22", 100), ("a.py:23", 70), ("a.py:24", 200), ("a.py:25", 300)]), is("a.py:23", 0, 70));
        // A line was inserted above neighbouring lines. Most numbers are on both sides, but all lines moved.
        let old = [("a.py:22", 100), ("a.py:23", 200), ("a.py:24", 300), ("a.py:25", 400)];
        assert_eq!(
            grown(&old, &[("a.py:23", 100), ("a.py:24", 200), ("a.py:25", 301), ("a.py:26", 400)]),
            is("a.py:25", 300, 301)
        );
    }

    #[test]
    fn a_function_that_was_renamed_is_the_same_one() {
        let is = |place: &str, old, new| vec![(place.to_owned(), old, new)];
        // All lines are where they were, or all moved by the same offset.
        let old = [("forward/a.py:10", 500), ("forward/a.py:12", 300), ("other/a.py:90", 7)];
        assert_eq!(grown(&old, &[("run/a.py:10", 500), ("run/a.py:12", 340), ("other/a.py:90", 7)]), is("a.py:12", 300, 340));
        assert_eq!(grown(&old, &[("run/a.py:15", 500), ("run/a.py:17", 340), ("other/a.py:90", 7)]), is("a.py:17", 300, 340));
        assert_eq!(grown(&[("fit/a.py:10", 500)], &[("train/a.py:10", 600)]), is("a.py:10", 500, 600));
        // A function in another file is a different one, and so is one whose old name still exists.
        assert_eq!(grown(&[("fit/a.py:10", 500)], &[("train/b.py:10", 600)]), is("b.py:10", 0, 600));
        assert_eq!(grown(&[("fit/a.py:10", 500)], &[("fit/a.py:2", 500), ("train/a.py:10", 600)]), is("a.py:10", 0, 600));
    }

    #[test]
    fn without_stacks_only_roles_are_compared() {
        let peak = |bytes| {
            let mut peak = peak(&[("no stack", bytes)]);
            (peak.roles[Role::Activations.index()].bytes, peak.lines[0].roles[Role::Activations.index()]) = (bytes, bytes);
            peak
        };
        let growth = Growth::between(DeviceId::default(), &peak(5), &peak(9));
        assert!(growth.lines.is_empty() && growth.roles.len() == 1 && !growth.is_empty());
        assert!(growth.notes().iter().any(|note| note.contains("neither recording has call stacks")), "{:?}", growth.notes());
    }

    #[test]
    fn the_role_of_a_line_is_that_of_what_grew_there() {
        let line = |weights, activations| {
            let mut line = Line::new("a.py:1");
            line.roles[Role::Weights.index()] = weights;
            line.roles[Role::Activations.index()] = activations;
            line.bytes = weights + activations;
            line
        };
        let (old, new) = (line(1, 90), line(3, 91));
        assert_eq!(Line::grown(Some(&old), Some(&new)).role, Role::Weights);
        assert_eq!(Line::grown(None, Some(&new)).role, Role::Activations);
    }

    #[test]
    fn a_function_of_too_many_lines_is_matched_by_number() {
        let many: Vec<(String, u64)> = (0..=MATCHED).map(|n| (format!("a.py:{n}"), 100)).collect();
        let mut more = many.clone();
        more.remove(3);
        more[7].1 += 1;
        let [many, more] =
            [many, more].map(|of| peak(&of.iter().map(|(place, bytes)| (place.as_str(), *bytes)).collect::<Vec<_>>()));
        let found = largest(pairs(&many, &more));
        assert_eq!(found.iter().map(|g| (g.name.as_str(), g.old, g.new)).collect::<Vec<_>>(), [("a.py:8", 100, 101)]);
    }
}
