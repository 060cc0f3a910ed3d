//! Adding files to an open recording. Files of one run that are opened together become one tab. A file that does not fit stays
//! separate, and a notice says why.

use std::path::PathBuf;
use std::sync::Arc;

use super::App;
use crate::app::documents::adding::{Added, Adding, Extra, add_to_first, are_ranks, belongs_to};
use crate::app::documents::document::{Content, DeviceView, Document};
use crate::app::jobs::answered;
use crate::app::state::{DocumentId, Item};
use vramscope_core::model::{Format, Progress, Recording};

impl App {
    /// Opens files. Files of one run are merged.
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
            self.documents.show(*first);
            self.additions.together.push(ids);
        }
    }

    /// When the tab in front is a failed file of a group opened together, brings the group's first good file to the front and
    /// names the failed ones.
    fn leave_failed(&mut self, group: &[DocumentId]) {
        let Some(failed) = self.active_document().filter(|d| group.contains(&d.id)) else { return };
        let Content::Failed(_) = &failed.content else { return };
        let is_read = |id: &&DocumentId| self.documents.find(**id).is_some_and(|d| d.view().is_some());
        if let Some(&good) = group.iter().find(is_read) {
            self.documents.show(good);
        }
    }

    /// Names the files of a group that failed to load, when others did not.
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

    pub(in crate::app) fn add_file(&mut self, path: PathBuf) {
        let target = self.active_document().and_then(|d| Some((d.id, d.recording.clone()?, d.view()?.data.index)));
        match target {
            Some(target) => self.start_adding(vec![target], Extra::File(path), None),
            None => self.notices.say("Open a recording first; a trace or counters of the same run can then be added to it."),
        }
    }

    fn start_adding(&mut self, to: Vec<(DocumentId, Arc<Recording>, usize)>, extra: Extra, from: Option<DocumentId>) {
        // A watch opened together with a recording is usually not meant to be added, so a mismatch is not reported.
        let is_quiet = matches!(&extra, Extra::Open(extra) if extra.source.format == Format::Session);
        let progress = Arc::new(Progress::new());
        let shared = Arc::clone(&progress);
        let answer = self.jobs.spawn("add", move || add_to_first(to, extra, &shared));
        self.additions.running.push(Adding { from, is_quiet, progress, answer });
    }

    /// Handles finished additions, and checks whether all files opened together are loaded.
    pub(in crate::app) fn poll_additions(&mut self) {
        let mut at = 0;
        while let Some(adding) = self.additions.running.get(at) {
            let lost = || Err("the file could not be added; please report it".to_owned());
            let Some(result) = answered(&adding.answer, lost) else {
                at += 1;
                continue;
            };
            let adding = self.additions.running.remove(at);
            match result {
                Ok(added) => self.take_in(added, adding.from),
                Err(_) if adding.is_quiet => {}
                Err(sentence) => self.notices.complain(sentence),
            }
        }
        // One addition at a time, because the next one may apply to the result of this one.
        if self.additions.running.is_empty() {
            self.put_together();
        }
    }

    fn take_in(&mut self, added: Added, from: Option<DocumentId>) {
        let Some(document) = self.documents.find_mut(added.to) else { return };
        let shared = document.view().map(|v| v.shared.clone());
        let mut view = DeviceView::new(added.data);
        if let Some(mut shared) = shared {
            // Events and allocations keep their numbers, but added annotations may change the selected one's index.
            if matches!(shared.selected(), Some(Item::Annotation(_))) {
                shared.selection.select(None);
            }
            view.shared = shared;
        }
        document.recording = Some(added.recording);
        document.content = Content::Ready(Box::new(view));
        document.parked.clear();
        if let Some(from) = from {
            self.close(from);
        }
        self.documents.show(added.to);
        match added.is_trouble {
            true => self.notices.complain(added.sentence),
            false => self.notices.say(added.sentence),
        }
    }

    /// Once all files of a group are loaded, adds the first one that can be added to another.
    fn put_together(&mut self) {
        let mut groups = std::mem::take(&mut self.additions.together);
        let mut waiting = Vec::new();
        for group in &mut groups {
            self.leave_failed(group);
            let members: Vec<&Document> = group.iter().filter_map(|id| self.documents.find(*id)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::samples;
    use vramscope_core::model::Action;

    /// A trace as the profiler would write it for the recording's device.
    fn trace_of(recording: &Recording) -> String {
        let d = &recording.devices[0];
        let tables = vramscope_core::tables::DeviceTables::build(d, &Progress::new()).unwrap();
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
        App::synchronous(&egui::Context::default())
    }

    fn settle(app: &mut App) {
        let ctx = egui::Context::default();
        for _ in 0..8 {
            app.logic(&ctx);
        }
        assert!(app.is_idle());
    }

    #[test]
    fn files_of_one_run_opened_at_once_become_one_tab() {
        let dir = std::env::temp_dir().join(format!("vramscope-adding-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let snapshot = samples::path("leak.pickle");
        let recording = samples::open("leak.pickle");
        let (trace, counters) = (dir.join("leak.trace.json"), dir.join("leak.memory_stats.json"));
        std::fs::write(&trace, trace_of(&recording)).unwrap();
        let reserved = recording.devices[0].final_reserved();
        std::fs::write(&counters, format!("{{\"reserved_bytes.all.current\": {reserved}}}")).unwrap();

        // The order of the files does not matter.
        let mut together = app();
        together.open_paths([trace.clone(), counters.clone(), snapshot.clone()]);
        settle(&mut together);
        assert_eq!(together.documents().len(), 1, "{:?}", together.notices().collect::<Vec<_>>());
        let joined = together.documents()[0].recording.clone().unwrap();
        assert_eq!((joined.added.len(), joined.stats.len()), (1, 1));
        assert!(!joined.ops.is_empty() && together.notices().any(|n| n.contains("memory events")), "{:?}", joined.added);

        // Counters alone also open as a recording, of totals.
        let mut alone = app();
        alone.open_paths([counters.clone()]);
        settle(&mut alone);
        let document = &alone.documents()[0];
        assert!(document.view().is_some() && document.recording.as_ref().unwrap().has_only_counters());
        assert_eq!(document.arrangement(), crate::app::state::workspace::Workspace::Counters);

        // Files opened one after the other stay separate until the user adds one.
        let mut apart = app();
        apart.open_paths([trace.clone()]);
        apart.open_paths([snapshot]);
        settle(&mut apart);
        assert_eq!(apart.documents().len(), 2);
        apart.actions().send(crate::app::state::action::Action::SetCursor(17));
        apart.actions().send(crate::app::state::action::Action::Add(trace.clone()));
        settle(&mut apart);
        let view = apart.active_document().and_then(Document::view).unwrap();
        assert_eq!((view.shared.cursor, view.data.recording.added.len()), (17, 1));

        // A trace of another run stays separate, with a notice.
        let mut wrong = app();
        wrong.open_paths([samples::path("gpt_train.pickle"), trace]);
        settle(&mut wrong);
        assert_eq!(wrong.documents().len(), 2);
        assert!(wrong.notices().any(|n| n.contains("not of the same run")), "{:?}", wrong.notices().collect::<Vec<_>>());
        std::fs::remove_dir_all(&dir).unwrap();

        // A watch of another time stays separate, without a notice.
        let mut beside = app();
        beside.open_paths([samples::path("gpt_train.pickle"), samples::path("live.vramscope")]);
        settle(&mut beside);
        assert_eq!((beside.documents().len(), beside.notices().count()), (2, 0));
    }
}
