//! Sends a replay's requests over standard input to the process that runs them.
//!
//! ```text
//! name     length u32, then text                    (integers are little-endian)
//! slots    u32
//! growths  count u64, then 29 bytes each: event u32, is a map u8, address, size, stream u64
//! steps    count u64, then each: its kind u8 and what that kind has of slot u32, size, stream, pool, pool u64, site u32
//! ```
//!
//! A replay needs no file: the contents of an open tab, a simulation or another scenario's run are sent in the same way. The
//! process on the card only gets the requests.

use std::io::{self, BufWriter, Read, Write};

use super::program::{Program, Step};
use super::replay::ReplayPlan;
use vramscope_core::allocator::Growth;
use vramscope_core::model::Progress;

/// Steps between two checks whether the run was cancelled.
const CHUNK: usize = 4096;
/// Longest name in bytes.
const LONGEST_NAME: u32 = 1 << 16;

impl ReplayPlan {
    /// Writes the plan, about 40 bytes per event.
    ///
    /// # Errors
    /// The writer's error, or that `progress` was cancelled.
    pub(super) fn write(&self, out: &mut impl Write, progress: &Progress) -> io::Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let name: String = self.name.chars().take(LONGEST_NAME as usize / 4).collect();
        out.write_all(&(name.len() as u32).to_le_bytes())?;
        out.write_all(name.as_bytes())?;
        out.write_all(&self.program.slots.to_le_bytes())?;
        out.write_all(&(self.growths.len() as u64).to_le_bytes())?;
        for g in &self.growths {
            out.write_all(&g.event.to_le_bytes())?;
            out.write_all(&[u8::from(g.is_map)])?;
            for word in [g.address, g.size, g.stream] {
                out.write_all(&word.to_le_bytes())?;
            }
        }
        out.write_all(&(self.program.steps.len() as u64).to_le_bytes())?;
        let mut row = Vec::with_capacity(64);
        for steps in self.program.steps.chunks(CHUNK) {
            progress.check().map_err(|e| io::Error::other(e.to_string()))?;
            for step in steps {
                row.clear();
                encode(step, &mut row)?;
                out.write_all(&row)?;
            }
        }
        out.flush()
    }

    /// Reads a plan that `write` wrote.
    ///
    /// # Errors
    /// One sentence when it ends early or has another format.
    pub fn read(input: &mut impl Read) -> Result<Self, String> {
        let mut numbers = Numbers(input);
        numbers.plan().map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => "the requests to run again did not arrive; the run was stopped".to_owned(),
            _ => format!("the requests to run again cannot be read: {e}"),
        })
    }
}

fn encode(step: &Step, row: &mut Vec<u8>) -> io::Result<()> {
    let mut put = |kind: u8, slot: Option<u32>, words: &[u64], site: Option<u32>| {
        row.push(kind);
        row.extend(slot.into_iter().flat_map(u32::to_le_bytes));
        row.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        row.extend(site.into_iter().flat_map(u32::to_le_bytes));
    };
    match *step {
        Step::Alloc { slot, size, stream, pool, site } => put(b'a', Some(slot), &[size, stream, pool.0, pool.1], Some(site)),
        Step::TryAlloc { size, stream, pool, site } => put(b't', None, &[size, stream, pool.0, pool.1], Some(site)),
        Step::Free { slot, site } => put(b'f', Some(slot), &[], Some(site)),
        Step::FreeLater { slot, site } => put(b'l', Some(slot), &[], Some(site)),
        Step::Complete { slot } => put(b'c', Some(slot), &[], None),
        Step::EmptyCache => put(b'e', None, &[], None),
        Step::Sample => put(b's', None, &[], None),
        // Traces do not record these steps, so replays never have them.
        ref other => return Err(io::Error::other(format!("a replay has no step {other:?}"))),
    }
    Ok(())
}

/// Reads little-endian integers.
struct Numbers<'r, R: Read>(&'r mut R);

impl<R: Read> Numbers<'_, R> {
    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u64(&mut self) -> io::Result<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn u32(&mut self) -> io::Result<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u8(&mut self) -> io::Result<u8> {
        self.bytes::<1>().map(|b| b[0])
    }

    fn plan(&mut self) -> io::Result<ReplayPlan> {
        let odd = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let length = self.u32()?;
        if length > LONGEST_NAME {
            return Err(odd("their name is too long"));
        }
        let mut name = vec![0; length as usize];
        self.0.read_exact(&mut name)?;
        let name = String::from_utf8_lossy(&name).into_owned();
        let slots = self.u32()?;
        let mut growths = Vec::new();
        for _ in 0..self.u64()? {
            let (event, is_map) = (self.u32()?, self.u8()? != 0);
            growths.push(Growth { event, is_map, address: self.u64()?, size: self.u64()?, stream: self.u64()? });
        }
        let mut steps = Vec::new();
        for _ in 0..self.u64()? {
            let kind = self.u8()?;
            let slot = if matches!(kind, b'a' | b'f' | b'l' | b'c') { self.u32()? } else { 0 };
            if slot >= slots && kind != b't' && kind != b'e' && kind != b's' {
                return Err(odd("one names memory that no other requested"));
            }
            steps.push(match kind {
                b'a' => {
                    let (size, stream, pool) = (self.u64()?, self.u64()?, (self.u64()?, self.u64()?));
                    Step::Alloc { slot, size, stream, pool, site: self.u32()? }
                }
                b't' => {
                    let (size, stream, pool) = (self.u64()?, self.u64()?, (self.u64()?, self.u64()?));
                    Step::TryAlloc { size, stream, pool, site: self.u32()? }
                }
                b'f' => Step::Free { slot, site: self.u32()? },
                b'l' => Step::FreeLater { slot, site: self.u32()? },
                b'c' => Step::Complete { slot },
                b'e' => Step::EmptyCache,
                b's' => Step::Sample,
                _ => return Err(odd("they are of another version")),
            });
        }
        Ok(ReplayPlan { program: Program { steps, slots, ..Program::default() }, growths, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
