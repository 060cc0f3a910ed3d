//! The probe page: choose a scenario, run it on a simulated or a real card, watch the allocator, keep the recording.
//!
//! A page replaces the views of a tab. A thread listens to the run and sends a picture about thirty times a second; the page
//! draws the newest.

mod layout;
mod page;
mod paint;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

pub(crate) use page::page_ui;

use crate::app::jobs::{Jobs, answered};
use crate::app::state::DocumentId;
use vramscope_core::model::{Progress, Recording};
use vramscope_core::units::Bytes;
use vramscope_live::probe::{
    ALL, Compared, Conditions, Job, LivePicture, LiveSegment, Recorder, Report, Run, Scenario, Target, Values, replay_report,
};

/// The state of a run at one moment.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Curve, totals and messages of the run.
    pub picture: LivePicture,
    pub segments: Vec<LiveSegment>,
}

#[derive(Clone, Debug)]
pub struct Finished {
    pub report: Report,
    /// For a replay, the comparison with the allocator model.
    pub compared: Option<Compared>,
    pub recording: Arc<Recording>,
    /// The tab that shows the recording.
    pub document: Option<DocumentId>,
}

struct UnderWay {
    /// Moments; the channel holds one, because only the newest is drawn.
    moments: Receiver<Moment>,
    /// The last moment and the outcome.
    over: Receiver<(Moment, Result<Finished, String>)>,
    stop: Arc<AtomicBool>,
}

/// The requests of an open recording, to be replayed.
#[derive(Clone)]
pub struct Replayable {
    pub recording: Arc<Recording>,
    pub device: usize,
    pub title: String,
}

impl Replayable {
    pub fn events(&self) -> u64 {
        self.recording.devices.get(self.device).map_or(0, |d| d.events.len() as u64)
    }
}

#[derive(Default)]
pub struct ProbePage {
    /// The recording to replay; it stays when its tab is closed.
    pub replay: Option<Replayable>,
    /// The recordings in other tabs that could be replayed.
    pub open: Vec<Replayable>,
    /// Index of the chosen scenario; `None` for the replay.
    pub chosen: Option<usize>,
    pub parameters: Vec<String>,
    pub conf: String,
    /// The limit as typed; empty for none.
    pub limit: String,
    /// 0 for the simulated card, 1 for the real one.
    pub target: usize,
    /// Run although other processes use the card.
    pub is_shared: bool,
    /// Index of [`PACES`].
    pub pace: usize,
    /// Why the input is invalid, or why the run did not start.
    pub complaint: Option<String>,
    pub moment: Arc<Moment>,
    pub outcome: Option<Result<Finished, String>>,
    under_way: Option<UnderWay>,
}

/// Bytes as text that parses back to the same value: in the largest unit in which it is exact.
fn exact(bytes: u64) -> String {
    let text = Bytes(bytes).to_string();
    if Bytes::parse(&text).is_ok_and(|read| read.0 == bytes) { text } else { bytes.to_string() }
}

/// Speeds of a run: the name, and the pause after each step.
pub const PACES: [(&str, Duration); 3] =
    [("to watch", Duration::from_millis(120)), ("slow", Duration::from_millis(500)), ("at full speed", Duration::ZERO)];

/// Shortest time between two pictures.
const FRAME: Duration = Duration::from_millis(33);

impl ProbePage {
    /// A page; `replay` is offered first when given.
    pub fn new(replay: Option<Replayable>) -> Self {
        let chosen = if replay.is_some() { None } else { ALL.iter().position(|s| s.name == "fragmentation") };
        let mut page = ProbePage::default();
        page.replay = replay;
        page.choose(chosen);
        page
    }

    /// Chooses what to run and sets its default parameters. Ignored while a run is in progress.
    pub fn choose(&mut self, chosen: Option<usize>) {
        if self.is_running() {
            return;
        }
        self.chosen = chosen;
        let scenario = self.scenario();
        self.parameters = scenario.map_or_else(Vec::new, |s| s.params.iter().map(|p| p.show(p.default)).collect());
        // A replay uses the settings and limit of the recording until the user changes them.
        let recorded = self.replay.as_ref().filter(|_| scenario.is_none()).and_then(|r| r.recording.devices.get(r.device));
        self.conf = match scenario {
            Some(s) => s.conf.to_owned(),
            None => recorded.map_or_else(String::new, |device| device.settings.conf.to_string()),
        };
        self.limit = recorded.and_then(|device| device.limit).map_or_else(String::new, exact);
        self.complaint = None;
        self.moment = Arc::default();
        self.outcome = None;
    }

    /// Chooses the requests of an open recording. Ignored while a run is in progress.
    pub fn choose_recording(&mut self, replay: Replayable) {
        if !self.is_running() {
            self.replay = Some(replay);
            self.choose(None);
        }
    }

    /// The chosen scenario; `None` for a replay.
    pub fn scenario(&self) -> Option<&'static Scenario> {
        ALL.get(self.chosen?)
    }

    pub fn is_running(&self) -> bool {
        self.under_way.is_some()
    }

    fn job(&self) -> Result<(Job, Conditions), String> {
        let job = match (self.scenario(), &self.replay) {
            (Some(scenario), _) => {
                let mut values = Values::of(scenario);
                for (param, text) in scenario.params.iter().zip(&self.parameters) {
                    values.set(&format!("{}={text}", param.name))?;
                }
                Job::Scenario { scenario, values }
            }
            (None, Some(r)) => Job::Replay { recording: Arc::clone(&r.recording), device: r.device },
            (None, None) => return Err("choose a scenario".to_owned()),
        };
        vramscope_core::model::AllocConf::parse(&self.conf).map_err(|e| format!("settings: {e}"))?;
        let limit = match self.limit.trim() {
            "" => None,
            text => Some(Bytes::parse(text).map_err(|e| format!("limit: {e}"))?.0),
        };
        Ok((job, Conditions { conf: Some(self.conf.clone()), limit, pace: PACES[self.pace.min(PACES.len() - 1)].1 }))
    }

    pub fn start(&mut self, jobs: &Jobs) {
        if self.is_running() {
            return;
        }
        self.outcome = None;
        self.moment = Arc::default();
        let target =
            if self.target == 0 { Target::Simulated } else { Target::Card { index: 0, is_shared: self.is_shared, fills: false } };
        let run = self.job().and_then(|(job, mut conditions)| {
            if jobs.is_synchronous {
                // Nobody watches, so there are no pauses.
                conditions.pace = Duration::ZERO;
            }
            Ok((Run::start(&job, target, &conditions)?, job))
        });
        match run {
            Err(sentence) => self.complaint = Some(sentence),
            Ok((run, job)) => {
                self.complaint = None;
                let stop = Arc::new(AtomicBool::new(false));
                let (sender, moments) = sync_channel(1);
                let (stopped, wake) = (Arc::clone(&stop), jobs.clone());
                let over = jobs.spawn("probe listener", move || listen(run, &job, &stopped, &sender, &wake));
                self.under_way = Some(UnderWay { moments, over, stop });
            }
        }
    }

    pub fn peak_reserved(&self) -> u64 {
        self.moment.picture.points.iter().map(|p| p.reserved).max().unwrap_or(0)
    }

    /// Asks the run to free everything and end.
    pub fn stop(&self) {
        if let Some(run) = &self.under_way {
            run.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Takes in what arrived. Returns the recording of a run that just ended.
    pub fn poll(&mut self) -> Option<Arc<Recording>> {
        let run = self.under_way.as_ref()?;
        if let Some(moment) = run.moments.try_iter().last() {
            self.moment = Arc::new(moment);
        }
        let lost = || (Moment::default(), Err("the probe's thread could not be started; please try again".to_owned()));
        let (moment, over) = answered(&run.over, lost)?;
        self.moment = Arc::new(moment);
        self.under_way = None;
        let made = over.as_ref().ok().map(|f| Arc::clone(&f.recording));
        if let Err(sentence) = &over {
            self.complaint = Some(sentence.clone());
        }
        self.outcome = Some(over);
        made
    }

    pub fn opened(&mut self, document: DocumentId) {
        if let Some(Ok(finished)) = &mut self.outcome {
            finished.document = Some(document);
        }
    }
}

impl Drop for ProbePage {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Listens to a run until it ends. Returns the last moment and the outcome.
fn listen(
    mut run: Run,
    job: &Job,
    stop: &AtomicBool,
    sender: &SyncSender<Moment>,
    jobs: &Jobs,
) -> (Moment, Result<Finished, String>) {
    let mut recorder = Recorder::new(job.recording().map(|(recording, _)| recording.stacks.clone()));
    let mut picture = LivePicture::default();
    let mut last = Instant::now();
    let mut is_stopping = false;
    loop {
        if stop.load(Ordering::Relaxed) && !is_stopping {
            is_stopping = true;
            run.stop();
        }
        match run.next_within(FRAME) {
            Ok(message) => {
                picture.take(&message);
                recorder.take(&message);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if last.elapsed() >= FRAME {
            last = Instant::now();
            let moment = Moment { picture: picture.clone(), segments: picture.segments() };
            match sender.try_send(moment) {
                Ok(()) => jobs.wake(),
                // The window is busy; a newer picture follows.
                Err(TrySendError::Full(_)) => {}
                Err(TrySendError::Disconnected(_)) => stop.store(true, Ordering::Relaxed),
            }
        }
    }
    let segments = picture.segments();
    let over = Report::of(recorder).map(|(report, recording)| {
        let recorded = job.recording().and_then(|(recording, device)| recording.devices.get(device));
        let compared =
            recorded.and_then(|d| replay_report(d, &report.conf, report.limit_bytes, &report.end, &Progress::new()).ok());
        Finished { report, compared, recording: Arc::new(recording), document: None }
    });
    (Moment { picture, segments }, over)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_typed_in_so_that_it_is_read_back_to_the_byte() {
        assert_eq!(Bytes::parse(&exact(4 << 30)).unwrap().0, 4 << 30);
        assert!(exact(4 << 30).ends_with("iB"));
        assert_eq!(exact(3_705_667_584 + 1), "3705667585");
    }

    #[test]
    fn a_replay_begins_with_the_recorded_conditions() {
        let mut recording = Recording { devices: vec![Default::default()], ..Recording::default() };
        recording.devices[0].limit = Some(2 << 30);
        recording.devices[0].settings.conf = vramscope_core::model::AllocConf::parse("max_split_size_mb:64").unwrap();
        let replay = Replayable { recording: Arc::new(recording), device: 0, title: "run".to_owned() };
        let mut page = ProbePage::new(Some(replay));
        assert_eq!((page.conf.as_str(), Bytes::parse(&page.limit).unwrap().0), ("max_split_size_mb:64", 2 << 30));
        page.choose(Some(0));
        assert!(page.limit.is_empty() && page.conf == ALL[0].conf);
    }
}
