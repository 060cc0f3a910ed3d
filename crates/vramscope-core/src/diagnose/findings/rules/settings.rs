//! Remedies that are allocator settings. A replay of the recorded requests chooses among them, not a rule.

use crate::diagnose::findings::Finding;
use crate::diagnose::oom::Helped;
use crate::inference::Remedy;
use crate::units::{Bytes, counted};

/// What to do in the program about a finding that settings may also solve; `None` for findings that no setting solves.
pub(in crate::diagnose::findings) fn in_code(rule: &str) -> Option<&'static str> {
    match rule {
        "variable_sizes" => {
            Some("In the code: use few sizes, such as lengths padded to a multiple of 128, and the largest one first.")
        }
        "unfilled_gaps" => Some(
            "In the code: free old tensors before the larger ones that replace them are made, or call torch.cuda.empty_cache() once after they are freed.",
        ),
        "pinned_segments" => Some("In the code: allocate what lives long before the large short-lived buffers."),
        "rounding" => Some("In the code: fewer, larger tensors."),
        _ => None,
    }
}

/// The advice before any setting was tried.
pub(super) fn untried(rule: &str) -> String {
    format!("What-if tries a dozen settings on these requests and shows which one helps. {}", in_code(rule).unwrap_or_default())
}

/// A saving of less than 1/n of the peak is not worth a setting.
const WORTH: u64 = 20;

/// The setting that serves the recording with the least reserved memory, if it saves enough: advice and the line to copy.
pub(in crate::diagnose::findings) fn by_settings(finding: &Finding, helped: &Helped) -> Option<(String, Option<String>)> {
    let in_code = in_code(finding.rule)?;
    if helped.own.oom || helped.remedies.ends_at_failure.is_some() {
        // Peaks up to a failure cannot be compared.
        return Some((format!("The failure's finding lists the settings that would help. {in_code}"), None));
    }
    let own = helped.own.peak_reserved_bytes;
    let passing = || helped.remedies.passing();
    let tried = counted(helped.remedies.tried.len() as u64, "other setting", "other settings");
    let Some(least) = passing().map(|r| r.peak_reserved_bytes).min().filter(|&least| own - least.min(own) >= own / WORTH) else {
        return Some((
            format!("None of {tried} reserves much less than the {} of the recorded ones. {in_code}", Bytes(own)),
            None,
        ));
    };
    // Among the settings within a fiftieth of the minimum, take the one with the fewest options.
    let is_near = |r: &&Remedy| r.peak_reserved_bytes - least <= least / 50;
    let settings = |r: &Remedy| r.conf.split(',').filter(|part| !part.is_empty()).count();
    let best = passing().filter(is_near).min_by_key(|r| (!r.certain, settings(r), r.peak_reserved_bytes))?;
    let doubt = match helped.doubt(best) {
        doubt if doubt.is_empty() => String::new(),
        doubt => format!(" (not certain: {doubt})"),
    };
    let more = match passing().filter(|r| r.conf != best.conf && own - r.peak_reserved_bytes.min(own) >= own / WORTH).count() {
        0 => String::new(),
        1 => " One more setting, in What-if, also reserves less than recorded.".to_owned(),
        n => format!(" {n} more settings, in What-if, also reserve less than recorded."),
    };
    let sentence = format!(
        "Served again with this setting, the recording reserves {} at the peak instead of {}{doubt}.{more} {in_code}",
        Bytes(best.peak_reserved_bytes),
        Bytes(own)
    );
    Some((sentence, Some(helped.line(best))))
}
