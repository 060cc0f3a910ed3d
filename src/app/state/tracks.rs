//! The tracks of the timeline: which the user folded or opened, and their heights.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumCount, strum::VariantArray, strum::IntoStaticStr)]
pub enum Track {
    Overview,
    Curves,
    Steps,
    Device,
    #[strum(serialize = "Operators")]
    Ops,
    #[strum(serialize = "Categories")]
    Bands,
    #[strum(serialize = "Whole card")]
    Card,
    Phases,
}

impl Track {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Arrangement of the timeline's tracks. Saved with the layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrackLayout {
    /// One bit per track that the user folded; `opened` has one per track that the user opened. A saved layout stays valid when a
    /// track is added.
    #[serde(rename = "folded_tracks")]
    pub(in crate::app) folded: u32,
    pub(in crate::app) opened: u32,
    /// Height the user gave the curves, in points; `None` lets the pane decide.
    pub curves_height: Option<f32>,
    /// Height the user gave the operators, in points; `None` lets the pane decide.
    pub ops_height: Option<f32>,
}

impl TrackLayout {
    /// Whether the user folded the track or opened it; `None` if neither.
    pub fn is_folded(&self, track: Track) -> Option<bool> {
        let bit = 1 << track as u32;
        (self.folded & bit > 0).then_some(true).or((self.opened & bit > 0).then_some(false))
    }

    pub fn with_folded(mut self, track: Track, is_folded: bool) -> Self {
        let bit = 1 << track as u32;
        let (on, off) = if is_folded { (&mut self.folded, &mut self.opened) } else { (&mut self.opened, &mut self.folded) };
        *on |= bit;
        *off &= !bit;
        self
    }
}
