//! speedscope's file format: bytes by call stack, for <https://www.speedscope.app>, which keeps the file on the user's machine.

use std::io::{self, Write};

use serde::Serialize;

use crate::model::{StackId, StackTable};

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: &'a str,
    exporter: String,
    shared: Shared<'a>,
    profiles: Vec<Profile<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<FrameEntry<'a>>,
}

#[derive(Serialize)]
struct FrameEntry<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

/// One flame graph: a name and the bytes of each stack.
pub struct Flame<'a> {
    /// Meaning of the bytes: `GPU 0, live at the peak`.
    pub name: &'a str,
    /// Bytes by stack; all unrecorded stacks share one frame.
    pub weights: &'a [(StackId, u64)],
}

/// Writes flame graphs that share one table of stacks.
pub fn write(name: &str, stacks: &StackTable, flames: &[Flame<'_>], out: &mut dyn Write) -> io::Result<()> {
    let mut frames: Vec<FrameEntry<'_>> = (0..stacks.frame_count() as u32)
        .filter_map(|i| stacks.frame(crate::model::FrameId(i)))
        .map(|f| FrameEntry { name: stacks.text(f.name), file: stacks.text(f.file), line: (f.line > 0).then_some(f.line) })
        .collect();
    let unknown = frames.len() as u32;
    frames.push(FrameEntry { name: "no stack recorded", file: "", line: None });
    let profiles = flames
        .iter()
        .map(|flame| {
            let samples = flame.weights.iter().map(|&(stack, _)| {
                // speedscope expects the outermost frame first.
                let mut path: Vec<u32> = stacks.frames(stack).iter().rev().map(|f| f.0).collect();
                if path.is_empty() {
                    path.push(unknown);
                }
                path
            });
            Profile {
                kind: "sampled",
                name: flame.name,
                unit: "bytes",
                start_value: 0,
                end_value: flame.weights.iter().map(|w| w.1).sum(),
                samples: samples.collect(),
                weights: flame.weights.iter().map(|w| w.1).collect(),
            }
        })
        .collect();
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name,
        exporter: format!("vramscope {}", env!("CARGO_PKG_VERSION")),
        shared: Shared { frames },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.flush()
}
