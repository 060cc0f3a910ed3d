//! The Python package, which calls this program: runs `tests/python/test_package.py` in a real Python with a fake torch.

#![cfg(target_os = "linux")]
use std::path::Path;
use std::process::Command;

use super::live_helper::needs_python;

#[test]
fn the_python_package_does_what_it_says() {
    needs_python!();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let path = std::env::join_paths([root.join("crates/vramscope-live/assets/python"), root.join("tests/fakes")]).unwrap();
    let out = Command::new("python3")
        .args(["-m", "unittest", "-v", "test_package"])
        .current_dir(root.join("tests/python"))
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("VRAMSCOPE_PROGRAM", env!("CARGO_BIN_EXE_vramscope"))
        .env("VRAMSCOPE_DIR", folder.path())
        .env("FAKE_TORCH", "late")
        .env_remove("RANK")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && text.contains("Ran "), "{text}");
    if text.contains("there is no pytest") {
        crate::shared::not_run("the markers for pytest, which is not installed");
    }
}
