//! Growth in words: how often, and how much.

use super::{Growth, Rhythm};
use crate::anatomy::steps::number;
use crate::units::{Bytes, MEBIBYTE, count, counted};

/// For all these stacks together: the number of steps in which any of them left memory behind, and the number of steps.
pub fn adding(leaks: &[&Growth]) -> (usize, usize) {
    let steps = leaks.iter().map(|g| g.steps).max().unwrap_or(0);
    let adds = |step: usize| leaks.iter().any(|g| g.by_step.get(step).is_some_and(|&b| b > 0));
    ((0..steps).filter(|&step| adds(step)).count(), steps)
}

/// Title and sentence without a leak. `floors`: each step's lowest use. Memory may still rise, as under a growing load.
pub fn no_leak(floors: &[u64]) -> (&'static str, String) {
    let over = counted(floors.len() as u64, "step", "steps");
    // The first step makes the optimizer's state and the libraries' workspaces.
    let floors = if floors.len() > 2 { &floors[1..] } else { floors };
    // The last step may include the end of the program, when everything is freed.
    let (floors, is_freed) = match floors {
        [rest @ .., before, last] if *last < before / 2 && rest.len() > 2 => (&floors[..floors.len() - 1], true),
        _ => (floors, false),
    };
    let quarter = (floors.len() / 4).max(1);
    let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len().max(1) as u64;
    let (first, last) = (mean(&floors[..quarter.min(floors.len())]), mean(&floors[floors.len().saturating_sub(quarter)..]));
    if last.saturating_sub(first) < (16 * MEBIBYTE).max(first / 4) {
        return ("No leak", format!("Nothing grows steadily over {over}."));
    }
    let (first, last) = (floors.first().copied().unwrap_or(first), floors.last().copied().unwrap_or(last));
    let rise = format!("The least in use in a step rises from {} to {} over {over}", Bytes(first), Bytes(last));
    if is_freed {
        return (
            "Growth that is freed in the end",
            format!("{rise}, and falls in the last. A list that keeps something of each step does that."),
        );
    }
    ("No steady growth", format!("{rise}, but no line adds to it step by step. A load that grows looks like this."))
}

/// The leaks in a sentence: `2 call stacks grow with every step, 3.50 MiB a step: 210 MiB in all, live at the end.`
pub fn leaking(leaks: &[&Growth]) -> String {
    if leaks.is_empty() {
        return String::new();
    }
    let bytes = |leaks: &mut dyn Iterator<Item = &&Growth>| Bytes(leaks.map(|g| g.bytes).sum());
    let freed: Vec<u32> = leaks.iter().filter_map(|g| g.freed).collect();
    let fate = match freed.iter().min() {
        Some(&event) if freed.len() == leaks.len() => format!("all freed at once from event {} on", count(u64::from(event))),
        Some(_) => format!("of which {} freed at once in the end", bytes(&mut leaks.iter().filter(|g| g.freed.is_some()))),
        None => "live at the end".to_owned(),
    };
    format!(
        "{} {} with {}, {}: {} in all, {fate}.",
        counted(leaks.len() as u64, "call stack", "call stacks"),
        if leaks.len() == 1 { "grows" } else { "grow" },
        how_often(leaks, "step"),
        pace(leaks, "step"),
        bytes(&mut leaks.iter()),
    )
}

/// The rhythm that all these stacks share; `None` otherwise.
fn rhythm(leaks: &[&Growth]) -> Rhythm {
    let Some(first) = leaks.first() else { return Rhythm::None };
    let since = leaks.iter().map(|g| g.since).min().unwrap_or(0);
    let (adding, steps) = adding(leaks);
    if leaks.iter().all(|g| g.rhythm == first.rhythm) && first.rhythm != Rhythm::Uneven {
        first.rhythm
    } else if adding * 5 >= (steps - since.min(steps)) * 4 {
        Rhythm::Step
    } else {
        Rhythm::Uneven
    }
}

/// How often these stacks leave memory behind: `every step`, `every 5th step`, `many a step`, `every step from step 30 on`.
pub fn how_often(leaks: &[&Growth], step: &str) -> String {
    let often = match rhythm(leaks) {
        Rhythm::Every(n) => {
            let ordinal = match (n % 10, n % 100) {
                (1, t) if t != 11 => "st",
                (2, t) if t != 12 => "nd",
                (3, t) if t != 13 => "rd",
                _ => "th",
            };
            format!("every {n}{ordinal} {step}")
        }
        Rhythm::Uneven => format!("many a {step}"),
        Rhythm::None | Rhythm::Step => format!("every {step}"),
    };
    match leaks.iter().map(|g| g.since).min().unwrap_or(0) {
        0 => often,
        since => format!("{often} from {step} {} on", number(since)),
    }
}

/// The bytes that these stacks add, and in how many steps: 1, or `n` if every `n`th step adds.
fn period(leaks: &[&Growth]) -> (u64, usize) {
    let slope: f64 = leaks.iter().map(|g| g.bytes_per_step).sum::<f64>().max(0.0);
    match rhythm(leaks) {
        Rhythm::Every(n) => ((slope * n as f64).round() as u64, n),
        _ => (slope.round() as u64, 1),
    }
}

/// The amount that these stacks add: `3.5 MiB a step`, `2 MiB every 5 steps`.
pub fn pace(leaks: &[&Growth], step: &str) -> String {
    match period(leaks) {
        (bytes, 1) => format!("{} a {step}", Bytes(bytes)),
        (bytes, n) => format!("{} every {n} {step}s", Bytes(bytes)),
    }
}

/// The same as a label and a figure: `a step adds` or `5 steps add`, and the bytes.
pub fn adds(leaks: &[&Growth], step: &str) -> (String, u64) {
    match period(leaks) {
        (bytes, 1) => (format!("a {step} adds"), bytes),
        (bytes, n) => (format!("{n} {step}s add"), bytes),
    }
}
