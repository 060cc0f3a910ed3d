//! `PYTORCH_CUDA_ALLOC_CONF` as text: parses it by PyTorch's rules and writes it back.
//!
//! A string is `key:value` pairs separated by commas; a value may be a list in brackets; white space is ignored. If a
//! key occurs twice, the last one wins.

use std::fmt;

use super::{AllocConf, TorchVersion};
use crate::units::{MEBIBYTE, nearest};

/// Why a settings string was refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("character {position}: {rule}")]
pub struct ConfError {
    /// Position of the offending word in the text, in characters, counted from 1.
    pub position: usize,
    /// What PyTorch expects there, in one sentence.
    pub rule: String,
}

/// One word of the text, or one of `, : [ ]`.
#[derive(Clone, Debug)]
struct Token {
    text: String,
    position: usize,
}

/// What a key's value must look like.
#[derive(Clone, Copy)]
enum ValueForm {
    Bool,
    Mebibytes { at_least: u64 },
    Float { low: f64, high: f64, open: bool },
    PowerOfTwoUpTo(u64),
    Roundup,
    Backend,
    List,
}

/// Every documented key with the form of its value. `unknown_key` suggests the first match, so the common keys stand first.
const KEYS: [(&str, ValueForm); 22] = [
    ("expandable_segments", ValueForm::Bool),
    ("max_split_size_mb", ValueForm::Mebibytes { at_least: 20 }),
    ("roundup_power2_divisions", ValueForm::Roundup),
    ("garbage_collection_threshold", ValueForm::Float { low: 0.0, high: 1.0, open: true }),
    ("max_non_split_rounding_mb", ValueForm::Mebibytes { at_least: 20 }),
    ("large_segment_size_mb", ValueForm::Mebibytes { at_least: 11 }),
    ("per_process_memory_fraction", ValueForm::Float { low: 0.0, high: 1.0, open: false }),
    ("backend", ValueForm::Backend),
    ("release_lock_on_cudamalloc", ValueForm::Bool),
    ("graph_capture_record_stream_reuse", ValueForm::Bool),
    ("throw_on_cudamalloc_oom", ValueForm::Bool),
    ("pinned_use_cuda_host_register", ValueForm::Bool),
    ("pinned_num_register_threads", ValueForm::PowerOfTwoUpTo(128)),
    ("pinned_use_background_threads", ValueForm::Bool),
    ("pinned_free_catch_all", ValueForm::Bool),
    ("pinned_reserve_segment_size_mb", ValueForm::Mebibytes { at_least: 0 }),
    ("pinned_max_round_threshold_mb", ValueForm::Mebibytes { at_least: 0 }),
    ("pinned_max_cached_size_mb", ValueForm::Mebibytes { at_least: 0 }),
    ("pinned_use_hip_host_register", ValueForm::Bool),
    ("release_lock_on_hipmalloc", ValueForm::Bool),
    ("expandable_segments_reserve", ValueForm::List),
    ("expandable_segments_reserve_by_class", ValueForm::List),
];

/// The form of a key's value in this PyTorch release.
fn kind_of(key: &str, version: TorchVersion, large_segment_mb: u64) -> Option<ValueForm> {
    let kind = KEYS.iter().find(|k| k.0 == key)?.1;
    Some(match key {
        // Up to 2.9 the bound was "greater than 20"; since 2.10 it is the size of a large segment.
        "max_split_size_mb" | "max_non_split_rounding_mb" => {
            ValueForm::Mebibytes { at_least: if version.is_at_least(10) { large_segment_mb } else { 21 } }
        }
        _ => kind,
    })
}

impl AllocConf {
    /// Parses a `PYTORCH_CUDA_ALLOC_CONF` string by the rules of [`TorchVersion::REFERENCE`]. An empty string gives the defaults.
    /// The error is PyTorch's rule for the first wrong key or value, with its position.
    pub fn parse(text: &str) -> Result<Self, ConfError> {
        Self::parse_as(text, TorchVersion::REFERENCE)
    }

    /// Parses a settings string by the rules of release `version`.
    pub fn parse_as(text: &str, version: TorchVersion) -> Result<Self, ConfError> {
        let mut conf = AllocConf::default();
        conf.reparse(text, version)?;
        Ok(conf)
    }

    /// Applies `text` as `torch.cuda.memory._set_allocator_settings` does: some settings that the text does not name fall back to
    /// their defaults, others (`expandable_segments`, the size of large segments) keep their value. Where that fails, as in
    /// [`parse`](Self::parse), `self` is unchanged.
    pub fn reparse(&mut self, text: &str, version: TorchVersion) -> Result<(), ConfError> {
        let mut next = self.clone();
        next.max_split_size = None;
        next.garbage_collection_threshold = 0.0;
        next.roundup_power2_divisions = [0; 16];
        if version.is_at_least(11) {
            next.max_non_split_rounding = None;
        }
        let tokens = tokens_of(text);
        // PyTorch reads this key first, wherever it occurs, because the bounds of other keys depend on it.
        if version.is_at_least(11) {
            for (i, token) in tokens.iter().enumerate() {
                if token.text == "large_segment_size_mb" {
                    next.large_segment_size = mebibytes(&tokens, i + 2, &token.text, token, 11)? * MEBIBYTE;
                }
            }
        }
        let mut i = 0;
        while let Some(key) = tokens.get(i) {
            if is_separator(&key.text) {
                return Err(wrong(
                    key,
                    format!("a setting's name is expected before \"{}\", as in expandable_segments:True", key.text),
                ));
            }
            let Some(kind) = kind_of(&key.text, version, next.large_segment_size / MEBIBYTE) else {
                return Err(wrong(key, unknown_key(&key.text)));
            };
            match tokens.get(i + 1) {
                Some(colon) if colon.text == ":" => {}
                _ => return Err(after(&tokens, i, format!("\"{}\" needs a colon and a value", key.text))),
            }
            i = next.read_value(&tokens, i, kind, version)?;
            if let Some(comma) = tokens.get(i) {
                if comma.text != "," {
                    return Err(wrong(comma, format!("a comma is expected between settings, not \"{}\"", comma.text)));
                }
                i += 1;
            }
        }
        *self = next;
        Ok(())
    }

    /// Reads the value of the key at `at`; returns the index after it.
    fn read_value(&mut self, tokens: &[Token], at: usize, kind: ValueForm, version: TorchVersion) -> Result<usize, ConfError> {
        let key = &tokens[at];
        let name = key.text.as_str();
        let value_at = at + 2;
        let Some(value) = tokens.get(value_at) else {
            return Err(after(tokens, at + 1, format!("\"{name}\" needs a value")));
        };
        let mut end = value_at + 1;
        let mut written = value.text.clone();
        match kind {
            ValueForm::Bool => {
                let on = match value.text.as_str() {
                    "True" => true,
                    "False" => false,
                    other => return Err(wrong(value, format!("{name} must be True or False, not \"{other}\""))),
                };
                if name == "expandable_segments" {
                    self.expandable_segments = on;
                    return Ok(end);
                }
            }
            ValueForm::Mebibytes { at_least } => {
                let bytes = mebibytes(tokens, value_at, name, key, at_least)? * MEBIBYTE;
                match name {
                    "max_split_size_mb" => self.max_split_size = Some(bytes),
                    "max_non_split_rounding_mb" => self.max_non_split_rounding = Some(bytes),
                    "large_segment_size_mb" if version.is_at_least(11) => self.large_segment_size = bytes,
                    _ => self.remember(name, &written),
                }
                return Ok(end);
            }
            ValueForm::Float { low, high, open } => {
                let number: Option<f64> = value.text.parse().ok();
                let fits = number.filter(|v| if open { *v > low && *v < high } else { *v >= low && *v <= high });
                let Some(number) = fits else {
                    let range = if open { "greater than 0 and less than 1" } else { "between 0 and 1" };
                    return Err(wrong(value, format!("{name} must be a number {range}, not \"{}\"", value.text)));
                };
                if open {
                    self.garbage_collection_threshold = number;
                } else {
                    self.per_process_memory_fraction = number;
                }
                return Ok(end);
            }
            ValueForm::PowerOfTwoUpTo(max) => {
                let fits = value.text.parse::<u64>().ok().filter(|v| v.is_power_of_two() && *v <= max);
                if fits.is_none() {
                    return Err(wrong(value, format!("{name} must be a power of two up to {max}, not \"{}\"", value.text)));
                }
            }
            ValueForm::Roundup => return self.read_roundup(tokens, value_at, version),
            ValueForm::Backend => {
                if !matches!(value.text.as_str(), "native" | "cudaMallocAsync" | "hipMallocAsync") {
                    return Err(wrong(value, format!("backend must be native or cudaMallocAsync, not \"{}\"", value.text)));
                }
            }
            ValueForm::List => {
                if value.text == "[" {
                    while tokens.get(end - 1).is_some_and(|t| t.text != "]") {
                        match tokens.get(end) {
                            Some(token) => written.push_str(&token.text),
                            None => return Err(after(tokens, end - 1, format!("the list of {name} needs a closing bracket"))),
                        }
                        end += 1;
                    }
                }
            }
        }
        self.remember(name, &written);
        Ok(end)
    }

    /// `roundup_power2_divisions`: one power of two for every size, or a list by size.
    fn read_roundup(&mut self, tokens: &[Token], at: usize, version: TorchVersion) -> Result<usize, ConfError> {
        const NAME: &str = "roundup_power2_divisions";
        let first = &tokens[at];
        if first.text != "[" {
            let divisions = first.text.parse::<u32>().ok().filter(|d| d.is_power_of_two());
            let Some(divisions) = divisions else {
                return Err(wrong(
                    first,
                    format!("{NAME} must be a power of two or a list such as [256:1,512:2,>:8], not \"{}\"", first.text),
                ));
            };
            self.roundup_power2_divisions = [divisions; 16];
            return Ok(at + 1);
        }
        let mut i = at + 1;
        let mut last = 0usize;
        let mut is_first = true;
        loop {
            let Some(key) = tokens.get(i) else {
                return Err(after(tokens, i - 1, format!("the list of {NAME} needs a closing bracket")));
            };
            if key.text == "]" {
                return Ok(i + 1);
            }
            if tokens.get(i + 1).is_none_or(|t| t.text != ":") {
                return Err(after(tokens, i, format!("each entry of {NAME} is size:divisions, as in 256:1")));
            }
            let Some(value) = tokens.get(i + 2) else {
                return Err(after(tokens, i + 1, format!("each entry of {NAME} is size:divisions, as in 256:1")));
            };
            // Since 2.4 a list accepts 0 for "no rounding".
            let divisions = value.text.parse::<u32>().ok().filter(|&d| d.is_power_of_two() || (d == 0 && version.is_at_least(4)));
            let Some(divisions) = divisions else {
                return Err(wrong(value, format!("divisions of {NAME} must be 0 or a power of two, not \"{}\"", value.text)));
            };
            if key.text == ">" {
                // Up to 2.9 ">" also overwrote the last listed interval.
                let from = if version.is_at_least(10) { last + 1 } else { last };
                for entry in self.roundup_power2_divisions.iter_mut().skip(from) {
                    *entry = divisions;
                }
            } else {
                let Some(mebibytes) = key.text.parse::<u64>().ok().filter(|k| k.is_power_of_two()) else {
                    return Err(wrong(
                        key,
                        format!("sizes of {NAME} must be powers of two in MiB or \">\", not \"{}\"", key.text),
                    ));
                };
                let index = (mebibytes.trailing_zeros() as usize).min(15);
                if is_first {
                    self.roundup_power2_divisions[..index].fill(divisions);
                    is_first = false;
                }
                self.roundup_power2_divisions[index] = divisions;
                last = index;
            }
            i += 3;
            match tokens.get(i) {
                Some(t) if t.text == "," => i += 1,
                Some(t) if t.text == "]" => {}
                Some(t) => {
                    return Err(wrong(t, format!("a comma or a closing bracket is expected in {NAME}, not \"{}\"", t.text)));
                }
                None => {}
            }
        }
    }

    /// Stores a setting that does not affect placement; a later value replaces an earlier one.
    fn remember(&mut self, name: &str, value: &str) {
        match self.other.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.other.push((name.to_owned(), value.to_owned())),
        }
    }

    /// The names of all documented keys.
    pub fn keys() -> impl Iterator<Item = &'static str> {
        KEYS.iter().map(|k| k.0)
    }

    /// The value, as written, of a setting that does not affect placement.
    pub fn other(&self, name: &str) -> Option<&str> {
        self.other.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// The shortest string that [`AllocConf::parse`] reads back as the same settings; empty for the defaults.
impl fmt::Display for AllocConf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = AllocConf::default();
        let mut parts: Vec<String> = Vec::new();
        if self.expandable_segments {
            parts.push("expandable_segments:True".to_owned());
        }
        if self.large_segment_size != default.large_segment_size {
            parts.push(format!("large_segment_size_mb:{}", self.large_segment_size / MEBIBYTE));
        }
        if let Some(bytes) = self.max_split_size {
            parts.push(format!("max_split_size_mb:{}", bytes / MEBIBYTE));
        }
        if let Some(bytes) = self.max_non_split_rounding {
            parts.push(format!("max_non_split_rounding_mb:{}", bytes / MEBIBYTE));
        }
        if self.garbage_collection_threshold > 0.0 {
            parts.push(format!("garbage_collection_threshold:{}", self.garbage_collection_threshold));
        }
        if let Some(text) = roundup_text(&self.roundup_power2_divisions) {
            parts.push(format!("roundup_power2_divisions:{text}"));
        }
        if self.per_process_memory_fraction < 1.0 {
            parts.push(format!("per_process_memory_fraction:{}", self.per_process_memory_fraction));
        }
        parts.extend(self.other.iter().map(|(name, value)| format!("{name}:{value}")));
        f.pad(&parts.join(","))
    }
}

/// The value of `roundup_power2_divisions`; `None` when it is off.
fn roundup_text(divisions: &[u32; 16]) -> Option<String> {
    if divisions.iter().all(|&d| d == 0) {
        return None;
    }
    let first = divisions[0];
    if divisions.iter().all(|&d| d == first) {
        return Some(first.to_string());
    }
    // The first key also covers all smaller sizes, and ">" all larger ones.
    let head = divisions.iter().take_while(|&&d| d == first).count() - 1;
    let tail_value = divisions[15];
    let tail = 16 - divisions.iter().rev().take_while(|&&d| d == tail_value).count();
    let mut entries: Vec<String> = (head..tail).map(|i| format!("{}:{}", 1u64 << i, divisions[i])).collect();
    if tail_value != 0 {
        entries.push(format!(">:{tail_value}"));
    }
    Some(format!("[{}]", entries.join(",")))
}

fn is_separator(text: &str) -> bool {
    matches!(text, "," | ":" | "[" | "]")
}

fn tokens_of(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    let mut word = String::new();
    let mut start = 0;
    for (i, c) in text.chars().enumerate() {
        let separator = matches!(c, ',' | ':' | '[' | ']');
        if separator && !word.is_empty() {
            tokens.push(Token { text: std::mem::take(&mut word), position: start });
        }
        if separator {
            tokens.push(Token { text: c.to_string(), position: i + 1 });
        } else if !c.is_whitespace() {
            if word.is_empty() {
                start = i + 1;
            }
            word.push(c);
        }
    }
    if !word.is_empty() {
        tokens.push(Token { text: word, position: start });
    }
    tokens
}

fn wrong(token: &Token, rule: String) -> ConfError {
    ConfError { position: token.position, rule }
}

/// An error positioned right after token `i`.
fn after(tokens: &[Token], i: usize, rule: String) -> ConfError {
    let position = tokens.get(i).map_or(1, |t| t.position + t.text.chars().count());
    ConfError { position, rule }
}

fn mebibytes(tokens: &[Token], at: usize, name: &str, key: &Token, at_least: u64) -> Result<u64, ConfError> {
    let Some(value) = tokens.get(at) else {
        return Err(ConfError { position: key.position + name.chars().count(), rule: format!("\"{name}\" needs a value") });
    };
    // The upper bound keeps the size in bytes within 64 bits.
    let fits = value.text.parse::<u64>().ok().filter(|&v| v >= at_least && v <= u64::MAX / MEBIBYTE);
    fits.ok_or_else(|| wrong(value, format!("{name} must be a whole number of MiB, at least {at_least}, not \"{}\"", value.text)))
}

fn unknown_key(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let near = KEYS.iter().map(|k| k.0).find(|k| {
        let stem = lower.trim_end_matches("_mb").trim_end_matches('s');
        !stem.is_empty() && (k.starts_with(stem) || (stem.len() >= 4 && k.contains(stem)) || lower.starts_with(*k))
    });
    match near.or_else(|| nearest(text, KEYS.iter().map(|k| k.0))) {
        Some(key) => format!("\"{text}\" is not a setting PyTorch knows; did you mean {key}?"),
        None => format!("\"{text}\" is not a setting PyTorch knows; it knows {} and others", KEYS.map(|k| k.0)[..4].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> String {
        AllocConf::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn every_documented_key_is_read() {
        let text = "expandable_segments:True, large_segment_size_mb:32,max_split_size_mb:64,max_non_split_rounding_mb:40,\
            garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,512:2,1024:4,>:8],per_process_memory_fraction:0.5,\
            backend:native,release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True,throw_on_cudamalloc_oom:True,\
            pinned_use_cuda_host_register:True,pinned_num_register_threads:8,pinned_use_background_threads:True,\
            pinned_reserve_segment_size_mb:4,expandable_segments_reserve:[small:1,large:2]";
        let conf = AllocConf::parse(text).unwrap();
        assert!(conf.expandable_segments);
        assert_eq!(conf.large_segment_size, 32 * MEBIBYTE);
        assert_eq!(conf.max_split_size, Some(64 * MEBIBYTE));
        assert_eq!(conf.max_non_split_rounding, Some(40 * MEBIBYTE));
        assert!((conf.garbage_collection_threshold - 0.8).abs() < 1e-12);
        assert_eq!(conf.roundup_power2_divisions, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8]);
        assert_eq!(conf.other("throw_on_cudamalloc_oom"), Some("True"));
        assert_eq!(conf.other("expandable_segments_reserve"), Some("[small:1,large:2]"));
        assert_eq!(conf.other.len(), 9);
    }

    #[test]
    fn what_is_printed_reads_back() {
        for text in [
            "",
            "expandable_segments:True",
            "max_split_size_mb:128",
            "max_split_size_mb:64,garbage_collection_threshold:0.8",
            "roundup_power2_divisions:4",
            "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
            "roundup_power2_divisions:[2:2,8:4,>:1]",
            "large_segment_size_mb:32,per_process_memory_fraction:0.25,backend:native",
        ] {
            let conf = AllocConf::parse(text).unwrap();
            assert_eq!(AllocConf::parse(&conf.to_string()).unwrap(), conf, "{text}");
        }
        assert_eq!(AllocConf::default().to_string(), "");
        assert_eq!(
            AllocConf::parse("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]").unwrap().to_string(),
            "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"
        );
    }

    #[test]
    fn a_wrong_word_is_named_with_its_place_and_the_rule() {
        assert_eq!(
            rule("max_split_size_mb:19"),
            "character 19: max_split_size_mb must be a whole number of MiB, at least 20, not \"19\""
        );
        assert_eq!(rule("expandable_segments:true"), "character 21: expandable_segments must be True or False, not \"true\"");
        assert!(rule("garbage_collection_threshold:1.0").contains("greater than 0 and less than 1"));
        assert!(rule("roundup_power2_divisions:3").contains("power of two"));
        assert!(rule("roundup_power2_divisions:[256:1,300:2]").starts_with("character 33:"));
        assert!(rule("roundup_power2_divisions:[256:1").contains("closing bracket"));
        assert!(rule("expandable:True").contains("did you mean expandable_segments?"));
        assert!(rule("expendable_segmets:True").contains("did you mean expandable_segments?"));
        assert!(rule("banana:True").starts_with("character 1: \"banana\" is not a setting"));
        assert!(rule("expandable_segments").contains("needs a colon"));
        assert!(rule("expandable_segments:").contains("needs a value"));
        assert!(rule("expandable_segments:True max_split_size_mb:64").contains("True or False"));
        assert!(rule(":").contains("name is expected"));
        assert!(rule("backend:mine").contains("native or cudaMallocAsync"));
        assert!(rule("pinned_num_register_threads:256").contains("power of two up to 128"));
        assert!(rule("max_split_size_mb:99999999999999999").contains("whole number"));
        assert!(rule("large_segment_size_mb").contains("needs a value"));
    }

    #[test]
    fn releases_differ_where_pytorch_did() {
        let old = TorchVersion::new(2, 9);
        assert!(AllocConf::parse_as("max_split_size_mb:20", old).is_err());
        assert!(AllocConf::parse("max_split_size_mb:20").is_ok());
        let list = AllocConf::parse_as("roundup_power2_divisions:[2:2,8:4,>:1]", old).unwrap();
        assert_eq!(list.roundup_power2_divisions[3], 1);
        assert_eq!(AllocConf::parse("roundup_power2_divisions:[2:2,8:4,>:1]").unwrap().roundup_power2_divisions[3], 4);
    }

    #[test]
    fn a_second_parse_keeps_what_pytorch_keeps() {
        let mut conf = AllocConf::parse("expandable_segments:True,max_split_size_mb:64,large_segment_size_mb:32").unwrap();
        conf.reparse("garbage_collection_threshold:0.5", TorchVersion::REFERENCE).unwrap();
        assert!(conf.expandable_segments);
        assert_eq!(conf.max_split_size, None);
        assert_eq!(conf.large_segment_size, 32 * MEBIBYTE);
        let before = conf.clone();
        assert!(conf.reparse("nonsense", TorchVersion::REFERENCE).is_err());
        assert_eq!(conf, before);
    }
}
