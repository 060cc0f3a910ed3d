//! [`Size`]: the sizes of a run, such as `batch=8,seq=512`.

use std::fmt;

/// Named quantities and their values, in the order they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Size(Vec<(String, u64)>);

impl Size {
    /// A size with a single quantity.
    pub fn of(name: &str, value: u64) -> Self {
        Size(vec![(name.to_owned(), value)])
    }

    /// Parses `batch=8,seq=512`.
    ///
    /// # Errors
    /// A sentence that says what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut size = Size::default();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let pair = part.split_once(['=', ':']).map(|(name, value)| (name.trim(), value.trim()));
            let (Some((name, value)), true) = (pair, pair.is_some_and(|(n, _)| !n.is_empty())) else {
                return Err(format!("\"{part}\" names no size: write a name and a number, as in batch=8"));
            };
            let value = value.parse::<u64>().ok().filter(|&v| v > 0 && v < 1 << 32);
            let Some(value) = value else {
                let most = crate::units::count(u64::from(u32::MAX));
                return Err(format!("\"{part}\" is no size: write a whole number from 1 to {most}, as in {name}=8"));
            };
            if size.get(name).is_some() {
                return Err(format!("{name} is written twice in \"{text}\""));
            }
            size.0.push((name.to_owned(), value));
        }
        if size.0.is_empty() { Err("write the size of each recording, as in batch=8".to_owned()) } else { Ok(size) }
    }

    /// The value of a quantity.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(n, _)| n == name).map(|&(_, v)| v)
    }

    /// A copy with another value for one quantity.
    pub fn with(&self, name: &str, value: u64) -> Self {
        let mut size = self.clone();
        match size.0.iter_mut().find(|(n, _)| n == name) {
            Some((_, v)) => *v = value,
            None => size.0.push((name.to_owned(), value)),
        }
        size
    }

    /// Names and values, in the order they were written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(n, v)| (n.as_str(), *v))
    }

    /// Names of the quantities, in the order they were written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(n, _)| n.as_str())
    }

    /// The values in the order of these names; `None` if one is missing.
    pub(super) fn values(&self, names: &[String]) -> Option<Vec<u64>> {
        names.iter().map(|n| self.get(n)).collect()
    }
}

/// `batch 8, seq 512`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(n, v)| format!("{n} {v}")).collect();
        f.pad(&parts.join(", "))
    }
}

impl serde::Serialize for Size {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_they_are_written() {
        let size = Size::parse("batch=8, seq=512").unwrap();
        assert_eq!((size.get("batch"), size.get("seq"), size.get("x")), (Some(8), Some(512), None));
        assert_eq!(size.to_string(), "batch 8, seq 512");
        assert_eq!(size.with("batch", 16).get("batch"), Some(16));
        for wrong in ["", "8", "batch", "batch=", "batch=0", "batch=-8", "batch=8.5", "=8", "batch=8,batch=9", "batch=9999999999"]
        {
            assert!(Size::parse(wrong).is_err(), "{wrong}");
        }
    }
}
