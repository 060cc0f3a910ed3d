//! [`AboutPage`]: what `vramscope run --at-oom` wrote beside a snapshot, `oom_rank0.about.json` beside `oom_rank0.pickle`.

use std::fmt::Write as _;

use serde_json::Value;

/// The most bytes of a page that are read.
pub const MOST: u64 = 4 << 20;

/// The JSON page that was written beside a snapshot.
#[derive(Clone, Debug)]
pub struct AboutPage(pub Value);

impl AboutPage {
    /// `None` for anything that vramscope did not write.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() as u64 > MOST || bytes.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        let page: Value = serde_json::from_slice(bytes).ok()?;
        (page["vramscope"].is_number() && page["why"].is_string()).then_some(AboutPage(page))
    }

    /// The name of the snapshot it belongs to; `None` where none was kept.
    #[must_use]
    pub fn snapshot(&self) -> Option<&str> {
        self.0["snapshot"].as_str()
    }

    /// What it is, without a full stop.
    #[must_use]
    pub fn sentence(&self) -> String {
        let read = "vramscope explain reads the program's last lines in it";
        match (self.snapshot(), self.0["not_kept"].as_str()) {
            (Some(snapshot), _) => {
                format!("vramscope run --at-oom wrote this page about the snapshot {snapshot} beside it: open that one; {read}")
            }
            (None, Some(why)) => format!("vramscope run --at-oom wrote this page, and kept no snapshot: {why}; {read}"),
            (None, None) => format!("vramscope run --at-oom wrote this page, and kept no snapshot; {read}"),
        }
    }

    /// The last lines that the program wrote, and the error that ended it.
    #[must_use]
    pub fn lines(&self) -> String {
        let mut text = String::new();
        let lines = ["stdout", "stderr"].into_iter().flat_map(|name| self.0["output"][name].as_array().into_iter().flatten());
        for line in lines.filter_map(Value::as_str) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{line}");
        }
        let error = &self.0["error"];
        // The output has it where it was printed before the page was written.
        let message = error["message"].as_str().filter(|message| !text.contains(message.trim()));
        if let Some(told) = message.and_then(|message| error["traceback"].as_str().or(Some(message))) {
            text += told;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_its_snapshot_and_the_last_lines_of_its_program() {
        let error = "CUDA out of memory. Tried to allocate 2.00 GiB.";
        let mut page = serde_json::json!({
            "vramscope": 1, "why": "oom", "snapshot": "oom_rank0.pickle", "output": { "stderr": ["step 1", "step 2"] },
            "error": { "type": "OutOfMemoryError", "message": error, "traceback": format!("Traceback:\ntorch.OutOfMemoryError: {error}\n") },
        });
        let read = |page: &Value| AboutPage::read(page.to_string().as_bytes());
        let about = read(&page).unwrap();
        assert_eq!(about.snapshot(), Some("oom_rank0.pickle"));
        assert_eq!(about.lines(), format!("step 1\nstep 2\nTraceback:\ntorch.OutOfMemoryError: {error}\n"));
        page["output"]["stderr"] = serde_json::json!([error]);
        assert_eq!(read(&page).unwrap().lines(), format!("{error}\n"), "once");
        page["vramscope"] = Value::Null;
        assert!(read(&page).is_none() && AboutPage::read(b"[1]").is_none() && AboutPage::read(b"{").is_none());
    }
}
