//! Open recordings: loading, tabs, adding files, saving, and the watched folder.

pub mod adding;
pub mod document;
pub mod folder_watch;
pub mod loader;
pub mod loading;
pub mod logs;
pub mod moving;
pub mod samples;
pub mod saving;
pub mod seeking;
pub mod tabs;
