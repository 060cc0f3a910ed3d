//! Handles the results of loading threads.

use super::App;
use crate::app::documents::document::{Content, DeviceView, Settling};
use crate::app::documents::loader::Instead;
use crate::app::documents::samples::describe;
use crate::app::settings::Recent;
use crate::app::state::shared::domain;
use crate::app::state::{Action, Axis, Workspace};
use vramscope_core::model::Format;
use vramscope_core::units::count;

impl App {
    /// Keeps the first finding of the recording in front for the list of recent files.
    pub(in crate::app) fn poll_first_finding(&mut self) {
        let Some(document) = self.documents.front() else { return };
        let (Some(path), Some(found)) = (&document.path, document.view().and_then(DeviceView::first_finding)) else { return };
        let is_asked = |recent: &&mut Recent| recent.path == *path && recent.finding.is_empty();
        if let Some(recent) = self.settings.recents.iter_mut().find(is_asked) {
            recent.finding = found.to_owned();
        }
    }

    /// Handles recordings that were read and devices that were prepared.
    pub(in crate::app) fn poll_loading(&mut self) {
        let mut recents = Vec::new();
        let (mut gone, mut cut_short) = (Vec::new(), Vec::new());
        let (mut told, mut folders) = (Vec::new(), Vec::new());
        let (axis, colour_by, tracks) = (self.settings.axis, self.settings.colour_by, self.settings.tracks);
        for document in self.documents.iter_mut() {
            let Content::Loading(loading) = &mut document.content else { continue };
            match loading.poll() {
                None => {}
                Some(Ok((recording, data))) => {
                    let is_new = document.recording.is_none();
                    if let (true, Some(path)) = (is_new, &document.path) {
                        recents.push(describe(path.clone(), &data));
                    }
                    // A watch has no trace, so its start page is the card over time.
                    if is_new && recording.source.format == Format::Session {
                        document.workspace = Workspace::Live;
                    }
                    if is_new && recording.report.truncated().is_some() {
                        let title = &document.title;
                        cut_short.push(format!("{title} is cut short: its last part is missing. Copy the file again."));
                    }
                    if is_new && recording.report.nonsense() > 0 {
                        let (title, values) = (&document.title, count(recording.report.nonsense()));
                        cut_short.push(format!(
                            "{values} values of {title} make no sense, so figures may be wrong. Contents tells what was met."
                        ));
                    }
                    document.recording = Some(recording);
                    let (look, curves_of) = (loading.look, loading.preview.first().map(|p| p.device));
                    let mut view = DeviceView::new(data);
                    view.shared.tracks = tracks;
                    view.colour_as_chosen(colour_by);
                    // A predicted run has no real times of its own.
                    if axis == Axis::Time && !view.data.recording.source.format.never_ran() && view.data.device().events.has_time
                    {
                        view.shared.axis = axis;
                        (view.shared.from, view.shared.to) = domain(view.data.device(), axis);
                    }
                    let events = view.data.device().events.len();
                    look.carry_over(curves_of, view.data.index, events, &mut view.shared);
                    let page = std::mem::replace(&mut document.content, Content::Ready(Box::new(view)));
                    if let (Content::Loading(page), Content::Ready(view), false) =
                        (page, &mut document.content, self.jobs.is_synchronous)
                    {
                        view.settling = Some(Settling::new(page));
                    }
                }
                Some(Err(sentence)) => {
                    match (loading.instead(), &document.path) {
                        (Some(Instead::Gone), Some(path)) => gone.push(path.clone()),
                        (Some(Instead::Folder), Some(path)) => folders.push((document.id, path.clone())),
                        (Some(Instead::Several(snapshots)), _) => document.snapshots = snapshots.clone(),
                        _ => {}
                    }
                    if let Some(log) = loading.message() {
                        told.push((document.id, log.clone()));
                    }
                    document.content = Content::Failed(sentence);
                }
            }
        }
        // A log is not a recording; its error message is explained instead.
        for (id, log) in told {
            // Closes it at once, because a file opened together with it would otherwise count it as failed.
            self.close(id);
            self.actions.send(Action::Explain(log));
        }
        for (id, folder) in folders {
            self.close(id);
            self.open_ranks(vec![folder]);
        }
        for recent in recents {
            self.settings.remember(recent);
        }
        for path in gone {
            self.settings.forget(&path);
        }
        for sentence in cut_short {
            self.notices.complain(sentence);
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;
    use crate::app::data::samples;

    #[test]
    fn of_a_page_with_several_snapshots_one_is_chosen() {
        let folder = tempfile::tempdir().unwrap();
        let text = base64::engine::general_purpose::STANDARD.encode(std::fs::read(samples::path("cuda_graph.pickle")).unwrap());
        let one = |name: &str| format!("{{\"name\": \"{name}\", \"base64\": \"{text}\"}}");
        let page = folder.path().join("job.html");
        let files = format!("<html><script>const local_files = [{}, {}]</script>", one("rank0.pickle"), one("rank1.pickle"));
        std::fs::write(&page, files).unwrap();

        let mut app = App::synchronous(&egui::Context::default());
        app.open(page.clone());
        app.poll_loading();
        let asks = app.active_document().unwrap();
        let choices: Vec<&str> = asks.snapshots.iter().map(|s| s.choice.as_str()).collect();
        assert_eq!(choices, ["rank0.pickle", "rank1.pickle"]);
        let asking = asks.id;

        app.open(vramscope_core::formats::one_of_page(&page, "rank1.pickle"));
        app.poll_loading();
        let opened = app.active_document().unwrap();
        assert!(opened.view().is_some() && opened.title.ends_with("rank1.pickle"), "{}", opened.title);
        // The page stays open. Opening the file again brings it to the front.
        app.open(page);
        assert_eq!(app.active_document().unwrap().id, asking);
    }
}
