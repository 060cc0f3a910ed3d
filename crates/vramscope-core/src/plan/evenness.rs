//! Whether the steps of a recording are alike, and what they leave open: batches of different lengths, or unrecorded steps.

use std::sync::Arc;

use super::program::Program;
use crate::anatomy::{Phase, Role};
use crate::units::{Bytes, MEBIBYTE, counted};

/// Number of last steps in which to look for growth.
const TREND: usize = 6;
/// Steady steps of one size allocate the same bytes up to this share; a library may choose differently.
const ALIKE: f64 = 0.02;
/// Two courses count as the same (same lengths in the same order) if they differ by at most this share of their variation.
const SAME_COURSE: f64 = 0.35;

/// Bytes that the passes of a step allocate.
fn bytes_of(program: &Program, step: usize) -> u64 {
    let Some(rows) = program.stretches.get(step).cloned() else { return 0 };
    let is_of_batch = |r: &&super::Row| {
        matches!(r.role, Role::Activations | Role::Inputs | Role::Temporaries)
            && matches!(r.phase, Phase::Forward | Phase::Backward)
    };
    program.rows[rows.start as usize..rows.end as usize].iter().filter(is_of_batch).map(|r| r.size).sum()
}

/// The largest of the recorded steps; `None` if they do not differ.
pub(super) fn largest(program: &Program) -> Option<usize> {
    let varies = program.recorded_steps >= 3 && variation(&course(program)) > ALIKE;
    (1..=program.recorded_steps).filter(|_| varies).max_by_key(|step| bytes_of(program, *step))
}

/// Bytes of each recorded step. If there are three or more, the first one is left out because it includes setup.
fn course(program: &Program) -> Vec<f64> {
    let first = if program.recorded_steps >= 3 { 2 } else { 1 };
    (first..=program.recorded_steps).map(|step| bytes_of(program, step) as f64).collect()
}

fn mean(course: &[f64]) -> f64 {
    course.iter().sum::<f64>() / course.len().max(1) as f64
}

/// The largest deviation of a step from the mean, as a share of the mean.
fn variation(course: &[f64]) -> f64 {
    let mean = mean(course);
    if mean < 1.0 { 0.0 } else { course.iter().map(|bytes| (bytes / mean - 1.0).abs()).fold(0.0, f64::max) }
}

/// True if the steps of two recordings vary in the same way. Different lengths change a step in proportion to its size; work
/// outside every step, such as an evaluation, may be equally large in both.
fn is_one_course(mine: &[f64], theirs: &[f64]) -> bool {
    let common = mine.len().min(theirs.len());
    // With different numbers of steps, their means cannot be compared.
    let (m, n) = (mean(&mine[..common]), mean(&theirs[..common]));
    let most = |of: &dyn Fn(usize) -> f64| (0..common).map(|i| of(i).abs()).fold(0.0, f64::max);
    [1.0, n / m].into_iter().any(|scale| {
        let wanted = |i: usize| (mine[i] - m) * scale / n;
        most(&|i| wanted(i) - (theirs[i] / n - 1.0)) <= ALIKE.max(most(&wanted) * SAME_COURSE)
    })
}

/// Why recordings of one program cannot be compared: their batches vary in length, each in its own way. `None` if they can.
pub(super) fn differ(programs: &[Arc<Program>]) -> Option<String> {
    let all: Vec<(&Arc<Program>, Vec<f64>)> = programs.iter().map(|p| (p, course(p))).filter(|(_, c)| c.len() > 1).collect();
    let (first, mine) = all.iter().max_by(|a, b| variation(&a.1).total_cmp(&variation(&b.1)))?;
    let varies = variation(mine);
    if varies <= ALIKE || first.recorded_steps < 3 {
        return None;
    }
    all.iter().filter(|(other, _)| !Arc::ptr_eq(other, first)).find_map(|(other, theirs)| {
        (!is_one_course(mine, theirs)).then(|| {
            format!(
                "the steps of {} differ in size, and not as those of {} do: batches of other lengths cannot be laid over each other. \
                 Record runs whose batches all have one length, or that get the same lengths in the same order",
                first.recording.source.name, other.recording.source.name
            )
        })
    })
}

/// The bytes by which every step leaves more live memory than the one before; `None` if some step does not.
fn growth(program: &Program) -> Option<u64> {
    // The first step creates the optimizer's state, and after the last step everything may be freed.
    let first = program.recorded_steps.saturating_sub(TREND).max(2);
    let ends: Vec<i64> = (first..=program.recorded_steps).map(|step| live_before(program, step)).collect();
    let more: Vec<i64> = ends.windows(2).map(|w| w[1] - w[0]).collect();
    let (least, most) = (*more.iter().min()?, *more.iter().max()?);
    (more.len() >= 2 && least >= MEBIBYTE as i64 / 4 && most <= 2 * least).then_some(least as u64)
}

/// Live bytes at the beginning of a step.
fn live_before(program: &Program, step: usize) -> i64 {
    let first = program.stretches.get(step).and_then(|rows| program.rows.get(rows.start as usize));
    let at = first.map_or(program.asks.len() as u32, |row| row.born);
    // Blocks older than the recording have no allocation in it.
    let older = program.rows[..program.older].iter();
    let made = program.rows[program.older..].iter().filter(|r| r.born < at);
    older.chain(made).filter(|r| r.freed >= at).map(|r| r.size as i64).sum()
}

/// What the steps of the recordings leave open, in sentences.
pub(super) fn notes(programs: &[Arc<Program>]) -> Vec<String> {
    let mut out = Vec::new();
    let name = |p: &Program| p.recording.source.name.clone();
    let differs = |p: &&Arc<Program>| p.recorded_steps >= 3 && variation(&course(p)) > ALIKE;
    if let Some(p) = programs.iter().filter(differs).find(|p| p.requests().own_backward().is_some()) {
        out.push(format!(
            "Each backward pass of {} makes more than the one before it: it goes through the graphs of earlier steps too (retain_graph=True, or a \
             state that is not detached). More steps need more.",
            name(p)
        ));
    } else if let Some(p) = programs.iter().find(differs) {
        out.push(format!(
            "The steps of {} differ in size: the plan is of these sizes in this order{}. A larger one needs more than it says.",
            name(p),
            if largest(p) == Some(1) { ", with the first, the largest, once more at the end" } else { "" }
        ));
    }
    if let Some(p) =
        programs.iter().filter(|p| p.steps > p.recorded_steps && largest(p).is_none()).min_by_key(|p| p.recorded_steps)
    {
        let more = counted((p.steps - p.recorded_steps) as u64, "time", "times");
        let steps = counted(p.recorded_steps as u64, "step", "steps");
        let first = if p.recorded_steps == 1 { " What a first step alone sets up may be counted again." } else { "" };
        out.push(format!("{} has {steps}; the last one is repeated {more}, since a peak may come later.{first}", name(p)));
    }
    if let Some((p, bytes)) = programs.iter().filter_map(|p| Some((p, growth(p)?))).max_by_key(|g| g.1) {
        out.push(format!(
            "Memory grows by {} in each step of {}: a run of more than {} needs more than the plan says, and a larger size more still.",
            Bytes(bytes),
            name(p),
            counted(p.steps as u64, "step", "steps")
        ));
    }
    if let Some(p) = programs.iter().find(|p| p.is_compiled) {
        out.push(format!(
            "Code of {} is compiled (torch.compile), and other sizes may be compiled to other code: the span is wider by a tenth.",
            name(p)
        ));
    }
    if let Some(p) = programs.iter().find(|p| p.steps == 0) {
        out.push(format!("No steps were found in {}: the plan ends where the recording does.", name(p)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::is_one_course;

    #[test]
    fn courses_are_one_in_proportion_or_with_the_same_extra_work() {
        let mine = [100.0, 150.0, 80.0, 120.0];
        assert!(is_one_course(&mine, &mine.map(|bytes| bytes * 2.0)));
        assert!(is_one_course(&[100.0, 100.0, 130.0, 100.0], &[200.0, 200.0, 230.0, 200.0]), "an evaluation of one size");
        assert!(!is_one_course(&mine, &[160.0, 240.0, 300.0, 200.0]), "other lengths");
        assert!(!is_one_course(&mine, &[500.0; 4]), "lengths that differ beside one length");
    }
}
