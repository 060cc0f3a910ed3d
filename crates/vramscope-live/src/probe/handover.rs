//! Sends a replay's requests over standard input to the process that runs them.
//!
//! Frames of the [wire format](super::wire): the name with the number of slots, then the recorded growths and the steps, each in
//! pieces that an empty piece ends. A replay needs no file: the contents of an open tab, a simulation or another scenario's run
//! are sent in the same way. The process on the card only gets the requests.

use std::io::{self, BufWriter, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::program::{Program, Step};
use super::replay::ReplayPlan;
use super::wire::{read_frame, write_frame};
use vramscope_core::model::Progress;

/// Rows between two checks whether the run was cancelled.
const PIECE: usize = 4096;

impl ReplayPlan {
    /// Writes the plan, about 15 bytes per step. Fails if `out` does, or if `progress` is cancelled.
    pub(super) fn write(&self, out: &mut impl Write, progress: &Progress) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        self.program.steps.iter().try_for_each(|step| slot_of(step).map(drop))?;
        write_frame(&mut out, &(&self.name, self.program.slots))?;
        write_rows(&mut out, &self.growths, progress)?;
        write_rows(&mut out, &self.program.steps, progress)?;
        out.flush()
    }

    /// Reads a plan that `write` wrote.
    ///
    /// # Errors
    /// One sentence when it ends early or has another format.
    pub fn read(input: &mut impl Read) -> Result<Self, String> {
        read_plan(input).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => "the requests to run again did not arrive; the run was stopped".to_owned(),
            _ => format!("the requests to run again cannot be read: {e}"),
        })
    }
}

fn read_plan(input: &mut impl Read) -> io::Result<ReplayPlan> {
    let (name, slots): (String, u32) = read_frame(input)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let growths = read_rows(input)?;
    let steps: Vec<Step> = read_rows(input)?;
    for step in &steps {
        if slot_of(step)?.is_some_and(|slot| slot >= slots) {
            return Err(io::Error::other("one names memory that no other requested"));
        }
    }
    Ok(ReplayPlan { program: Program { steps, slots, ..Program::default() }, growths, name })
}

/// The slot that a step of a replay names. Fails for a step that no trace records.
fn slot_of(step: &Step) -> io::Result<Option<u32>> {
    match *step {
        Step::Alloc { slot, .. } | Step::Free { slot, .. } | Step::FreeLater { slot, .. } | Step::Complete { slot } => {
            Ok(Some(slot))
        }
        Step::TryAlloc { .. } | Step::EmptyCache | Step::Sample => Ok(None),
        ref other => Err(io::Error::other(format!("a replay has no step {other:?}"))),
    }
}

fn write_rows<T: Serialize>(out: &mut impl Write, rows: &[T], progress: &Progress) -> io::Result<()> {
    let end: &[T] = &[];
    for piece in rows.chunks(PIECE).chain([end]) {
        progress.check().map_err(|e| io::Error::other(e.to_string()))?;
        write_frame(out, piece)?;
    }
    Ok(())
}

fn read_rows<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<Vec<T>> {
    let mut rows = Vec::new();
    loop {
        let piece: Vec<T> = read_frame(input)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if piece.is_empty() {
            return Ok(rows);
        }
        rows.extend(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramscope_core::allocator::Growth;

    fn plan() -> ReplayPlan {
        let (size, stream, pool) = (1 << 33, 3, (7, 1));
        let steps = vec![
            Step::Alloc { slot: 0, size, stream, pool, site: u32::MAX },
            Step::Alloc { slot: 1, size: 1, stream: 0, pool: (0, 0), site: 4 },
            Step::TryAlloc { size, stream, pool, site: 5 },
            Step::Sample,
            Step::FreeLater { slot: 0, site: 6 },
            Step::Complete { slot: 0 },
            Step::Free { slot: 1, site: 7 },
            Step::EmptyCache,
        ];
        let growth = Growth { event: 9, is_map: true, address: 0x7f00_0000_0000, size: 2 << 20, stream: 1 };
        ReplayPlan {
            program: Program { steps, slots: 2, ..Program::default() },
            growths: vec![growth; 3],
            name: "run ä.pickle".into(),
        }
    }

    fn written(plan: &ReplayPlan) -> Vec<u8> {
        let mut pipe = Vec::new();
        plan.write(&mut pipe, &Progress::new()).unwrap();
        pipe
    }

    #[test]
    fn what_is_handed_over_arrives() {
        let (plan, pipe) = (plan(), written(&plan()));
        let read = ReplayPlan::read(&mut pipe.as_slice()).unwrap();
        assert_eq!((read.program.steps, read.program.slots), (plan.program.steps, plan.program.slots));
        assert_eq!((read.growths, read.name), (plan.growths, plan.name));
    }

    #[test]
    fn a_pipe_cut_anywhere_is_one_sentence() {
        let pipe = written(&plan());
        for cut in 0..pipe.len() {
            let sentence = ReplayPlan::read(&mut &pipe[..cut]).unwrap_err();
            assert!(sentence.contains("did not arrive"), "{cut}: {sentence}");
        }
    }

    #[test]
    fn a_handle_out_of_range_and_a_step_of_no_trace_are_refused() {
        let mut wrong = plan();
        wrong.program.slots = 1;
        assert!(ReplayPlan::read(&mut written(&wrong).as_slice()).unwrap_err().contains("no other requested"));
        wrong.program.steps.push(Step::Synchronise);
        assert!(wrong.write(&mut Vec::new(), &Progress::new()).is_err());
    }

    #[test]
    fn nobody_writes_on_once_the_run_was_stopped() {
        let progress = Progress::new();
        progress.cancel();
        assert!(plan().write(&mut Vec::new(), &progress).is_err());
    }
}
