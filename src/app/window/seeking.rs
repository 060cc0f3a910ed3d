//! Searches for the next peak, or the next allocation of a stack.

use std::collections::VecDeque;
use std::sync::Arc;

use super::App;
use crate::app::documents::document::Document;
use crate::app::documents::moving::go_to;
use crate::app::documents::seeking::{Seeking, find};
use crate::app::jobs::answered;
use crate::app::state::Command;

impl App {
    /// Starts the search of a command, or queues it behind the running search.
    pub(in crate::app) fn seek(&mut self, command: Command) {
        if let Some(seeking) = &mut self.seeking {
            seeking.next.push_back(command);
            return;
        }
        let Some((of, view)) = self.active_document().and_then(|d| Some((d.id, d.view()?))) else { return };
        let (data, shared) = (Arc::clone(&view.data), view.shared.clone());
        let answer = self.jobs.spawn("seek", move || find(command, &shared, &data));
        self.seeking = Some(Seeking { of, answer, next: VecDeque::new() });
        self.poll_seeking();
    }

    /// Goes to the result of a finished search and starts the next one.
    pub(in crate::app) fn poll_seeking(&mut self) {
        let Some(seeking) = self.seeking.take() else { return };
        let Some(found) = answered(&seeking.answer, || None) else {
            self.seeking = Some(seeking);
            return;
        };
        // The user switched to another tab, so the search is dropped.
        if self.active_document().map(|d: &Document| d.id) != Some(seeking.of) {
            return;
        }
        if let Some((event, item)) = found {
            self.with_shared(|shared, data| {
                if item.is_some() {
                    shared.selection.select(item);
                }
                go_to(shared, data, event);
            });
        }
        seeking.next.into_iter().for_each(|command| self.seek(command));
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::app::data::samples;
    use crate::app::jobs::Jobs;
    use crate::app::settings::Settings;

    fn app_with_sample(jobs: Jobs) -> (App, egui::Context) {
        let ctx = egui::Context::default();
        let mut app = App::new(&ctx, Settings::default(), jobs);
        app.open_recording("gpt_train", samples::device("gpt_train.pickle"));
        (app, ctx)
    }

    fn cursor(app: &App) -> u32 {
        app.active_document().and_then(Document::view).map_or(0, |v| v.shared.cursor)
    }

    #[test]
    fn a_search_is_the_work_of_a_thread_and_presses_add_up() {
        let commands = [Command::First, Command::NextPeak, Command::NextPeak, Command::NextPeak, Command::PreviousPeak];
        let (mut there, ctx) = app_with_sample(Jobs::synchronous());
        commands.into_iter().for_each(|command| there.run(command, &ctx));
        let (mut app, ctx) = app_with_sample(Jobs::default());
        commands.into_iter().for_each(|command| app.run(command, &ctx));
        assert!(app.seeking.is_some(), "the window's thread does not wait");
        let start = Instant::now();
        while app.seeking.is_some() && start.elapsed() < Duration::from_secs(20) {
            app.poll_seeking();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_ne!(cursor(&app), 0);
        assert_eq!(cursor(&app), cursor(&there));
    }
}
