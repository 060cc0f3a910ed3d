//! What block colours mean.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ColourBy {
    /// The user's innermost frame.
    #[default]
    Stack,
    /// The role: parameters, gradients, activations and so on.
    Role,
    /// Block size in eight classes, each with a similar share of the bytes at the peak.
    SizeClass,
    /// Events since the allocation, in powers of two that span the recording.
    Age,
    Stream,
    /// Small, large, or a private pool.
    Pool,
    Segment,
}

impl ColourBy {
    pub const ALL: [ColourBy; 7] = [
        ColourBy::Stack,
        ColourBy::Role,
        ColourBy::SizeClass,
        ColourBy::Age,
        ColourBy::Stream,
        ColourBy::Pool,
        ColourBy::Segment,
    ];

    /// The name used inside a sentence.
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
