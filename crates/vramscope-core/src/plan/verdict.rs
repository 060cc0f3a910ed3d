//! Words for how sizes end under a limit, shared by the command line and the window.

use super::{Changed, Largest, Plan, Predicted, Trust};
use crate::inference::Horizon;
use crate::units::{Bytes, count};

/// The possible ends of a size under a limit, with their meaning; used in the command's text and in the window.
pub const ENDS: [(&str, &str); 5] = [
    ("fits", "every run that was tried fits"),
    ("probably fits", "the likely run fits, and the upper end of its range does not"),
    ("may fit", "some of the runs that were tried fit, and others fail, or the recording ends before its first step does"),
    ("probably does not fit", "some of the runs that were tried fit, and the likely one needs more than twice the limit"),
    ("does not fit", "every run that was tried fails"),
];

/// If the uncertain range of sizes exceeds this factor, it is no useful answer.
const WIDEST: u64 = 4;
/// For what one recording does not show.
const PROBABLY_GROW: &str = "temporaries probably grow";

/// Words after "fits" if requests after a failure are missing: `, up to where the recording ends`.
fn as_far(horizon: Option<Horizon>) -> String {
    horizon.map_or(String::new(), |horizon| format!(", {}", horizon.reach()))
}

fn verdict(oom: bool, varies: bool, most: u64, limit: u64) -> &'static str {
    match (oom, varies) {
        (_, true) => "may fit",
        (true, false) => "does not fit",
        (false, false) if most > limit => "probably fits",
        (false, false) => "fits",
    }
}

/// The word before "fits" for a size whose range crosses the limit, or if more would fit in some runs.
pub fn surety(at: Option<&Predicted>, is_certain: bool, limit: u64) -> &'static str {
    match at {
        Some(at) if at.span[1] > limit => "probably ",
        _ if is_certain => "",
        _ => "probably ",
    }
}

/// True if the range from the size that surely fits to the one that may fit is too wide to be a useful answer.
pub fn is_no_answer(sure: u64, may: u64) -> bool {
    sure > 0 && may / WIDEST > sure
}

/// A sentence for the case that some smaller size may not fit: a request may fit into a hole at one size but not at a smaller one.
pub fn holes_sentence(sure: u64, holes: &[u64]) -> Option<String> {
    let (first, more) = holes.split_first()?;
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", count(more.len() as u64)) };
    Some(format!("Not every size below {} is sure to fit: at {}{more} the blocks lie otherwise.", count(sure), count(*first)))
}

impl Trust {
    /// The word for this level of trust, also used in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Trust::Exact => "exact",
            Trust::Close => "close",
            Trust::Estimate => "estimate",
        }
    }

    /// The meaning of the word.
    pub const fn about(self) -> &'static str {
        match self {
            Trust::Exact => "the recorded requests were replayed; at most some went away",
            Trust::Close => {
                "some requests were put where the recording shows such requests, or the sizes of some are not known exactly"
            }
            Trust::Estimate => "sizes or places rest on assumptions; the truth may be some percent off",
        }
    }
}

impl Plan {
    /// How reliable the figures for a size are, without a change.
    pub fn trust_of(&self, size: &Predicted) -> Trust {
        match size.uncertain_because {
            None | Some("placement") => Trust::Exact,
            Some("sizes") if self.is_single() => Trust::Estimate,
            _ => Trust::Close,
        }
    }

    /// What a failed request in a recording leaves open, in sentences; `None` if nothing failed.
    pub fn left_open(&self) -> Option<String> {
        let horizon = self.horizon()?;
        if !horizon.is_caught {
            return Some("The recording ends where it failed: what comes after is not recorded.".to_owned());
        }
        let program = self.programs.iter().find(|p| p.horizon == Some(horizon))?;
        let failed = program.failed.last().and_then(|&row| program.rows.get(row as usize));
        let failed = failed.map_or(String::new(), |row| format!(" of {}", Bytes(row.size)));
        let step = match program.largest_complete {
            Some((step, bytes)) => {
                format!("Of the steps that ended, step {} needed most, {} allocated.", count(step as u64), Bytes(bytes))
            }
            None => "No step ended.".to_owned(),
        };
        Some(format!("A request{failed} failed, and the program caught that: {}. {step}", horizon.warning()))
    }
}

impl Predicted {
    /// How it ends: one of [`ENDS`].
    pub fn ends(&self, limit: u64) -> &'static str {
        // The likely run needs far more than the limit.
        if self.oom && self.oom_varies && self.peak_reserved_bytes / 2 > limit {
            return "probably does not fit";
        }
        verdict(self.oom, self.oom_varies || (self.is_open && !self.oom), self.span[1], limit)
    }

    /// How it ends under a limit, as in "it probably fits 4 GiB".
    pub fn verdict(&self, place: &str, limit: u64, horizon: Option<Horizon>) -> String {
        let words = self.ends(limit);
        let ends = as_far(horizon.filter(|_| words.ends_with("fits") || (self.is_open && words == "may fit")));
        format!("{words} {place}{ends}")
    }
}

impl Changed {
    /// Bytes moved or recomputed in each step, and which of the two.
    pub fn extra(&self) -> (u64, &'static str) {
        if self.moved_bytes > 0 { (self.moved_bytes, "moved") } else { (self.recomputed_bytes, "made again") }
    }

    /// How it ends: one of [`ENDS`].
    pub fn ends(&self, limit: u64) -> &'static str {
        let may = match self.oom {
            true => self.span[0] <= limit && self.largest_span.is_none_or(|l| l[1] > 0),
            false => self.is_open,
        };
        verdict(self.oom, self.oom_varies || may, self.span[1], limit)
    }
}

impl Largest {
    /// A sentence with the largest size that fits.
    pub fn sentence(&self, name: &str, place: &str, limit: u64, horizon: Option<Horizon>) -> String {
        let ends = as_far(horizon);
        let [sure, may] = self.span.map(count);
        let how = surety(self.at.as_ref(), self.certain || self.span[1] > self.size, limit);
        match (self.size, self.span[1] > self.size) {
            _ if self.has_no_end() => {
                format!("How large a {name} fits {place} is unknown: nothing in the recordings is sure to grow with {name}.")
            }
            (n, true) if is_no_answer(n, self.span[1]) => {
                format!(
                    "How large a {name} fits {place} cannot be told from these recordings: it may be {sure}, or {may}, as {PROBABLY_GROW} with {name} and may not."
                )
            }
            (0, true) => format!("No {name} is sure to fit {place}; up to {may} may fit."),
            (0, false) => format!("Not even {name} 1 fits {place}."),
            (_, true) => format!("{name} {sure} {how}fits {place}{ends}; up to {may} may fit."),
            (_, false) if self.certain => format!("{name} {sure} is {how}the largest that fits {place}{ends}."),
            (_, false) => {
                let why = match self.at.as_ref().and_then(|at| at.uncertain_because) {
                    Some("placement") => ", depending on where the driver puts segments",
                    Some("sizes") => ", depending on allocations whose sizes could not be predicted exactly",
                    _ => "",
                };
                format!("{name} {sure} is probably the largest that fits {place}{ends}{why}.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_is_explained() {
        for (oom, varies, most) in [(false, false, 1), (false, false, 9), (true, true, 1), (false, true, 1), (true, false, 9)] {
            assert!(ENDS.iter().any(|(word, _)| *word == verdict(oom, varies, most, 4)));
        }
        assert!(ENDS.iter().all(|(word, about)| word.contains("fit") && !about.ends_with('.')));
    }
}
