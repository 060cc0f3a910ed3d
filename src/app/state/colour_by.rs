//! What block colours mean.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ColourBy {
    /// The user's innermost frame.
    #[default]
    Stack,
    /// The role: parameters, gradients, activations and so on.
    Role,
    /// Block size in eight classes, each with a similar share of the bytes at the peak.
    #[strum(serialize = "size class")]
    SizeClass,
    /// Events since the allocation, in powers of two that span the recording.
    Age,
    Stream,
    /// Small, large, or a private pool.
    Pool,
    Segment,
}

impl ColourBy {
    pub const ALL: &[ColourBy] = <ColourBy as strum::VariantArray>::VARIANTS;

    /// The name used inside a sentence.
    pub fn text(self) -> &'static str {
        self.into()
    }
}
