//! Adding artefacts of the same run to an open recording: a trace, a memory timeline, PyTorch's counters. Files opened together
//! that belong together become one tab; what does not fit stays apart and says why.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use super::document::{Content, DeviceData, DeviceView, Document, DocumentId};
use super::loader::prepare;
use crate::app::state::selection::Item;
use crate::app::window::App;
use vramscope_core::analysis::join::{can_join, join};
use vramscope_core::analysis::ranks::ranks_of_names;
use vramscope_core::analysis::stats_check::judge_stats;
use vramscope_core::formats::{self, stats};
use vramscope_core::model::{Format, MemoryStats, Progress, Recording, Source};
use vramscope_core::units::{count, counted};

/// What is added.
enum Extra {
    /// A file, of whatever kind.
    File(PathBuf),
    /// A recording that is open in a tab.
    Open(Arc<Recording>),
}

/// A recording with something added, and its device in front.
struct Added {
    to: DocumentId,
    recording: Arc<Recording>,
    data: Arc<DeviceData>,
    sentence: String,
    /// What was added does not agree with what it was added to.
    is_trouble: bool,
}

/// An addition on its way.
struct Adding {
    /// The tab of what is added, which goes when the addition succeeds.
    from: Option<DocumentId>,
    progress: Arc<Progress>,
    answer: Receiver<Result<Added, String>>,
}

impl Drop for Adding {
    fn drop(&mut self) {
        self.progress.cancel();
    }
}

/// What is being added, and which files were opened together.
#[derive(Default)]
pub(in crate::app) struct Additions {
    running: Vec<Adding>,
    together: Vec<Vec<DocumentId>>,
}

impl Additions {
    /// True when nothing is being added.
    pub(in crate::app) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

/// Which of two recordings can be added to the other: what joins it on one clock, or the counters of its run.
fn belongs_to(base: &Recording, extra: &Recording) -> bool {
    if extra.has_only_counters() { !base.has_only_counters() } else { can_join(base, extra) }
}

/// Files opened at once that still get a tab each when their names tell ranks of a job.
const MOST_TABS_OF_RANKS: usize = 8;
/// The same for any other files: more of them than anybody looks at one by one are shown side by side.
const MOST_TABS: usize = 32;

/// Whether files opened at once are shown side by side, as the ranks of a job, instead of in a tab each.
fn are_ranks(paths: &[PathBuf]) -> bool {
    let named = || ranks_of_names(paths).iter().filter(|rank| rank.is_some()).count();
    paths.len() > MOST_TABS || (paths.len() > MOST_TABS_OF_RANKS && named() * 2 > paths.len())
}

impl App {
    /// Opens files; several opened at once are put together when they are of one run.
    pub(in crate::app) fn open_together(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        if are_ranks(&paths) {
            self.open_ranks(paths);
            return;
        }
        let mut ids = Vec::new();
        for path in paths {
            self.open(path);
            ids.extend(self.active_document().map(|d| d.id));
        }
        if let Some(first) = ids.first().filter(|_| ids.len() > 1) {
            self.active = self.documents.iter().position(|d| d.id == *first);
            self.additions.together.push(ids);
        }
    }

    /// When the tab in front is one of a group opened together and could not be read, the first of them that could comes to the
    /// front, and what could not is named.
    fn leave_failed(&mut self, group: &[DocumentId]) {
        let at = |id: &DocumentId| self.documents.iter().position(|d| d.id == *id);
        let Some(failed) = self.active_document().filter(|d| group.contains(&d.id)) else { return };
        let Content::Failed(_) = &failed.content else { return };
        if let Some(good) = group.iter().filter_map(at).find(|&i| self.documents[i].view().is_some()) {
            self.active = Some(good);
        }
    }

    /// Names the files of a group that could not be read, while others could.
    fn name_failed(&mut self, group: &[DocumentId]) {
        let members = || self.documents.iter().filter(|d| group.contains(&d.id));
        if !members().any(|d| d.view().is_some()) {
            return;
        }
        let failed: Vec<String> = members()
            .filter_map(|d| match &d.content {
                Content::Failed(sentence) => Some(format!("{} was not opened: {sentence}", d.title)),
                _ => None,
            })
            .collect();
        for sentence in failed {
            self.notices.complain(sentence);
        }
    }

    /// Adds a file to the recording in front.
    pub(in crate::app) fn add_file(&mut self, path: PathBuf) {
        let target = self.active_document().and_then(|d| Some((d.id, d.recording.clone()?, d.view()?.data.index)));
        match target {
            Some(target) => self.start_adding(vec![target], Extra::File(path), None),
            None => self.notices.say("Open a recording first; a trace or counters of the same run can then be added to it."),
        }
    }

    fn start_adding(&mut self, to: Vec<(DocumentId, Arc<Recording>, usize)>, extra: Extra, from: Option<DocumentId>) {
        let progress = Arc::new(Progress::new());
        let shared = Arc::clone(&progress);
        let answer = self.jobs.spawn("add", move || add_to_first(to, extra, &shared));
        self.additions.running.push(Adding { from, progress, answer });
    }

    /// Takes in what was added, and looks whether files that were opened together are all there.
    pub(in crate::app) fn poll_additions(&mut self) {
        let mut at = 0;
        while let Some(adding) = self.additions.running.get(at) {
            let result = match adding.answer.try_recv() {
                Ok(result) => result,
                Err(TryRecvError::Empty) => {
                    at += 1;
                    continue;
                }
                Err(TryRecvError::Disconnected) => Err("the file could not be added; please report it".to_owned()),
            };
            let from = self.additions.running.remove(at).from;
            match result {
                Ok(added) => self.take_in(added, from),
                Err(sentence) => self.notices.complain(sentence),
            }
        }
        // One addition at a time: the next may go to what this one made.
        if self.additions.running.is_empty() {
            self.put_together();
        }
    }

    fn take_in(&mut self, added: Added, from: Option<DocumentId>) {
        let Some(document) = self.documents.iter_mut().find(|d| d.id == added.to) else { return };
        let link = document.view().map(|v| v.link.clone());
        let mut view = DeviceView::new(added.data);
        if let Some(mut link) = link {
            // Events and allocations are what they were; ranges may have been added before the selected one.
            if matches!(link.selected(), Some(Item::Annotation(_))) {
                link.selection.select(None);
            }
            view.link = link;
        }
        document.recording = Some(added.recording);
        document.content = Content::Ready(Box::new(view));
        document.parked.clear();
        self.active = self.documents.iter().position(|d| d.id == added.to);
        if let Some(at) = from.and_then(|id| self.documents.iter().position(|d| d.id == id)) {
            self.close(at);
            self.active = self.documents.iter().position(|d| d.id == added.to);
        }
        match added.is_trouble {
            true => self.notices.complain(added.sentence),
            false => self.notices.say(added.sentence),
        }
    }

    /// Looks at files that were opened together once all of them are read: the first that can be added to another is.
    fn put_together(&mut self) {
        let mut groups = std::mem::take(&mut self.additions.together);
        let mut waiting = Vec::new();
        for group in &mut groups {
            self.leave_failed(group);
            let members: Vec<&Document> = group.iter().filter_map(|id| self.documents.iter().find(|d| d.id == *id)).collect();
            if members.iter().any(|d| matches!(d.content, Content::Loading(_))) {
                waiting.push(std::mem::take(group));
                continue;
            }
            let ready: Vec<(DocumentId, Arc<Recording>, usize)> =
                members.iter().filter_map(|d| Some((d.id, d.recording.clone()?, d.view()?.data.index))).collect();
            let bases_of = |r: &Recording| -> Vec<(DocumentId, Arc<Recording>, usize)> {
                ready.iter().filter(|(_, base, _)| belongs_to(base, r)).cloned().collect()
            };
            if let Some((id, extra, _)) = ready.iter().find(|(_, r, _)| !bases_of(r).is_empty()) {
                let (id, extra, bases) = (*id, Arc::clone(extra), bases_of(extra));
                group.retain(|m| *m != id);
                waiting.push(std::mem::take(group));
                self.start_adding(bases, Extra::Open(extra), Some(id));
                break;
            }
            let rest = std::mem::take(group);
            self.name_failed(&rest);
        }
        waiting.extend(groups.into_iter().filter(|g| g.len() > 1));
        self.additions.together = waiting;
    }
}

/// Adds to the first recording that takes it.
fn add_to_first(to: Vec<(DocumentId, Arc<Recording>, usize)>, extra: Extra, progress: &Progress) -> Result<Added, String> {
    let extra = match extra {
        Extra::Open(recording) => recording,
        // A log may hold counters beside an error, and then opens as neither.
        Extra::File(path) => Arc::new(match stats::open(&path) {
            Ok(counters) => counters_alone(file_name(&path), counters),
            Err(_) => formats::open(&path, progress).map_err(|e| e.to_string())?,
        }),
    };
    if let (true, Some((id, recording, index))) = (extra.has_only_counters(), to.first()) {
        if recording.has_only_counters() {
            return Err("counters are held against a snapshot of the same run; open that, and add them to it".to_owned());
        }
        let mut recording = Recording::clone(recording);
        let name = extra.source.name.clone();
        let verdicts: Vec<_> = extra.stats.iter().map(|(_, stats)| judge_stats(&recording, &name, stats)).collect();
        let is_trouble = verdicts.iter().any(|v| v.failed > 0);
        let verdicts: Vec<String> = verdicts.into_iter().map(|v| v.sentence).collect();
        recording.stats.retain(|(known, _)| *known != name);
        recording.stats.extend(extra.stats.iter().cloned());
        let sentence = format!("{name}: {}. Accounting lists them.", verdicts.join("; "));
        return Ok(Added { is_trouble, ..finish(*id, recording, *index, sentence, progress)? });
    }
    let mut refusal = String::new();
    for (id, recording, index) in to {
        match join(Recording::clone(&recording), &extra, progress) {
            Ok((joined, found)) => {
                let gained = found.gained();
                let brought = if gained.is_empty() { "nothing new".to_owned() } else { gained.join(", ") };
                // How the clocks stand is told in Contents.
                let sentence = match &found.laid {
                    Some(_) => format!("Added {}: {brought}. The Timeline and Accounting show them.", found.name),
                    None => format!(
                        "Added {}, {} of {}: {brought}.",
                        found.name,
                        count(found.matched),
                        counted(found.expected, "memory event", "memory events")
                    ),
                };
                return finish(id, joined, index, sentence, progress);
            }
            Err(error) if refusal.is_empty() => refusal = error.to_string(),
            Err(_) => {}
        }
    }
    Err(refusal)
}

fn counters_alone(name: String, counters: MemoryStats) -> Recording {
    let source = Source { name: name.clone(), format: Format::Counters, ..Source::default() };
    Recording { source, stats: vec![(name, counters)], ..Recording::default() }
}

fn finish(to: DocumentId, recording: Recording, index: usize, sentence: String, progress: &Progress) -> Result<Added, String> {
    let recording = Arc::new(recording);
    let data = prepare(&recording, index, progress)?;
    Ok(Added { to, recording, data, sentence, is_trouble: false })
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::jobs::Jobs;
    use crate::app::settings::Settings;
    use vramscope_core::model::Action;

    /// What the profiler would have written of a recording's device.
    fn trace_of(recording: &Recording) -> String {
        let d = &recording.devices[0];
        let tables = vramscope_core::analysis::DeviceTables::build(d, &Progress::new()).unwrap();
        let mut out = String::from("{\"schemaVersion\": 1, \"traceEvents\": [");
        let mut comma = "";
        for i in 0..d.events.len() {
            let size = tables.lifetimes.block_size(tables.lifetimes.of_event(i as u32)) as i64;
            let bytes = match d.events.action[i] {
                Action::Alloc => size,
                Action::FreeRequested => -size,
                _ => continue,
            };
            let (time, address) = (d.events.time_us[i] - 700, d.events.address[i]);
            out += &format!(
                "{comma}{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::empty\",\"pid\":1,\"tid\":1,\"ts\":{time},\"dur\":0,\"args\":{{}}}},\
                 {{\"ph\":\"i\",\"cat\":\"cpu_instant_event\",\"s\":\"t\",\"name\":\"[memory]\",\"pid\":1,\"tid\":1,\"ts\":{time},\"args\":\
                 {{\"Bytes\":{bytes},\"Device Id\":0,\"Device Type\":1,\"Addr\":{address}}}}}"
            );
            comma = ",";
        }
        out + "]}"
    }

    fn app() -> App {
        App::new(&egui::Context::default(), Settings::default(), Jobs::synchronous())
    }

    fn settle(app: &mut App) {
        let ctx = egui::Context::default();
        for _ in 0..8 {
            app.logic(&ctx);
        }
        assert!(app.is_idle());
    }

    #[test]
    fn many_files_are_a_job_when_their_names_tell_ranks() {
        let ranks: Vec<PathBuf> = (0..9).map(|i| format!("/run/rank{i}.pickle").into()).collect();
        let others: Vec<PathBuf> = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(PathBuf::from).into();
        assert!(are_ranks(&ranks) && !are_ranks(&ranks[..8]) && !are_ranks(&others));
        let crowd: Vec<PathBuf> = (0..33).map(|i| format!("/x{i}/y.pickle").into()).collect();
        assert!(are_ranks(&crowd) && !are_ranks(&crowd[..32]));
    }

    #[test]
    fn files_of_one_run_opened_at_once_become_one_tab() {
        let dir = std::env::temp_dir().join(format!("vramscope-adding-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots");
        let snapshot = samples.join("leak.pickle");
        let recording = formats::open(&snapshot, &Progress::new()).unwrap();
        let (trace, counters) = (dir.join("leak.trace.json"), dir.join("leak.memory_stats.json"));
        std::fs::write(&trace, trace_of(&recording)).unwrap();
        let reserved = recording.devices[0].final_reserved();
        std::fs::write(&counters, format!("{{\"reserved_bytes.all.current\": {reserved}}}")).unwrap();

        // The order they are named in does not matter.
        let mut together = app();
        together.open_paths([trace.clone(), counters.clone(), snapshot.clone()]);
        settle(&mut together);
        assert_eq!(together.documents().len(), 1, "{:?}", together.notices().collect::<Vec<_>>());
        let joined = together.documents()[0].recording.clone().unwrap();
        assert_eq!((joined.added.len(), joined.stats.len()), (1, 1));
        assert!(!joined.ops.is_empty() && together.notices().any(|n| n.contains("memory events")), "{:?}", joined.added);

        // Counters alone are a recording too, of totals.
        let mut alone = app();
        alone.open_paths([counters.clone()]);
        settle(&mut alone);
        let document = &alone.documents()[0];
        assert!(document.view().is_some() && document.recording.as_ref().unwrap().has_only_counters());
        assert_eq!(document.arrangement(), crate::app::state::workspace::Workspace::Counters);

        // One after the other they stay apart until one is added.
        let mut apart = app();
        apart.open_paths([trace.clone()]);
        apart.open_paths([snapshot]);
        settle(&mut apart);
        assert_eq!(apart.documents().len(), 2);
        apart.actions().send(crate::app::state::action::Action::SetCursor(17));
        apart.actions().send(crate::app::state::action::Action::Add(trace.clone()));
        settle(&mut apart);
        let view = apart.active_document().and_then(Document::view).unwrap();
        assert_eq!((view.link.cursor, view.data.recording.added.len()), (17, 1));

        // A trace of another run is kept apart, and says why.
        let mut wrong = app();
        wrong.open_paths([samples.join("gpt_train.pickle"), trace]);
        settle(&mut wrong);
        assert_eq!(wrong.documents().len(), 2);
        assert!(wrong.notices().any(|n| n.contains("not of the same run")), "{:?}", wrong.notices().collect::<Vec<_>>());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
