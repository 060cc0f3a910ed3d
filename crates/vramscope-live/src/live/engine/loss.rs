//! Failures: calls without an answer, unreachable devices, lost samples.

use super::{COUNT_LOST, Clock, Engine, RETRY, UNLISTED, Watched};
use crate::live::rates::{Call, Paced};
use crate::live::source::GpuError;
use vramscope_core::formats::session::{Lost, Record, Trouble};

impl Engine {
    /// Handles a failed call. True when the remaining calls of the device must be skipped in this round.
    pub(super) fn failed(&mut self, d: &mut Watched, call: Call, error: GpuError, clock: &impl Clock) -> bool {
        if error == GpuError::NoData {
            return false;
        }
        if error.is_loss() || call == Call::Memory {
            // Without its memory there is nothing to draw, so the device is retried later, whatever the reason.
            self.out.push(Record::Trouble(Trouble {
                d: Some(d.number),
                t: self.time_us(clock),
                sentence: Some(error.to_string()),
            }));
            d.retry_at = clock.now() + RETRY;
            d.counted_to = clock.now();
            d.trouble = Some(error);
            return true;
        }
        if call == Call::Processes && (!d.listed.is_empty() || d.is_unlisted) && !d.has_mig {
            // The list was readable before, so the problem is new and the old list is outdated.
            let why = match &error {
                GpuError::NoPermission => "it answers that this user has no permission (error 4)".to_owned(),
                other => other.to_string().trim_end_matches('.').to_owned(),
            };
            let sentence = format!("{UNLISTED}: {why}.");
            if !std::mem::replace(&mut d.is_unlisted, true) {
                let t = self.time_us(clock);
                self.out.push(Record::Unlisted(Trouble { d: Some(d.number), t, sentence: Some(sentence.clone()) }));
            }
            self.limit(d, &sentence);
            if error.is_lasting() {
                d.calls.retain(|c| c.call != call);
                return true;
            }
            return false;
        }
        if call == Call::OtherProcesses && error == GpuError::NoPermission && !d.listed.is_empty() {
            // The compute list was read. When that fails too, it is reported there.
            return false;
        }
        // The same code can mean that this user may not use the driver at all, but here only the list was denied.
        let is_list = matches!(call, Call::Processes | Call::OtherProcesses);
        let sentence = match (is_list && error == GpuError::NoPermission, d.has_mig) {
            (true, true) => {
                "Its processes are listed with its MIG instances; for the whole GPU this user may not see them.".to_owned()
            }
            (true, false) => "This user may not see which processes use it.".to_owned(),
            (false, _) => error.to_string(),
        };
        self.limit(d, &sentence);
        if error.is_lasting() {
            d.calls.retain(|c| c.call != call);
            // The caller iterates over the calls by index and one was just removed, so the next ones wait for the next round.
            return true;
        }
        false
    }

    /// Counts the missing samples of an unreachable device, once a second and when it returns.
    pub(super) fn count_lost(&mut self, d: &mut Watched, clock: &impl Clock, is_over: bool) {
        let since = clock.now().saturating_sub(d.counted_to);
        if d.last_sample_us == 0 || (since < COUNT_LOST && !is_over) {
            return;
        }
        let period = d.calls.iter().find(|c| c.call == Call::Memory).map_or(COUNT_LOST, Paced::period);
        let n = u32::try_from(since.as_nanos() / period.as_nanos().max(1)).unwrap_or(u32::MAX);
        if n > 0 {
            d.counted_to += period * n;
            self.out.push(Record::Lost(Lost { d: Some(d.number), n: u64::from(n), from: 0, to: 0 }));
        }
    }

    pub(super) fn try_again(&mut self, d: &mut Watched, place: usize, clock: &impl Clock) {
        d.retry_at = clock.now() + RETRY;
        let Some(source) = &mut self.source else { return };
        match source.memory(place) {
            Ok(_) => {
                self.count_lost(d, clock, true);
                d.trouble = None;
                for call in &mut d.calls {
                    call.due = clock.now();
                }
                let t = self.time_us(clock);
                if d.last_sample_us > 0 {
                    self.out.push(Record::Lost(Lost { d: Some(d.number), n: 0, from: d.last_sample_us, to: t }));
                }
                self.out.push(Record::Trouble(Trouble { d: Some(d.number), t, sentence: None }));
            }
            Err(error) if d.trouble.as_ref() != Some(&error) => {
                let t = self.time_us(clock);
                self.out.push(Record::Trouble(Trouble { d: Some(d.number), t, sentence: Some(error.to_string()) }));
                d.trouble = Some(error);
            }
            Err(_) => {}
        }
    }
}
