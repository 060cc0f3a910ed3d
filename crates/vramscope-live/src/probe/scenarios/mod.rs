//! The scenarios. Each provokes one typical problem, and the first finding on its recording must have the scenario's name.

mod failures;
mod growth;
mod outside;
mod structure;

use super::program::Program;
use vramscope_core::units::Bytes;

/// What a parameter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, written as `64MiB`.
    Bytes,
    /// A count, as of steps.
    Count,
    /// Hundredths of a whole, written as `27` or `27%`.
    Percent,
    /// Seed of the random numbers.
    Seed,
}

/// A parameter of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it changes, in a few words.
    pub about: &'static str,
    /// What its value counts.
    pub unit: Unit,
    /// Value when none is given.
    pub default: u64,
    /// Smallest and largest value.
    pub range: (u64, u64),
}

impl Param {
    const fn new(name: &'static str, unit: Unit, default: u64, range: (u64, u64), about: &'static str) -> Self {
        Param { name, about, unit, default, range }
    }

    /// A value as text.
    pub fn show(&self, value: u64) -> String {
        match self.unit {
            Unit::Bytes => Bytes(value).to_string(),
            Unit::Percent => format!("{value} %"),
            Unit::Count | Unit::Seed => value.to_string(),
        }
    }

    /// Parses a value.
    ///
    /// # Errors
    /// One sentence that names the parameter and its range.
    pub fn read(&self, text: &str) -> Result<u64, String> {
        let text = text.trim();
        let number = match self.unit {
            Unit::Percent => text.trim_end_matches('%').trim_end(),
            _ => text,
        };
        let value = match self.unit {
            Unit::Bytes => Bytes::parse(text).map(|b| b.0).map_err(|e| e.to_string())?,
            _ => number.parse().map_err(|_| format!("\"{text}\" is no number; {} is a whole number", self.name))?,
        };
        let (least, most) = self.range;
        if (least..=most).contains(&value) {
            Ok(value)
        } else {
            Err(format!("{} is {} to {}, not {}", self.name, self.show(least), self.show(most), self.show(value)))
        }
    }
}

/// Parameters with their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values(Vec<(Param, u64)>);

impl Values {
    /// The defaults of a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        Values(scenario.params.iter().map(|&p| (p, p.default)).collect())
    }

    /// Sets a parameter from `name=value`.
    ///
    /// # Errors
    /// One sentence: no such parameter, or a value out of range.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("\"{text}\" is no parameter; write name=value"));
        };
        let known: Vec<&str> = self.0.iter().map(|(p, _)| p.name).collect();
        let Some(entry) = self.0.iter_mut().find(|(p, _)| p.name == name.trim()) else {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(format!("there is no parameter \"{}\"; this scenario has {known}", name.trim()));
        };
        entry.1 = entry.0.read(value)?;
        Ok(())
    }

    /// The value of a parameter; 0 when the scenario lacks it.
    pub fn get(&self, name: &str) -> u64 {
        self.0.iter().find(|(p, _)| p.name == name).map_or(0, |e| e.1)
    }

    /// Parameters and values, in the scenario's order.
    pub fn iter(&self) -> impl Iterator<Item = &(Param, u64)> {
        self.0.iter()
    }

    /// Parameters and values as text: `steps 24, size 64.00 MiB`.
    pub fn text(&self) -> String {
        self.0.iter().map(|(p, v)| format!("{} {}", p.name, p.show(*v))).collect::<Vec<_>>().join(", ")
    }
}

/// Memory of the card for which a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Total bytes of the card.
    pub total: u64,
    /// Bytes that may be taken.
    pub free: u64,
}

/// A built-in scenario: a program with parameters.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name, which is also the name of the finding on its recording.
    pub name: &'static str,
    /// A title of a few words.
    pub title: &'static str,
    /// What to watch for while it runs.
    pub watch: &'static str,
    /// What the views must show of its recording.
    pub shows: &'static str,
    /// The allocator's settings when none are given.
    pub conf: &'static str,
    /// The parameters it takes; a run gives each its default or another value.
    pub params: &'static [Param],
    /// Builds the program for exactly these values, or returns one sentence why the card or the scenario cannot.
    pub build: fn(&Values, &Room) -> Result<Program, String>,
}

impl Scenario {
    /// The scenario with a name.
    ///
    /// # Errors
    /// One sentence that lists all names.
    pub fn find(name: &str) -> Result<&'static Scenario, String> {
        ALL.iter().find(|s| s.name == name).ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|s| s.name).collect();
            format!("there is no scenario \"{name}\"; there are {}", names.join(", "))
        })
    }
}

/// Every scenario, basics first.
pub const ALL: &[Scenario] = &[
    outside::CONTEXT,
    growth::LEAK,
    growth::SAW_TOOTH,
    failures::FRAGMENTATION,
    failures::HEALTHY,
    structure::VARIABLE_SIZES,
    failures::CAPACITY,
    failures::CAP,
    outside::NON_PYTORCH,
    outside::CONTENTION,
    structure::PRIVATE_POOLS,
    structure::PENDING_FREE,
    outside::PINNED_HOST,
    outside::POOL_RETENTION,
];

/// A deterministic random number generator (xorshift).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        least + self.0 % (most - least + 1)
    }
}

const SEED: Param = Param::new("seed", Unit::Seed, 1, (0, u64::MAX), "another seed gives other sizes");

#[cfg(test)]
mod tests;
