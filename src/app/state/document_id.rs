//! The identifier of an open tab.

/// Identifies a document for as long as the app runs. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DocumentId(pub u64);
