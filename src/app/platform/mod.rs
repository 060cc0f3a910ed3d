//! The desktop: the user's editor, the clipboard, notifications, this machine's GPUs.

pub mod clipboard;
pub mod editor;
pub mod machine;
pub mod notify;

/// Expands `~/` as a shell does. Other paths stay as they are.
pub(in crate::app) fn from_home(path: &str) -> std::path::PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => std::path::Path::new(&home).join(rest),
        _ => path.into(),
    }
}
