//! Arguments of `check`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args as ClapArgs, ValueEnum};

use super::values::{parse_limit, parse_share};
use crate::cli::rules::RulesArgs;
use vramscope_core::anatomy::Role;
use vramscope_core::units::Bytes;

/// Arguments of `check`.
#[derive(Debug, ClapArgs)]
#[command(group(clap::ArgGroup::new("limits").args(["max_peak", "max_allocated", "max_role", "baseline", "max_fragmentation", "no_leaks", "no_oom", "stats"]).required(true).multiple(true)))]
pub struct CheckArgs {
    /// The recording
    pub file: PathBuf,
    /// Fail when the peak of reserved memory is above this, as in 60GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub max_peak: Option<u64>,
    /// Fail when the peak of allocated memory is above this, as in 10GiB; unlike reserved memory it is the same in every run of the same work
    #[arg(long, value_name = "BYTES", value_parser = parse_limit)]
    pub max_allocated: Option<u64>,
    /// Fail when a role holds more than this at the peak of allocated memory, as in activations=4GiB, or at all: inputs=0; may be repeated
    #[arg(long, value_name = "ROLE=BYTES")]
    pub max_role: Vec<RoleLimit>,
    /// Fail when the peak of allocated memory is above that of OLD, an earlier recording of the same work, by more than the tolerance
    #[arg(long, value_name = "OLD")]
    pub baseline: Option<PathBuf>,
    /// How far the peak may exceed the baseline: a share of it, a size, or the sum of both; 0 allows nothing
    #[arg(long, value_name = "TOLERANCE", default_value = "1%+16MiB", requires = "baseline", allow_hyphen_values = true)]
    pub tolerance: Tolerance,
    /// Fail when more than this share of reserved memory is free at its peak, 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub max_fragmentation: Option<f64>,
    /// Fail when memory grows from step to step; a recording too short to tell fails too (exit code 1, `passed` null in JSON)
    #[arg(long)]
    pub no_leaks: bool,
    /// Fail when the recording has an out-of-memory error
    #[arg(long)]
    pub no_oom: bool,
    /// Fail when this saved output of memory_stats(), memory_summary() or host_memory_stats() disagrees with the snapshot
    #[arg(long, value_name = "FILE")]
    pub stats: Vec<PathBuf>,
    /// Your own rules for roles
    #[command(flatten)]
    pub rules: RulesArgs,
    /// How the answer is written
    #[arg(long, value_name = "FORMAT", default_value = "text", conflicts_with = "json")]
    pub format: CheckFormat,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How `check` writes what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// For people
    Text,
    /// Markdown, short, for a comment on a pull request
    Md,
    /// JUnit XML: one test case for each limit and device
    Junit,
}

/// A limit on a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleLimit {
    /// The role.
    pub role: Role,
    /// The most bytes it may hold.
    pub most: u64,
}

impl FromStr for RoleLimit {
    type Err = String;

    /// Reads `activations=4GiB`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, most) = text.split_once('=').ok_or("write a role and the most that it may hold, as in activations=4GiB")?;
        let role = Role::from_name(name.trim())
            .ok_or_else(|| format!("there is no role \"{}\"; roles are {}", name.trim(), Role::ALL.map(Role::name).join(", ")))?;
        // 0 means that no memory may have this role.
        let most = if most.trim() == "0" { 0 } else { parse_limit(most)? };
        Ok(RoleLimit { role, most })
    }
}

/// How far the peak may exceed a baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Tolerance {
    /// A share of the baseline.
    share: f64,
    /// Bytes in addition to the share.
    bytes: u64,
    /// As it was written.
    text: String,
}

impl Tolerance {
    /// The greatest peak that is accepted for a baseline.
    pub fn limit(&self, baseline: u64) -> u64 {
        baseline.saturating_add((baseline as f64 * self.share) as u64).saturating_add(self.bytes)
    }

    /// As it was written: `1%+128MiB`.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Tolerance {
    type Err = String;

    /// Reads `1%`, `128MiB`, `1%+128MiB` and `0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut read = Tolerance { share: 0.0, bytes: 0, text: text.trim().to_owned() };
        for part in text.split('+').map(str::trim) {
            if let Some(percent) = part.strip_suffix('%') {
                let percent = percent.trim().parse::<f64>().ok().filter(|p| (0.0..=1000.0).contains(p));
                read.share += percent.ok_or_else(|| format!("\"{part}\" is no share from 0% to 1000%"))? / 100.0;
            } else if Bytes::parse(part) != Ok(Bytes(0)) {
                let bytes =
                    parse_limit(part).map_err(|e| format!("{e}; a tolerance is written as in 1%, 128MiB or 1%+128MiB"))?;
                read.bytes = read.bytes.saturating_add(bytes);
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_is_a_share_a_size_or_both() {
        let limit = |text: &str, baseline: u64| text.parse::<Tolerance>().map(|t| t.limit(baseline));
        assert_eq!(limit("0", 1000), Ok(1000));
        assert_eq!(limit("1%", 1000), Ok(1010));
        assert_eq!(limit("2MiB", 1000), Ok(1000 + (2 << 20)));
        assert_eq!(limit("1%+128MiB", 10 << 30), Ok((10 << 30) + (10 << 30) / 100 + (128 << 20)));
        assert_eq!(limit("128 MiB + 1 %", 10 << 30), limit("1%+128MiB", 10 << 30));
        for wrong in ["", "5", "-1%", "1%+", "nan%", "lots", "1%+lots", "2000%"] {
            assert!(limit(wrong, 1000).is_err(), "{wrong}: {:?}", limit(wrong, 1000));
        }
    }
}
