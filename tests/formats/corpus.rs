//! The folder of recordings that is too large for the repository.

use std::path::PathBuf;

/// The folder that `VRAMSCOPE_CORPUS` names; without it what needs the corpus is skipped, and says so.
pub fn corpus() -> Option<PathBuf> {
    let folder = std::env::var_os("VRAMSCOPE_CORPUS").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: set VRAMSCOPE_CORPUS");
    }
    folder
}
