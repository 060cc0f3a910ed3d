//! HTML pages written by `torch.cuda._memory_viz`, which contain the snapshot as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::FormatError;
use super::error::{PageSnapshot, listed};
use crate::units::Bytes;

/// The snapshot in a page: base64 after `"base64":` (pages of `trace_plot` and similar functions), or in a data URL. If there are
/// several, `wanted` chooses by name or by number from 1. Fails with [`FormatError::Elsewhere`] when the page has no snapshot,
/// [`FormatError::Several`] when it has several and `wanted` is `None`, [`FormatError::Malformed`] when the base64 is invalid.
pub(crate) fn embedded(page: &[u8], name: &str, wanted: Option<&str>) -> Result<Vec<u8>, FormatError> {
    let elsewhere = |what: String| FormatError::Elsewhere { name: name.to_owned(), what };
    // A memory timeline saved as .html is only an image; its data can be exported to other files.
    if find(&page[..page.len().min(4096)], b"<title>GPU Memory Timeline").is_some() {
        return Err(elsewhere(
            "this page is a picture of a memory timeline; write its figures with export_memory_timeline(\"NAME.raw.json.gz\") and open that".to_owned(),
        ));
    }
    if find(page, b"<b>vramscope report</b>").is_some() {
        return Err(elsewhere("this page is a report that vramscope wrote; open the recording that it tells of".to_owned()));
    }
    let found = runs(page);
    let chosen = match (&found[..], wanted) {
        ([], _) => return Err(elsewhere(what_instead(page).to_owned())),
        ([one], None) => one,
        (many, None) => return Err(FormatError::Several { name: name.to_owned(), snapshots: snapshots(many) }),
        (some, Some(wanted)) => {
            let by_number = || wanted.parse::<usize>().ok()?.checked_sub(1).and_then(|at| some.get(at));
            some.iter()
                .find(|run| run.name == wanted)
                .or_else(by_number)
                .ok_or_else(|| elsewhere(format!("this page has no snapshot {wanted}; it holds {}", listed(&snapshots(some)))))?
        }
    };
    STANDARD.decode(chosen.text).map_err(|error| FormatError::Malformed {
        name: name.to_owned(),
        offset: chosen.at as u64,
        what: format!("the snapshot embedded in this page is no base64 ({error})"),
    })
}

/// Separates the name of a page from that of a snapshot in it: `page.html::rank1.pickle`.
pub(super) const CHOICE: &str = "::";

/// A run of base64 text.
struct Run<'a> {
    at: usize,
    text: &'a [u8],
    /// Its name in the page, otherwise its number from 1.
    name: String,
}

/// The runs of base64 that are snapshots: those that begin like a pickle, else the longest. Pages also contain fonts and icons.
fn runs(page: &[u8]) -> Vec<Run<'_>> {
    let mut found: Vec<Run<'_>> = Vec::new();
    let mut from = 0;
    while let Some(at) = find(&page[from..], b"base64") {
        let begins = from + at;
        let start = begins + b"base64".len();
        let rest = &page[start..];
        // `": "` before a JSON value, or a comma in a data URL. Anything else is no embedded file.
        let skip = rest.iter().take_while(|b| b" \t\r\n:'\",".contains(b)).count();
        from = start;
        if skip == 0 {
            continue;
        }
        let text = &rest[skip..];
        let length = text.iter().take_while(|b| b.is_ascii_alphanumeric() || b"+/=".contains(b)).count();
        if length >= 4 {
            let name = named(&page[begins.saturating_sub(512)..begins]).unwrap_or_else(|| (found.len() + 1).to_string());
            found.push(Run { at: start + skip, text: &text[..length], name });
        }
        // Each byte is scanned once: no run begins inside another.
        from += skip + length;
    }
    let longest = found.iter().map(|run| run.text.len()).max().unwrap_or(0);
    // Base64 of the first bytes of pickles: `gASV` for protocol 4, `gAJ9` for protocol 2.
    let is_pickle = |run: &Run<'_>| run.text.starts_with(b"gA") && run.text.len() >= 64;
    if found.iter().any(is_pickle) {
        found.retain(is_pickle);
    } else {
        found.retain(|run| run.text.len() == longest);
        found.truncate(1);
    }
    found
}

/// The value of the last `"name"` before a run, within the same object.
fn named(before: &[u8]) -> Option<String> {
    let open = memchr::memrchr(b'{', before)?;
    let object = &before[open..];
    let at = find(object, b"\"name\"")?;
    let rest = String::from_utf8_lossy(&object[at + 6..]).into_owned();
    let value = rest.split_once('"')?.1.split_once('"')?.0;
    Some(value.to_owned()).filter(|name| !name.is_empty())
}

fn snapshots(runs: &[Run<'_>]) -> Vec<PageSnapshot> {
    let is_alone = |name: &str| runs.iter().filter(|run| run.name == name).count() == 1;
    runs.iter()
        .enumerate()
        .map(|(i, run)| PageSnapshot {
            choice: if is_alone(&run.name) { run.name.clone() } else { (i + 1).to_string() },
            bytes: Bytes(run.text.len() as u64 / 4 * 3),
        })
        .collect()
}

/// Describes a page without a snapshot.
fn what_instead(page: &[u8]) -> &'static str {
    let has = |text: &[u8]| find(page, text).is_some();
    if has(b"MemoryViz") || has(b"memory_viz") || has(b"add_local_files") {
        "this page is the viewer memory_viz without a snapshot in it: it waits for a file to be dropped on it; open that file"
    } else {
        "this page holds a picture or text, but no embedded snapshot; open the file that torch.cuda.memory._dump_snapshot() wrote"
    }
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
        assert!(embedded(&[b"<html>".as_slice(), &b"base64".repeat(80_000)].concat(), "x.html", None).is_err());
        assert!(embedded(&[b"<html>".as_slice(), &b"base64 ".repeat(80_000)].concat(), "x.html", None).is_err());
        assert!(since.elapsed().as_secs() < 2, "{:?}", since.elapsed());
        let page = b"<html> base64:'base64' \"base64\": \"gAQpLg==\" base64";
        assert_eq!(embedded(page, "x.html", None).unwrap(), b"\x80\x04).");
    }

    #[test]
    fn one_of_several_snapshots_is_chosen_by_its_name() {
        let text = |byte: u8| STANDARD.encode([&b"\x80\x04\x95"[..], &[byte; 90]].concat());
        let page = format!(
            r#"<html><script>const local_files = [{{"name": "rank0.pickle", "base64": "{}"}}, {{"name": "rank1.pickle", "base64": "{}"}}]</script><img src="data:image/png;base64,iVBORw0KGgoAAAANSUhEUg">"#,
            text(1),
            text(2)
        );
        let open = |wanted| embedded(page.as_bytes(), "p.html", wanted);
        let said = open(None).unwrap_err().to_string().replace('\u{a0}', " ");
        assert!(said.contains("holds 2 snapshots: rank0.pickle (93 B), rank1.pickle (93 B)"), "{said}");
        assert!(said.contains("p.html::rank0.pickle"), "{said}");
        assert_eq!(open(Some("rank1.pickle")).unwrap()[3], 2);
        assert_eq!(open(Some("2")).unwrap()[3], 2);
        assert!(open(Some("rank7.pickle")).unwrap_err().to_string().contains("no snapshot rank7.pickle"));
    }

    #[test]
    fn a_page_without_data_says_what_it_is() {
        let said = |page: &str| embedded(page.as_bytes(), "p.html", None).unwrap_err().to_string();
        let shell =
            r#"<html><script type="module">import {add_local_files} from "https://example.org/MemoryViz.js"</script></html>"#;
        assert!(said(shell).contains("viewer memory_viz without a snapshot"), "{}", said(shell));
        assert!(said("<html><p>hello</p></html>").contains("picture or text"));
        let report = "<html><img src=\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUg\"><header><b>vramscope report</b> &middot; x</header></html>";
        assert!(said(report).contains("a report that vramscope wrote"));
    }
}
