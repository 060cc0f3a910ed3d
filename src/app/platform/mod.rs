//! The desktop around the window: the user's editor, the clipboard, notifications, this machine's GPUs.

pub mod clipboard;
pub mod editor;
pub mod machine;
pub mod notify;
