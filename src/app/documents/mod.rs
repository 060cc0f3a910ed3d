//! Open recordings: reading them, their tabs, what is added to them, saving them, and the folder that new ones appear in.

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
