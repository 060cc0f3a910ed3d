//! The tool `picture`: a view of the window, drawn by a second process into a temporary private folder.

use std::path::Path;

use serde_json::Value;

/// The largest PNG that is sent, in bytes.
#[cfg(feature = "gui")]
const MOST: usize = 1_000_000;

/// False in a build without the window.
pub(super) const CAN_DRAW: bool = cfg!(feature = "gui");

/// The picture as the content of an answer. `options` are those of `vramscope screenshot`. For an SVG it returns at most `limit`
/// characters from `offset` on. Fails when the view is unknown or the picture is too large.
#[cfg(feature = "gui")]
pub(super) fn draw(file: &Path, options: &[String], is_svg: bool, offset: usize, limit: usize) -> Result<Value, String> {
    use base64::Engine as _;
    use std::process::{Command, Stdio};

    let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder can be made: {e}"))?;
    let out = folder.path().join(if is_svg { "picture.svg" } else { "picture.png" });
    let program = std::env::current_exe().map_err(|e| format!("this program cannot be started again: {e}"))?;
    let mut command = Command::new(program);
    command.arg("screenshot").args(options).arg("--").arg(file).arg(&out).stdin(Stdio::null()).stdout(Stdio::null());
    let done = command.output().map_err(|e| format!("this program cannot be started again: {e}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let sentence = said.lines().last().unwrap_or_default().trim_start_matches("vramscope: ");
        return Err(if sentence.is_empty() { "the picture was not drawn".to_owned() } else { sentence.to_owned() });
    }
    let bytes = std::fs::read(&out).map_err(|e| format!("the picture cannot be read: {e}"))?;
    if !is_svg && bytes.len() > MOST {
        return Err("the picture is larger than 1 MB; ask for a smaller width and height".to_owned());
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) if is_svg => {
            let of = text.chars().count();
            let part: String = text.chars().skip(offset).take(limit).collect();
            let next = offset.saturating_add(part.chars().count());
            let resource = serde_json::json!({ "uri": "vramscope:///picture.svg", "mimeType": "image/svg+xml", "text": part });
            let mut content = vec![serde_json::json!({ "type": "resource", "resource": resource })];
            if next < of || offset > 0 {
                let told = serde_json::json!({ "offset": offset, "of": of, "next_offset": (next < of).then_some(next) });
                content.push(serde_json::json!({ "type": "text", "text": told.to_string() }));
            }
            content.into()
        }
        Ok(_) => return Err("the picture is none".to_owned()),
        Err(bytes) => {
            let data = base64::engine::general_purpose::STANDARD.encode(bytes.as_bytes());
            serde_json::json!([{ "type": "image", "mimeType": "image/png", "data": data }])
        }
    })
}

/// Never called: a build without the window does not list the tool.
#[cfg(not(feature = "gui"))]
pub(super) fn draw(_file: &Path, _options: &[String], _is_svg: bool, _offset: usize, _limit: usize) -> Result<Value, String> {
    Err(crate::cli::NO_WINDOW.to_owned())
}
