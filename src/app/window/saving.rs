//! Saving the recording in front.

use std::path::PathBuf;
use std::sync::Arc;

use super::App;
use crate::app::documents::document::Content;
use crate::app::documents::saving::{file_name, save};
use crate::app::jobs::answered;
use crate::cli::report;
use vramscope_core::anatomy::roles::Rules;
use vramscope_core::model::Recording;
use vramscope_core::units::Bytes;

impl App {
    /// The recording that "Save" refers to: the one in front, or the result of the probe page in front.
    fn to_save(&self) -> Option<&Arc<Recording>> {
        let document = self.active_document()?;
        let recording = match &document.content {
            Content::Probe(page) => page.outcome.as_ref()?.as_ref().ok().map(|made| &made.recording),
            Content::Ready(_) => document.recording.as_ref(),
            _ => None,
        };
        recording.filter(|r| r.devices.iter().any(|d| !d.events.is_empty() || !d.segments.is_empty()))
    }

    /// True for a recording with a trace or segments, and for a live watch, which saves its session.
    pub(in crate::app) fn can_save(&self) -> bool {
        self.to_save().is_some() || self.active_document().is_some_and(|d| d.feed.is_some())
    }

    /// Remembers the recording to save while the user chooses a path. False when there is none.
    pub(in crate::app) fn want_saved(&mut self) -> bool {
        self.saves.wanted = self.to_save().cloned();
        self.saves.wanted.is_some()
    }

    /// A file name for the recording. It differs from the file it was read from, because a saved recording is not the same.
    pub(in crate::app) fn name_to_save(&self) -> String {
        let name = file_name(self.saves.wanted.as_ref().map_or("recording", |r| r.source.name.as_str()));
        let is_of_file = self.active_document().and_then(|d| d.path.as_deref()?.file_name()).is_some_and(|of| *of == *name);
        if is_of_file { format!("{}-saved.pickle", name.trim_end_matches(".pickle")) } else { name }
    }

    pub(in crate::app) fn save_recording(&mut self, path: PathBuf) {
        let Some(recording) = self.saves.wanted.take() else { return };
        let out = path.clone();
        let answer = self.jobs.spawn("save", move || save(&recording, &out));
        self.saves.answers.push((path, answer));
    }

    /// Remembers the recording to report on while the user chooses a path. False when there is none in front.
    pub(in crate::app) fn want_report(&mut self) -> bool {
        self.saves.reported = self.active_document().and_then(|d| d.recording.clone());
        self.saves.reported.is_some()
    }

    pub(in crate::app) fn report_name(&self) -> String {
        let name = file_name(self.saves.reported.as_ref().map_or("recording", |r| r.source.name.as_str()));
        format!("{}.{}", name.trim_end_matches(".pickle"), if self.report.is_markdown { "md" } else { "html" })
    }

    /// Writes the requested report, like `vramscope report`. The dialog has already asked whether to replace a file.
    pub(in crate::app) fn save_report(&mut self, path: PathBuf) {
        let Some(recording) = self.saves.reported.take() else { return };
        let (out, rules) = (path.clone(), Rules::new(&self.settings.category_rules).0);
        let redact = self.report.redact;
        let answer = self.jobs.spawn("report", move || {
            let options = report::Options { redact, rules, ..report::Options::default() };
            let size = report::write(&recording, &out, &options)?;
            Ok(format!("Saved {}: the report, {}.", out.display(), Bytes(size)))
        });
        self.saves.answers.push((path, answer));
    }

    pub(in crate::app) fn poll_saves(&mut self) {
        let mut said = Vec::new();
        self.saves.answers.retain(|(path, answer)| {
            let outcome = answered(answer, || Err(format!("{}: nothing was saved; please try again.", path.display())));
            let is_waiting = outcome.is_none();
            said.extend(outcome);
            is_waiting
        });
        for outcome in said {
            match outcome {
                Ok(sentence) => self.notices.say(sentence),
                Err(sentence) => self.notices.complain(sentence),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::data::device::prepare;
    use crate::app::data::samples;
    use crate::app::dialogs::report::Choice;
    use vramscope_core::model::Progress;

    #[test]
    fn a_report_is_of_the_recording_in_front() {
        let mut app = App::synchronous(&egui::Context::default());
        assert!(!app.want_report(), "nothing is open");
        let recording = Arc::new(samples::open("two_gpus.pickle"));
        app.open_recording("two_gpus.pickle", prepare(&recording, 1, &Progress::new()).unwrap());
        assert!(app.want_report());
        assert_eq!(app.report_name(), "two_gpus.html");
        let folder = tempfile::tempdir().unwrap();
        for (name, begins) in [("r.html", "<!doctype html>"), ("r.md", "## GPU 0")] {
            let path = folder.path().join(name);
            assert!(app.want_report());
            app.save_report(path.clone());
            app.poll_saves();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.starts_with(begins) && text.contains("GPU 1"), "{name}: both devices are in it");
            assert_eq!(text.contains("two_gpus.pickle"), name == "r.html", "{name}: the page names the file");
            assert!(app.notices.texts().any(|text| text.contains(name)), "{name}");
        }
        app.report = Choice { is_markdown: true, redact: true };
        assert!(app.want_report());
        assert_eq!(app.report_name(), "two_gpus.md");
        let path = folder.path().join("redacted.html");
        app.save_report(path.clone());
        app.poll_saves();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("GPU 1") && !text.contains("two_gpus"), "{text}");
    }
}
