//! Choosing files and folders: with the desktop's dialog, or with a path field when there is none.

pub(in crate::app) mod dialog;
pub(in crate::app) mod field;
mod listing;
pub(in crate::app) mod pair;

pub(in crate::app) use dialog::Dialogs;
pub(in crate::app) use field::Asking;
pub(in crate::app) use listing::age;
