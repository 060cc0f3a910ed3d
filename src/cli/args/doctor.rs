//! Arguments of commands about vramscope itself or this machine: `doctor`, `completions`, `man`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

/// Arguments of `doctor`.
#[derive(Debug, ClapArgs)]
pub struct DoctorArgs {
    /// Recordings of any kind; without one, doctor checks this machine
    pub files: Vec<PathBuf>,
    /// The Python to look for PyTorch in
    #[arg(long, value_name = "PYTHON", default_value = "python3", conflicts_with = "files")]
    pub python: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `completions`.
#[derive(Debug, ClapArgs)]
pub struct CompletionsArgs {
    /// The shell, as in: vramscope completions bash > ~/.local/share/bash-completion/completions/vramscope
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Debug, ClapArgs)]
pub struct ManArgs {
    /// The folder; it is made where there is none
    pub dir: PathBuf,
}
