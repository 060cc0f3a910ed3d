//! The sentences about all steps.

use vramscope_core::anatomy::steps::{StepFigures, number};
use vramscope_core::units::{Bytes, counted};

/// A sentence that compares the peaks of the steps, with markup around its figures; `None` without steps. A step stands out when
/// it is 5 % or more above the median.
pub(super) fn peaks_sentence(figures: &[StepFigures]) -> Option<String> {
    let (at, top) = figures.iter().enumerate().max_by_key(|(i, s)| (s.peak, std::cmp::Reverse(*i)))?;
    let mut peaks: Vec<u64> = figures.iter().map(|s| s.peak).collect();
    peaks.sort_unstable();
    let (least, median, most) = (peaks[0], peaks[peaks.len() / 2].max(1), Bytes(top.peak));
    let times = top.peak as f64 / median as f64;
    let alike = figures.iter().filter(|s| s.peak == top.peak).count();
    Some(match figures.len() {
        1 => format!("There is one step, and it peaks at *{most}*."),
        n if least == top.peak => format!("All {n} steps peak at *{most}*."),
        n if times < 1.05 && alike > 1 => {
            format!("{alike} of {n} steps peak at *{most}*; the lowest peak is *{}*.", Bytes(least))
        }
        _ if times < 1.05 => {
            format!("The steps peak between *{}* and *{most}*; step *{}* is the highest.", Bytes(least), number(at))
        }
        _ if alike > 1 => {
            let others = counted(alike as u64 - 1, "other", "others");
            format!("Step *{}* and {others} peak highest, at *{most}*, {times:.1} times the median step.", number(at))
        }
        _ => format!("Step *{}* peaks highest, at *{most}*, {times:.1} times the median step.", number(at)),
    })
}

/// A sentence on whether memory grows: the overview's own, or else what the later half of the steps left in use, if there are
/// enough steps. `None` for one or two steps, where nobody expects an answer.
pub(super) fn growth_sentence(overview: Option<&str>, can_tell: bool, figures: &[StepFigures], events: u32) -> Option<String> {
    match overview {
        Some(said) => return Some(format!("{said}.")),
        None if !can_tell => {
            let steps = figures.len();
            return (steps > 2).then(|| format!("{steps} steps are too few to tell whether memory grows."));
        }
        None => {}
    }
    let (growth, leaves_last) = late_growth(figures, events);
    let half =
        if leaves_last { "The second half of the steps, the last one left aside," } else { "The second half of the steps" };
    Some(match growth {
        more @ 1.. => format!("{half} leaves *{}* more in use.", Bytes(more.unsigned_abs())),
        0 => format!("{half} leaves nothing behind."),
        less => format!("{half} gives *{}* back.", Bytes(less.unsigned_abs())),
    })
}

/// What the later half of the steps left in use, and whether the last step was left out. A last step that ends with the recording
/// is left out, because the program may have freed everything at its exit.
fn late_growth(figures: &[StepFigures], events: u32) -> (i64, bool) {
    let leaves_last = figures.len() > 3 && figures.last().is_some_and(|s| s.is_open || s.end >= events);
    let all = &figures[..figures.len() - usize::from(leaves_last)];
    let late = &all[all.len() / 2..];
    let sum = if late.len() > 1 { late.iter().map(StepFigures::growth).sum() } else { 0 };
    (sum, leaves_last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(peak: u64, before: u64, after: u64) -> StepFigures {
        StepFigures { peak, before, after, ..StepFigures::default() }
    }

    #[test]
    fn the_end_of_the_program_is_no_growth() {
        let mut f: Vec<StepFigures> =
            (0..6).map(|i| StepFigures { end: (i as u32 + 1) * 10, ..step(90, 50 + i, 51 + i) }).collect();
        assert_eq!(late_growth(&f, 100), (3, false));
        f[5].after = 0;
        assert_eq!(late_growth(&f, 60), (3, true), "five steps are left, of which the later three");
        assert_eq!(late_growth(&f[..1], 10), (0, false));
    }

    #[test]
    fn one_sentence_says_whether_memory_grows() {
        let f: Vec<StepFigures> = (0..8).map(|i| step(90, 50 + i, 51 + i)).collect();
        let steady = "No growth: all 8 steps end with 1 MiB";
        assert_eq!(growth_sentence(Some(steady), true, &f, 100).unwrap(), format!("{steady}."));
        assert!(growth_sentence(None, true, &f, 100).unwrap().contains("half of the steps leaves *4"));
        let few = growth_sentence(None, false, &f[..3], 100);
        assert_eq!(few.as_deref(), Some("3 steps are too few to tell whether memory grows."), "nothing of halves");
        assert_eq!(growth_sentence(None, false, &f[..1], 100), None);
    }

    #[test]
    fn the_peaks_are_compared_as_they_are() {
        let said = |peaks: &[u64]| {
            let figures: Vec<StepFigures> = peaks.iter().map(|&peak| step(peak << 20, 0, 0)).collect();
            peaks_sentence(&figures).map(|s| s.replace(vramscope_core::units::NBSP, " "))
        };
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[7]).unwrap(), "There is one step, and it peaks at *7 MiB*.");
        assert_eq!(said(&[7, 7, 7]).unwrap(), "All 3 steps peak at *7 MiB*.");
        let most = "3 of 4 steps peak at *19 MiB*; the lowest peak is *16 MiB*.";
        assert_eq!(said(&[16, 19, 19, 19]).unwrap(), most);
        let near = "The steps peak between *99 MiB* and *101 MiB*; step *2* is the highest.";
        assert_eq!(said(&[100, 101, 99]).unwrap(), near);
        assert_eq!(said(&[10, 30, 12]).unwrap(), "Step *2* peaks highest, at *30 MiB*, 2.5 times the median step.");
        let two = "Step *1* and 1 other peak highest, at *30 MiB*, 3.0 times the median step.";
        assert_eq!(said(&[30, 10, 30, 10, 10]).unwrap(), two);
    }
}
