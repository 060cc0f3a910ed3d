//! What is drawn, held against the pictures in `tests/snapshots`.
//!
//! A view whose code asks for the theme has a picture in both (Flame, Heatmap, What-if). The others take their colours from the tokens,
//! which the gallery shows in both themes, so each of their pictures is in one. `tests/architecture.rs` bounds the bytes of all.

use egui_kittest::{Harness, SnapshotResults};

/// The pictures of one test, which fails at its end with each of them that differs.
pub struct Pictures(SnapshotResults);

impl Pictures {
    /// Nothing where there is neither Vulkan nor OpenGL: pictures cannot be made there.
    pub fn new() -> Option<Self> {
        let found =
            std::panic::catch_unwind(|| Harness::builder().with_size([8.0, 8.0]).wgpu().build_ui(|_| {}).render().is_ok());
        if matches!(found, Ok(true)) {
            return Some(Self(SnapshotResults::new()));
        }
        crate::shared::not_run("no graphics adapter, not even a software one (mesa-vulkan-drivers)");
        None
    }

    /// Holds a window as it is now against the picture of this name.
    pub fn compare<S>(&mut self, name: &str, mut h: Harness<'_, S>) {
        h.snapshot(name);
        self.0.extend_harness(&mut h);
    }
}
