//! Pages saved by `torch.cuda._memory_viz`: the snapshot stands in them as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::FormatError;

/// The longest run of base64 after `"base64":` (the page of `trace_plot` and its kin), or inside a data URL.
///
/// # Errors
/// [`FormatError::Empty`] when the page holds no snapshot, [`FormatError::Malformed`] when its base64 is broken.
pub(crate) fn embedded(page: &[u8], name: &str) -> Result<Vec<u8>, FormatError> {
    let mut best: Option<(usize, &[u8])> = None;
    let mut from = 0;
    while let Some(at) = find(&page[from..], b"base64") {
        let start = from + at + b"base64".len();
        let rest = &page[start..];
        // `": "` before a JSON value; anything else between is no embedded file.
        let skip = rest.iter().take_while(|b| b" \t\r\n:'\"".contains(b)).count();
        from = start;
        if skip == 0 {
            continue;
        }
        let text = &rest[skip..];
        let length = text.iter().take_while(|b| b.is_ascii_alphanumeric() || b"+/=".contains(b)).count();
        if best.is_none_or(|(_, known)| length > known.len()) {
            best = Some((start + skip, &text[..length]));
        }
        // Each byte is looked at once: what is in a run is no beginning of another.
        from += skip + length;
    }
    // A memory timeline saved as .html is a picture; its figures go to other files.
    if find(&page[..page.len().min(4096)], b"<title>GPU Memory Timeline").is_some() {
        return Err(FormatError::Elsewhere {
            name: name.to_owned(),
            what: "this page is a picture of a memory timeline; write its figures with export_memory_timeline(\"NAME.raw.json.gz\") and open that".to_owned(),
        });
    }
    let Some((offset, text)) = best.filter(|(_, text)| text.len() >= 4) else {
        return Err(FormatError::Empty {
            name: name.to_owned(),
            what: "this page holds a picture or text, but no embedded snapshot".to_owned(),
        });
    };
    STANDARD.decode(text).map_err(|error| FormatError::Malformed {
        name: name.to_owned(),
        offset: offset as u64,
        what: format!("the snapshot embedded in this page is no base64 ({error})"),
    })
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_looked_through_once() {
        let since = std::time::Instant::now();
        assert!(embedded(&[b"<html>".as_slice(), &b"base64".repeat(80_000)].concat(), "x.html").is_err());
        assert!(embedded(&[b"<html>".as_slice(), &b"base64 ".repeat(80_000)].concat(), "x.html").is_err());
        assert!(since.elapsed().as_secs() < 2, "{:?}", since.elapsed());
        let page = b"<html> base64:'base64' \"base64\": \"gAQpLg==\" base64";
        assert_eq!(embedded(page, "x.html").unwrap(), b"\x80\x04).");
    }
}
