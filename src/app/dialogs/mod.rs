//! What is drawn over the window: dialogs, the path field, help, notices. A dialog changes the values that it is given and
//! returns how it ended. The shell acts on that.

pub mod choosing;
pub mod drop_target;
pub mod explain;
pub mod frame;
pub mod guide;
pub mod help;
pub mod notifications;
pub mod report;
pub mod rules;
pub mod settings;
pub mod sources;
pub mod tour;

/// How a frame of a dialog ended.
pub(in crate::app) enum Outcome<T> {
    Stays,
    Closed,
    /// It was closed with an answer.
    Done(T),
}
