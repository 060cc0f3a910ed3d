//! What block colours mean, as the user chooses it.

use serde::{Deserialize, Serialize};

/// What block colours mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ColourBy {
    /// The user's innermost frame.
    #[default]
    Stack,
    /// What it is for: parameters, gradients, activations and so on.
    Role,
    /// Block size, in eight steps that each hold a fair share of the bytes at the peak.
    SizeClass,
    /// Events since the allocation, in octaves that span the recording.
    Age,
    /// The stream it belongs to.
    Stream,
    /// Small, large, or a private pool.
    Pool,
    /// The segment that holds it.
    Segment,
}

impl ColourBy {
    /// Every choice, in menu order.
    pub const ALL: [ColourBy; 7] = [
        ColourBy::Stack,
        ColourBy::Role,
        ColourBy::SizeClass,
        ColourBy::Age,
        ColourBy::Stream,
        ColourBy::Pool,
        ColourBy::Segment,
    ];

    /// Its name inside a sentence.
    pub fn text(self) -> &'static str {
        match self {
            ColourBy::Stack => "stack",
            ColourBy::Role => "role",
            ColourBy::SizeClass => "size class",
            ColourBy::Age => "age",
            ColourBy::Stream => "stream",
            ColourBy::Pool => "pool",
            ColourBy::Segment => "segment",
        }
    }
}
