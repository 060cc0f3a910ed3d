//! [`AboutPage`]: the JSON page of `vramscope run --at-oom` beside a snapshot (`oom_rank0.about.json` for `oom_rank0.pickle`).

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use crate::model::{DeviceKind, Recording};
use crate::units::MEBIBYTE;

/// The most bytes of a page that are read.
pub const MOST: u64 = 4 << 20;

/// The JSON page that was written beside a snapshot.
#[derive(Clone, Debug)]
pub struct AboutPage(pub Value);

impl AboutPage {
    /// Parses a page; `None` if vramscope did not write it.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() as u64 > MOST || bytes.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        let page: Value = serde_json::from_slice(bytes).ok()?;
        (page["vramscope"].is_number() && page["why"].is_string()).then_some(AboutPage(page))
    }

    /// The page beside a snapshot; `None` if there is none or vramscope did not write it.
    pub fn beside(snapshot: &Path) -> Option<Self> {
        let name = snapshot.file_name()?.to_str()?;
        let stem = name.split_once(".pickle").map(|(stem, _)| stem)?;
        let path = snapshot.with_file_name(format!("{stem}.about.json"));
        if !path.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        std::fs::File::open(path).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
        Self::read(&bytes)
    }

    /// Fills in the names and sizes of the recording's GPUs where they are missing: from PyTorch, or from `nvidia-smi` if all
    /// GPUs of the machine are alike.
    pub(super) fn tell(&self, recording: &mut Recording) {
        let gpus: Vec<&Value> = self.0["nvidia_smi"]["gpus"].as_array().into_iter().flatten().collect();
        let kind = |gpu: &Value| (gpu["name"].clone(), gpu["memory.total [MiB]"].clone());
        let same = gpus.first().filter(|first| gpus.iter().all(|gpu| kind(gpu) == kind(first)));
        let smi_name = same.and_then(|gpu| gpu["name"].as_str());
        let total = same.and_then(|gpu| gpu["memory.total [MiB]"].as_str());
        let smi_bytes =
            total.and_then(|t| t.trim_end_matches(" MiB").trim().parse::<u64>().ok()).and_then(|n| n.checked_mul(MEBIBYTE));
        for device in recording.devices.iter_mut().filter(|d| d.id.kind == DeviceKind::Cuda) {
            let told = &self.0["devices"][device.id.index.to_string()];
            let name = told["name"].as_str().filter(|name| !name.is_empty()).or(smi_name);
            let bytes = told["total_bytes"].as_u64().or(smi_bytes).filter(|bytes| *bytes > 0);
            device.name = device.name.take().or_else(|| name.map(str::to_owned));
            device.capacity = device.capacity.or(bytes);
        }
    }

    /// The name of the snapshot it belongs to; `None` where none was kept.
    pub fn snapshot(&self) -> Option<&str> {
        self.0["snapshot"].as_str()
    }

    /// Describes the page, without a full stop.
    pub fn sentence(&self) -> String {
        format!("{}; vramscope explain reads the program's last lines in it", self.origin())
    }

    /// Who wrote the page and what is beside it, without a full stop.
    pub fn origin(&self) -> String {
        match (self.snapshot(), self.0["not_kept"].as_str()) {
            (Some(snapshot), _) => {
                format!("vramscope run --at-oom wrote this page about the snapshot {snapshot} beside it: open that one")
            }
            (None, Some(why)) => format!("vramscope run --at-oom wrote this page, and kept no snapshot: {why}"),
            (None, None) => "vramscope run --at-oom wrote this page, and kept no snapshot".to_owned(),
        }
    }

    /// The last lines that the program wrote, and the error that ended it.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        let lines = ["stdout", "stderr"].into_iter().flat_map(|name| self.0["output"][name].as_array().into_iter().flatten());
        for line in lines.filter_map(Value::as_str) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{line}");
        }
        let error = &self.0["error"];
        // Skip the message if the output already contains it: it may have been printed before the page was written.
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
        page["devices"] = serde_json::json!({"0": {"name": "NVIDIA L4", "total_bytes": 23_609_475_072_u64}});
        page["nvidia_smi"] = serde_json::json!({"gpus": [{"name": "NVIDIA L4", "memory.total [MiB]": "23034 MiB"}]});
        let mut recording = Recording::default();
        recording.devices.resize_with(2, Default::default);
        recording.devices[1].id.index = 1;
        read(&page).unwrap().tell(&mut recording);
        let told: Vec<_> = recording.devices.iter().map(|d| (d.name.as_deref(), d.capacity)).collect();
        assert_eq!(told, [(Some("NVIDIA L4"), Some(23_609_475_072)), (Some("NVIDIA L4"), Some(23_034 << 20))]);
        page["vramscope"] = Value::Null;
        assert!(read(&page).is_none() && AboutPage::read(b"[1]").is_none() && AboutPage::read(b"{").is_none());
    }
}
