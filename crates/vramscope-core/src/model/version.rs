//! [`TorchVersion`]: a PyTorch release.

/// A PyTorch release, major and minor. The rules of the allocator differ between some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TorchVersion {
    /// The part before the dot: 2 in `2.11`.
    pub major: u16,
    /// The part after the dot: 11 in `2.11`.
    pub minor: u16,
}

impl TorchVersion {
    /// The release whose rules the allocator model follows by default.
    pub const REFERENCE: TorchVersion = TorchVersion::new(2, 11);

    /// `TorchVersion::new(2, 11)` is PyTorch 2.11.
    pub const fn new(major: u16, minor: u16) -> Self {
        TorchVersion { major, minor }
    }

    /// True for 2.`minor` and every later release.
    pub fn is_at_least(self, minor: u16) -> bool {
        self >= TorchVersion::new(2, minor)
    }

    /// Parses the first two numbers of `2.11.0+cu130`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.');
        let major = parts.next()?.parse().ok()?;
        let rest = parts.next()?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(TorchVersion::new(major, rest[..end].parse().ok()?))
    }
}

impl Default for TorchVersion {
    fn default() -> Self {
        Self::REFERENCE
    }
}

impl std::fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_and_compare() {
        assert_eq!(TorchVersion::parse("2.11.0+cu130"), Some(TorchVersion::new(2, 11)));
        assert_eq!(TorchVersion::parse("2.9"), Some(TorchVersion::new(2, 9)));
        assert_eq!(TorchVersion::parse("main"), None);
        assert!(TorchVersion::new(2, 11).is_at_least(9));
        assert!(!TorchVersion::new(2, 9).is_at_least(11));
        assert!(TorchVersion::new(3, 0).is_at_least(15));
    }
}
