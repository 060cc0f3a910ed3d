//! What the program was doing: its steps, its phases, and what its peak consists of.

use std::collections::BTreeMap;

use serde::Serialize;

use vramscope_core::anatomy::roles::{Roles, Rules};
use vramscope_core::anatomy::{Composition, LineHeld, ModuleHeld, Phase, Role};
use vramscope_core::diagnose::leaks::{Growth, cannot_tell, growth, leaking};
use vramscope_core::diagnose::limits::{Limit, NO_GPU_MEMORY};
use vramscope_core::diagnose::vendor::Words;
use vramscope_core::model::{DeviceRecording, Progress, Recording};
use vramscope_core::tables::{DeviceTables, Quantity, StackNames};
use vramscope_core::units::{Bytes, SizeColumn, count, counted};

use crate::cli::Table;

const LISTED: usize = 20;
const SHOWN: usize = 8;
/// Most phases listed. A long recording has thousands.
const PHASES: usize = 2000;

#[derive(Clone, Debug, Serialize)]
pub(in crate::cli) struct Doing {
    pub(in crate::cli) steps: StepsFound,
    /// In order; only the first 2,000.
    pub(in crate::cli) phases: Vec<PhaseFound>,
    pub(in crate::cli) peak: Peak,
    /// A sentence on what grows with the steps; null when nothing does.
    pub(in crate::cli) leak: Option<String>,
    /// What the recording lacks, when that limits what can be said about the peak; null when it has everything.
    pub(in crate::cli) limit: Option<Lacks>,
}

#[derive(Clone, Debug, Serialize)]
pub(in crate::cli) struct Lacks {
    pub(in crate::cli) sentence: String,
    /// The line of code that records it.
    pub(in crate::cli) line: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(in crate::cli) struct StepsFound {
    pub(in crate::cli) count: usize,
    /// How the steps were found.
    pub(in crate::cli) how: String,
    pub(in crate::cli) inferred: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(in crate::cli) struct PhaseFound {
    pub(in crate::cli) name: &'static str,
    pub(in crate::cli) first_event: u32,
    pub(in crate::cli) last_event: u32,
}

/// The peak of `active_bytes`.
#[derive(Clone, Debug, Serialize)]
pub(in crate::cli) struct Peak {
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) event: Option<u32>,
    /// What the program was doing; null when unknown.
    pub(in crate::cli) phase: Option<&'static str>,
    /// Bytes by role; they add up to `bytes`.
    pub(in crate::cli) by_role: BTreeMap<&'static str, u64>,
    /// The part of `unknown` that was allocated before profiling began, according to the trace's own totals.
    pub(in crate::cli) before_profiling: u64,
    /// The part of `unknown` by which these totals grew during profiling without an event in the trace.
    pub(in crate::cli) grew_during_profiling: u64,
    /// For each role, the bytes that are only inferred from sizes, counts and lifetimes.
    pub(in crate::cli) probably: BTreeMap<&'static str, u64>,
    pub(in crate::cli) by_line: Vec<Held>,
    /// All lines beyond `by_line` together, so that the sum is `bytes`. Null when all are listed.
    pub(in crate::cli) other_lines: Option<Others>,
    pub(in crate::cli) by_module: Vec<Held>,
    /// A sentence with the main figures.
    pub(in crate::cli) sentence: String,
}

/// The roles of a line's blocks, to show beside its name: `activations, inputs`. Empty when the name already says it or none is
/// known.
pub(in crate::cli) fn role_beside(l: &LineHeld) -> String {
    if l.role == Role::Unknown || l.place.ends_with(l.role.text()) {
        return String::new();
    }
    let others: String = l.other_roles.iter().map(|role| format!(", {}", role.text())).collect();
    format!("{}{others}", l.role_text())
}

/// Rows that are not listed.
#[derive(Clone, Debug, Serialize)]
pub(in crate::cli) struct Others {
    pub(in crate::cli) lines: u64,
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) count: u64,
}

impl Others {
    /// The sum of rows, each with its bytes and its number of blocks; `None` without rows.
    fn of(rows: impl Iterator<Item = (u64, u64)>) -> Option<Self> {
        let sum = rows.fold(Others { lines: 0, bytes: 0, count: 0 }, |sum, (bytes, count)| Others {
            lines: sum.lines + 1,
            bytes: sum.bytes + bytes,
            count: sum.count + count,
        });
        (sum.lines > 0).then_some(sum)
    }
}

#[derive(Clone, Debug, Serialize)]
pub(in crate::cli) struct Held {
    pub(in crate::cli) name: String,
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) role: Option<&'static str>,
    /// The role's display name; empty when the row's name says it.
    #[serde(skip)]
    pub(in crate::cli) role_text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::cli) parts: Vec<Held>,
}

impl From<&LineHeld> for Held {
    fn from(l: &LineHeld) -> Self {
        Held {
            name: l.place.clone(),
            bytes: l.bytes,
            count: l.count,
            role: Some(l.role.name()),
            role_text: role_beside(l),
            parts: Vec::new(),
        }
    }
}

impl From<&ModuleHeld> for Held {
    fn from(m: &ModuleHeld) -> Self {
        let parts = m.parts.iter().take(LISTED).map(Held::from).collect();
        Held { name: m.title(), bytes: m.bytes, count: m.count, role: None, role_text: String::new(), parts }
    }
}

impl Peak {
    /// What is held at `event`. `when` describes that instant. O(live blocks).
    pub(in crate::cli) fn at(
        recording: &Recording,
        device: &DeviceRecording,
        tables: &DeviceTables,
        roles: &Roles,
        event: u32,
        when: &str,
    ) -> Self {
        let anatomy = &roles.anatomy;
        let held = Composition::at(recording, device, tables, &StackNames::of(&recording.stacks), roles, event, |_| true);
        let roles = |of: fn(&vramscope_core::anatomy::RoleHeld) -> u64| {
            held.roles.iter().map(|r| (r.role.name(), of(r))).filter(|r| r.1 > 0).collect::<BTreeMap<_, _>>()
        };
        Peak {
            bytes: held.bytes,
            event: super::some_event(event),
            phase: anatomy.phase_at(event).or_else(|| anatomy.phases.right_behind(event)).map(Phase::name),
            by_role: roles(|r| r.bytes),
            before_profiling: held.beyond.before,
            grew_during_profiling: held.beyond.grew,
            probably: roles(|r| r.probable),
            by_line: held.lines.iter().take(LISTED).map(Held::from).collect(),
            other_lines: Others::of(held.lines.iter().skip(LISTED).map(|l| (l.bytes, l.count))),
            by_module: held.modules.iter().take(LISTED).map(Held::from).collect(),
            sentence: sentence(&held, when, &anatomy.words_of_peak(device, tables, event)),
        }
    }
}

impl Doing {
    /// What the program did on one device; `None` when no block is known. O(lifetimes).
    pub(super) fn of(recording: &Recording, device: &DeviceRecording, tables: &DeviceTables) -> Result<Option<Self>, String> {
        let (bytes, event) = tables.curves.peak(Quantity::Active);
        if bytes == 0 {
            return Ok(None);
        }
        let roles = Roles::build(recording, device, tables, &Rules::default(), &Progress::new()).map_err(|e| e.to_string())?;
        let anatomy = &roles.anatomy;
        let grown = growth(device, tables, &anatomy.steps);
        let leaks: Vec<&Growth> = grown.iter().filter(|g| g.is_leak()).collect();
        let runs = anatomy.phases.runs.iter().take(PHASES);
        let phases =
            runs.map(|r| PhaseFound { name: r.phase.name(), first_event: r.events.0, last_event: r.events.1.saturating_sub(1) });
        let when = match tables.lifetimes.has_allocations() {
            false => "live when the file was written",
            true if recording.is_relative(device) => "at the peak of what the trace shows",
            true => "at the peak",
        };
        Ok(Some(Doing {
            steps: StepsFound { count: anatomy.steps.len(), how: anatomy.steps.how(), inferred: anatomy.steps.is_inferred() },
            phases: phases.collect(),
            peak: Peak::at(recording, device, tables, &roles, event, when),
            leak: (!leaks.is_empty() && cannot_tell(device, &anatomy.steps).is_none()).then(|| leaking(&leaks)),
            limit: Limit::of(recording, device, tables, event).map(|limit| {
                let line = limit.line.map(|line| Words::of(device).say(line).into_owned());
                Lacks { sentence: limit.sentence, line }
            }),
        }))
    }

    /// What the recording lacks. Comes first, because it limits what the rest means. `whose` begins each line.
    pub(super) fn limit(&self, whose: &str) -> String {
        self.limit.as_ref().map_or_else(String::new, |limit| {
            let line = limit.line.as_ref().map(|line| format!("    {line}\n")).unwrap_or_default();
            format!("  {whose}{}\n{line}", limit.sentence)
        })
    }

    /// True when the recording has no GPU memory at all, which is what the user asks about.
    pub(super) fn is_beside_the_point(&self) -> bool {
        self.limit.as_ref().is_some_and(|limit| limit.sentence == NO_GPU_MEMORY)
    }

    pub(super) fn peak(&self) -> &str {
        &self.peak.sentence
    }

    /// A table of the lines that hold most at the peak; empty when no line is known. `whose` begins its heading. A recording of a
    /// single instant has no peak.
    pub(super) fn lines(&self, whose: &str, is_state: bool) -> String {
        let listed: Vec<&Held> = self.peak.by_line.iter().take(SHOWN).collect();
        // A single row without a place says no more than the sentence.
        if self.peak.by_line.len() < 2 && !listed.iter().any(|l| l.name.contains(".py:")) {
            return String::new();
        }
        let others = Others::of(self.peak.by_line.iter().skip(SHOWN).map(|l| (l.bytes, l.count)));
        let others = match (others, &self.peak.other_lines) {
            (Some(a), Some(b)) => Some(Others { lines: a.lines + b.lines, bytes: a.bytes + b.bytes, count: a.count + b.count }),
            (a, b) => a.or_else(|| b.clone()),
        };
        let size = SizeColumn::of(listed.iter().map(|l| l.bytes).chain(others.iter().map(|o| o.bytes)));
        let mut table = Table::new("rrll");
        let times = |n: u64| if n > 0 { format!("{} \u{d7}", count(n)) } else { String::new() };
        for l in listed {
            table.row([format!("    {}", size.sized(l.bytes)), times(l.count), l.name.clone(), l.role_text.clone()]);
        }
        if let Some(o) = others {
            let rest = counted(o.lines, "other line", "other lines");
            table.row([format!("    {}", size.sized(o.bytes)), times(o.count), rest, String::new()]);
        }
        let place = self.peak.event.map_or_else(String::new, |event| format!(", event {}", count(u64::from(event))));
        let when = if is_state { "" } else { " at the peak" };
        format!("\n{whose}largest lines{when}{place}\n{table}")
    }

    /// The line about leaks; empty when there are none.
    pub(super) fn leak(&self, whose: &str) -> String {
        self.leak.as_ref().map_or_else(String::new, |leak| format!("  {whose}{leak}\n"))
    }

    /// The line about the steps; empty without steps.
    pub(super) fn steps(&self, whose: &str) -> String {
        match self.steps.count {
            0 => String::new(),
            1 => format!("  {whose}1 step: {}\n", self.steps.how.replacen("each is ", "", 1).replacen("each", "it", 1)),
            n => format!("  {whose}{}: {}\n", counted(n as u64, "step", "steps"), self.steps.how),
        }
    }
}

/// `5.68 GiB at the peak, in the backward pass of step 2: activations 2.81 GiB, temporaries 1.54 GiB, weights 371 MiB`.
fn sentence(held: &Composition, when: &str, phase: &str) -> String {
    const NAMED: usize = 5;
    let is_worth_it = |bytes: u64| bytes > 0 && bytes * 200 >= held.bytes;
    let beyond: Vec<(&str, u64)> = held.beyond.named().filter(|&(_, bytes)| is_worth_it(bytes)).collect();
    let named = held.roles.iter().map(|r| {
        let beyond = if r.role == Role::Unknown { held.beyond.all() } else { 0 };
        (r, r.bytes - beyond)
    });
    let named: Vec<_> = named.filter(|&(_, bytes)| is_worth_it(bytes)).take(NAMED).collect();
    let told = named.iter().map(|(_, bytes)| bytes).sum::<u64>() + beyond.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let others = held.bytes.saturating_sub(told);
    let others = is_worth_it(others).then(|| format!("others {}", Bytes(others)));
    let named = named.into_iter().map(|(r, bytes)| format!("{} {}", r.words(), Bytes(bytes)));
    let beyond = beyond.into_iter().map(|(name, bytes)| format!("{name} {}", Bytes(bytes)));
    let named: Vec<String> = beyond.chain(named).chain(others).collect();
    let phase = if phase.is_empty() { String::new() } else { format!(", {phase}") };
    let is_told = held.beyond.all() > 0 || held.roles.iter().any(|r| r.role != Role::Unknown);
    let what = match is_told {
        true => format!(": {}", named.join(", ")),
        false => "; the recording does not show what it is for".to_owned(),
    };
    format!("{} {when}{phase}{what}", Bytes(held.bytes))
}
