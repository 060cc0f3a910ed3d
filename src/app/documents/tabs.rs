//! The open tabs, in order, and which of them is in front.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

use super::document::{Content, Document};
use crate::app::state::{DocumentId, Layouts};

/// The open tabs. They can be read as a slice of documents; only this type opens and closes them.
#[derive(Default)]
pub(in crate::app) struct Tabs {
    documents: Vec<Document>,
    /// Index of the tab in front; `None` shows the welcome page.
    front: Option<usize>,
    /// How many tabs were ever opened. Ids are not reused.
    opened: u64,
}

impl Deref for Tabs {
    type Target = [Document];

    fn deref(&self) -> &[Document] {
        &self.documents
    }
}

impl DerefMut for Tabs {
    fn deref_mut(&mut self) -> &mut [Document] {
        &mut self.documents
    }
}

impl Tabs {
    pub(in crate::app) fn at_front(&self) -> Option<usize> {
        self.front
    }

    pub(in crate::app) fn front(&self) -> Option<&Document> {
        self.front.and_then(|at| self.documents.get(at))
    }

    pub(in crate::app) fn front_mut(&mut self) -> Option<&mut Document> {
        self.front.and_then(|at| self.documents.get_mut(at))
    }

    /// Opens a tab at the end without bringing it to the front.
    pub(in crate::app) fn open_behind(
        &mut self,
        title: String,
        path: Option<PathBuf>,
        content: Content,
        layouts: Layouts,
    ) -> &mut Document {
        self.opened += 1;
        let at = self.documents.len();
        self.documents.push(Document::new(DocumentId(self.opened), title, path, content, layouts));
        &mut self.documents[at]
    }

    pub(in crate::app) fn open(
        &mut self,
        title: String,
        path: Option<PathBuf>,
        content: Content,
        layouts: Layouts,
    ) -> &mut Document {
        self.front = Some(self.documents.len());
        self.open_behind(title, path, content, layouts)
    }

    pub(in crate::app) fn place_of(&self, id: DocumentId) -> Option<usize> {
        self.iter().position(|d| d.id == id)
    }

    pub(in crate::app) fn find(&self, id: DocumentId) -> Option<&Document> {
        self.iter().find(|d| d.id == id)
    }

    pub(in crate::app) fn find_mut(&mut self, id: DocumentId) -> Option<&mut Document> {
        self.iter_mut().find(|d| d.id == id)
    }

    /// Brings a tab to the front, or shows the welcome page if that tab is closed.
    pub(in crate::app) fn show(&mut self, id: DocumentId) {
        self.front = self.place_of(id);
    }

    /// Brings the first matching tab to the front; false when none matches.
    pub(in crate::app) fn show_first(&mut self, fits: impl Fn(&Document) -> bool) -> bool {
        let found = self.iter().position(fits);
        self.front = found.or(self.front);
        found.is_some()
    }

    pub(in crate::app) fn show_none(&mut self) {
        self.front = None;
    }

    /// Moves the front by `step` tabs and wraps around.
    pub(in crate::app) fn cycle(&mut self, step: isize) {
        let n = self.len() as isize;
        if n > 0 {
            let at = self.front.map_or(0, |i| i as isize + step);
            self.front = Some(at.rem_euclid(n) as usize);
        }
    }

    /// Moves a tab to a place in the row; the tab in front stays in front.
    pub(in crate::app) fn move_to(&mut self, id: DocumentId, to: usize) {
        let Some(at) = self.place_of(id) else { return };
        let front = self.front().map(|document| document.id);
        let document = self.documents.remove(at);
        self.documents.insert(to.min(self.documents.len()), document);
        self.front = front.and_then(|id| self.place_of(id));
    }

    /// Closes a tab. If it was in front, the next one comes to the front.
    pub(in crate::app) fn close(&mut self, id: DocumentId) -> Option<Document> {
        let at = self.place_of(id)?;
        let document = self.documents.remove(at);
        self.front = match self.front {
            _ if self.documents.is_empty() => None,
            Some(i) if i > at || i >= self.documents.len() => Some(i.saturating_sub(1)),
            other => other,
        };
        Some(document)
    }
}
