//! Applies actions. State changes only here.

use std::sync::Arc;

use egui::Context;

use super::{App, Overlay};
use crate::app::data::device::DeviceData;
use crate::app::dialogs::sources::Question;
use crate::app::documents::document::{Content, Document};
use crate::app::documents::moving::{clamp_event, go_to, set_axis, set_marker, set_window};
use crate::app::live::take_over;
use crate::app::state::{Action, AskedQuery, Choosing, SharedViewState, Source, workspace};
use vramscope_core::query::Query;

impl App {
    pub(in crate::app) fn apply(&mut self, action: Action, ctx: &Context) {
        match action {
            Action::Run(command) => self.run(command, ctx),
            Action::Open(paths) => self.open_together(paths),
            Action::OpenRanks(paths) => self.open_ranks(paths),
            Action::CompareFiles(a, b) => {
                self.open(a);
                self.to_compare = self.active_document().map(|d| (d.id, b));
                self.poll_comparison(ctx);
            }
            Action::CompareOneOf(path) => match self.first_of_two.take() {
                Some(first) => self.apply(Action::CompareFiles(first, path), ctx),
                None => {
                    self.first_of_two = Some(path);
                    self.open_dialog(Choosing::Second);
                }
            },
            Action::WatchFolder(folder) => self.watch_folder(folder),
            Action::Explain(log) => self.overlay = Overlay::Explain(crate::app::dialogs::explain::Explainer::of(log)),
            Action::ExplainLog(path) => self.explain_log(path),
            Action::NothingToExplain(why) => {
                self.overlay = Overlay::Explain(crate::app::dialogs::explain::Explainer::refusing(why))
            }
            Action::Choose(purpose) => self.open_dialog(purpose),
            Action::AskPath(purpose) => self.ask_path(purpose),
            Action::PlanWith(path) => self.with_shared(|shared, _| shared.to_plan_with.push(path)),
            Action::SaveSession(path) => self.save_session(path),
            Action::OfferWatch(path, sentence) => {
                let offers = [("Open it", Action::KeepWatch(path.clone())), ("Delete it", Action::DeleteWatch(path))];
                self.notices.offer_one_of(sentence, offers);
            }
            Action::KeepWatch(path) => self.open(take_over(path)),
            Action::DeleteWatch(path) => self.delete_watch(&path),
            Action::AskLog => self.open_dialog(Choosing::Log),
            Action::AskPicture(part) => {
                self.pictures.part = part;
                self.open_dialog(Choosing::Picture);
            }
            Action::SavePicture(path) => self.save_picture(path, ctx),
            Action::SaveRecording(path) => self.save_recording(path),
            Action::SaveReport(path) => self.save_report(path),
            Action::Add(path) => self.add_file(path),
            Action::OpenSample(index) => {
                if let Some(sample) = self.samples.get(index).copied() {
                    self.open_sample(sample);
                }
            }
            Action::OpenWatchSample => {
                if let Some(sample) = self.samples.iter().find(|sample| sample.is_watch()).copied() {
                    self.open_sample(sample);
                }
            }
            Action::Activate(id) => self.documents.show(id),
            Action::MoveTab(id, to) => self.documents.move_to(id, to),
            Action::Close(id) => self.close(id),
            Action::SetDevice(index) => self.set_device(index),
            Action::SetCursor(event) => self.with_shared(|shared, data| shared.cursor = clamp_event(data, event)),
            Action::GoTo(event) => self.with_shared(|shared, data| go_to(shared, data, event)),
            Action::SetInstant(at_us) => self.with_shared(|shared, _| shared.instant_us = at_us),
            Action::SetWindow(from, to) => self.with_shared(|shared, data| set_window(shared, data, from, to)),
            Action::SetAxis(axis) => self.with_shared(|shared, data| set_axis(shared, data, axis)),
            Action::HoverEvent(event) => self.with_shared(|shared, _| shared.hover_event = event),
            Action::Hover(item) => self.with_shared(|shared, _| shared.hovered = item),
            Action::HoverClass(class) => self.with_shared(|shared, _| shared.hover_class = class),
            Action::HoverOwn(own) => self.with_shared(|shared, _| shared.hover_own = own),
            Action::KeepOwn(own) => self.with_shared(|shared, _| shared.own = own),
            Action::Select(item) => self.with_shared(|shared, _| {
                shared.selection.select(item);
                shared.own = None;
            }),
            Action::SetRange(range) => self.with_shared(|shared, data| {
                shared.range = range.map(|(a, b)| (clamp_event(data, a.min(b)), clamp_event(data, a.max(b))));
            }),
            Action::SetColourBy(by) => {
                // Saves the user's choice, but not the fallback that a recording without stacks uses.
                self.settings.colour_by = Some(by);
                self.with_shared(|shared, _| {
                    shared.colour_by = by;
                    shared.focus_classes.clear();
                    shared.hover_class = None;
                });
            }
            Action::SetQuery(text) => self.with_shared(|shared, _| {
                let read = Query::parse(&text).ok().filter(|query| !query.is_empty());
                shared.query = read.map(|query| Arc::new(AskedQuery { text, query }));
            }),
            Action::SetFocusClasses(classes) => self.with_shared(|shared, _| shared.focus_classes = classes),
            Action::SetMarker(which, event) => {
                self.with_shared(|shared, data| set_marker(shared, which, event.map(|e| clamp_event(data, e))))
            }
            Action::OpenSimulation { conf, limit } => self.open_simulation(&conf, limit),
            Action::OpenPlanned(run) => self.open_planned(*run),
            Action::BackToPlan => {
                if let Some(id) = self.active_document().and_then(|document| document.planned_in) {
                    self.documents.show_first(|document| document.id == id);
                }
            }
            Action::TrySettings(conf) => {
                self.with_shared(|shared, _| shared.to_try.push(conf));
                if let Some(document) = self.active_document_mut() {
                    document.go_to(workspace::Workspace::WhatIf);
                    let whatif = workspace::Workspace::WhatIf;
                    workspace::show(document.layouts.tree(whatif), whatif, crate::app::state::view_kind::ViewKind::WhatIf);
                }
                self.maximised = None;
            }
            Action::SetTracks(tracks) => {
                self.settings.tracks = tracks;
                for document in self.documents.iter_mut() {
                    let parked = document.parked.values_mut();
                    let shown = match &mut document.content {
                        Content::Ready(view) => Some(view),
                        _ => None,
                    };
                    parked.chain(shown).for_each(|view| view.shared.tracks = tracks);
                }
            }
            Action::Compare(which, source) => self.with_shared(|shared, _| {
                // The marker is removed, because its flag in the timeline would be wrong.
                if source != Source::Marker
                    && let Some(marker) = shared.markers.get_mut(which)
                {
                    *marker = None;
                }
                if let Some(side) = shared.compared.get_mut(which) {
                    *side = source;
                }
            }),
            Action::OpenSource { file, line } => self.open_source(file, line),
            Action::Visit(view) => self.visit(view, ctx),
            Action::AskSourceFolder => self.overlay = Overlay::Source(Question::Folder(String::new())),
            Action::SourcesIn(folder) => self.look_for_source(folder),
            Action::Copy(text) => {
                ctx.copy_text(text);
                self.copying.is_told = true;
            }
            Action::Live(action) => self.act_live(action),
            Action::Notify(text) => self.notices.say(text),
            Action::Complain(text) => self.notices.complain(text),
        }
    }

    pub(in crate::app) fn with_shared(&mut self, change: impl FnOnce(&mut SharedViewState, &DeviceData)) {
        if let Some(view) = self.active_document_mut().and_then(Document::view_mut) {
            let data = std::sync::Arc::clone(&view.data);
            let before = (view.shared.axis, view.shared.from, view.shared.to, view.shared.selected());
            change(&mut view.shared, &data);
            let after = (view.shared.axis, view.shared.from, view.shared.to, view.shared.selected());
            view.shared.remember(before);
            if after != before
                && let Some(document) = self.active_document_mut()
            {
                document.left.1 = false;
            }
        }
    }
}
