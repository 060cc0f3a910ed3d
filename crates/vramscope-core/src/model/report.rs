//! [`LoadReport`]: problems that a reader met. Whatever a reader drops is counted here.

/// Warnings and the cost of loading.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Wall-clock seconds from opening to the finished recording.
    pub seconds: f64,
    /// One entry per kind: how often it occurred and where first.
    pub warnings: Vec<LoadWarning>,
}

impl LoadReport {
    /// The warning that the source ends in the middle, if it does.
    pub fn truncated(&self) -> Option<&LoadWarning> {
        self.warnings.iter().find(|w| w.kind == WarningKind::Truncated)
    }

    /// What to say before any figure: that the source changed during reading or is cut short, or that it contains
    /// impossible values. One clause without a full stop; `None` if none of these apply.
    pub fn caveat(&self) -> Option<String> {
        let changed = self.warnings.iter().any(|w| w.kind == WarningKind::Changed);
        let cut = match self.truncated() {
            _ if changed => Some("the file changed while it was read, so figures may be wrong; open it again".to_owned()),
            Some(_) => Some("the file is cut short, so these figures hold for the part that was read".to_owned()),
            None => None,
        };
        let nonsense = self.nonsense();
        let values = (nonsense > 0).then(|| {
            let verb = if nonsense == 1 { "value of the file makes" } else { "values of the file make" };
            format!("{} {verb} no sense, so figures may be wrong", crate::units::count(nonsense))
        });
        match (cut, values) {
            (Some(cut), Some(values)) => Some(format!("{cut}; {values}")),
            (cut, values) => cut.or(values),
        }
    }

    /// Number of values with a wrong type or an impossible size.
    pub fn nonsense(&self) -> u64 {
        self.warnings.iter().filter(|w| w.kind == WarningKind::WrongType).map(|w| w.count).sum()
    }

    /// Counts one occurrence of `kind`; keeps the text and offset of the first one.
    pub fn warn(&mut self, kind: WarningKind, offset: Option<u64>, text: impl FnOnce() -> String) {
        self.warn_many(kind, 1, offset, text);
    }

    /// Counts `count` occurrences of `kind` at once.
    pub fn warn_many(&mut self, kind: WarningKind, count: u64, offset: Option<u64>, text: impl FnOnce() -> String) {
        if count == 0 {
            return;
        }
        if let Some(seen) = self.warnings.iter_mut().find(|w| w.kind == kind) {
            seen.count += count;
        } else {
            self.warnings.push(LoadWarning { kind, count, first_offset: offset, text: text() });
        }
    }
}

/// One kind of problem.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LoadWarning {
    /// The kind; a report has each kind at most once.
    pub kind: WarningKind,
    /// Number of occurrences; at least 1.
    pub count: u64,
    /// Byte offset of the first occurrence, where the reader knows it.
    pub first_offset: Option<u64>,
    /// One sentence: what the reader met and what it did about it.
    pub text: String,
}

/// Problems that do not stop a reader.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum WarningKind {
    /// The file ends in the middle; everything before was read.
    Truncated,
    /// The file was written to while it was read.
    Changed,
    /// A key that this version does not know.
    UnknownKey,
    /// An action that this version does not know.
    UnknownAction,
    /// A value of another type than expected.
    WrongType,
    /// Times went backwards; the reader sorted the events.
    OutOfOrder,
    /// The trace begins mid-run (the ring buffer wrapped, or recording began late): the start was reconstructed.
    StartMissing,
    /// A free without its allocation, although the start of the trace is complete.
    UnmatchedFree,
    /// An allocation at an address that is still live.
    LostFree,
    /// The final segments do not follow from the trace.
    StateMismatch,
    /// An annotation that ends without a start, or never ends.
    OpenAnnotation,
    /// Invalid JSON that could be skipped.
    InvalidJson,
    /// Text that was not valid UTF-8.
    InvalidText,
    /// The source has no addresses: the reader made them up to keep allocations apart.
    NoAddresses,
    /// Data of a device or kind that vramscope does not show.
    Skipped,
}

impl WarningKind {
    /// A short stable name, used in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// True if figures of such a source may be wrong: see [`LoadReport::caveat`].
    pub fn is_doubt(self) -> bool {
        matches!(self, WarningKind::Truncated | WarningKind::Changed | WarningKind::WrongType)
    }
}
