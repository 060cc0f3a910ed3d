//! Recordings for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::device::{DeviceData, prepare};
use vramscope_core::model::{Progress, Recording};

/// An empty name gives the folder `sample_snapshots` itself.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots").join(name)
}

pub(crate) fn open(name: &str) -> Recording {
    vramscope_core::formats::open(&path(name), &Progress::new()).unwrap()
}

/// The first device of a sample, as a tab shows it.
pub(crate) fn device(name: &str) -> Arc<DeviceData> {
    prepare(&Arc::new(open(name)), 0, &Progress::new()).unwrap()
}
