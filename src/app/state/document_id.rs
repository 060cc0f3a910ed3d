//! The name of an open tab.

/// Names a document for as long as the app runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DocumentId(pub u64);
