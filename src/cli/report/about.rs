//! The page that `vramscope run --at-oom` writes beside a snapshot: `oom_rank0.about.json` beside `oom_rank0.pickle`.

use std::path::Path;

use serde_json::Value;
use vramscope_core::formats::about::AboutPage;

/// Most rows and words of one group.
const FEW: usize = 24;

pub(super) struct About(Value);

impl About {
    /// The page beside a snapshot; `None` when there is none or vramscope did not write it.
    pub(super) fn beside(snapshot: &Path) -> Option<Self> {
        AboutPage::beside(snapshot).map(|page| About(page.0))
    }

    /// Names that identify the machine and its users, with their replacements.
    pub(super) fn names(&self) -> Vec<(String, &'static str)> {
        let text = |key: &str| self.0[key].as_str().unwrap_or_default().to_owned();
        vec![(text("host"), "a host"), (text("folder"), "a folder")]
    }

    fn words(&self) -> Vec<String> {
        self.0["command"].as_array().into_iter().flatten().filter_map(|w| Some(w.as_str()?.to_owned())).collect()
    }

    /// Label and value. `redact` leaves out host, folder, command line and the environment, except for the allocator's settings.
    pub(super) fn rows(&self, redact: bool) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        let mut add = |label: String, value: String| {
            if !value.is_empty() {
                rows.push((label, value));
            }
        };
        let page = &self.0;
        let plain = |v: &Value| v.as_str().map_or_else(|| if v.is_null() { String::new() } else { v.to_string() }, str::to_owned);
        add("caught because of".to_owned(), plain(&page["why"]));
        for (name, version) in page["versions"].as_object().into_iter().flatten().take(FEW) {
            add(name.clone(), plain(version));
        }
        for gpu in page["nvidia_smi"]["gpus"].as_array().into_iter().flatten().take(FEW) {
            let told = ["name", "driver_version", "memory.total [MiB]", "memory.used [MiB]"];
            let told = told.iter().map(|key| (key, plain(&gpu[*key]))).filter(|(_, value)| !value.is_empty());
            let told: Vec<String> =
                told.map(|(key, value)| if *key == "name" { value } else { format!("{key} {value}") }).collect();
            add(format!("nvidia-smi, GPU {}", plain(&gpu["index"])), told.join(", "));
        }
        for (name, value) in page["environment"].as_object().into_iter().flatten().take(2 * FEW) {
            if !redact || name.ends_with("ALLOC_CONF") {
                add(name.clone(), plain(value));
            }
        }
        if !redact {
            add("host".to_owned(), plain(&page["host"]));
            add("folder".to_owned(), plain(&page["folder"]));
            add("command".to_owned(), self.words().join(" "));
        }
        rows
    }
}
