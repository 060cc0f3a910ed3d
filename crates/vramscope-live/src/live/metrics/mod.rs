//! Exports a watch's present figures to a metrics collector: Prometheus' text format, over HTTP on this machine only or as a file.
//!
//! ```text
//!  LiveSession ─▶ text::write ─▶ Publisher (one thread) ─┬─▶ http: one request at a time, on 127.0.0.1
//!                                                         └─▶ a file that node_exporter reads, replaced whole
//! ```
//!
//! The watch only hands the newest text to the publisher. A slow reader delays the publisher's thread and no other.

mod http;
mod text;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use text::write;

/// How often the file is written.
const EVERY: Duration = Duration::from_secs(5);
/// How long the end of a watch waits for the file to be finished.
const FOR_END: Duration = Duration::from_secs(1);

/// Where the figures are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlet {
    /// A port of 127.0.0.1; 0 for any free one.
    Port(u16),
    /// A file with a name in `.prom`, for node_exporter's textfile collector.
    File(PathBuf),
}

impl std::str::FromStr for Outlet {
    type Err = String;

    /// A number is a port, anything else a file.
    fn from_str(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().map(Outlet::Port).map_err(|_| format!("\"{text}\" is no port: write a number from 0 to 65535"));
        }
        let path = PathBuf::from(text);
        if path.extension().is_some_and(|e| e == "prom") {
            return Ok(Outlet::File(path));
        }
        Err(format!("\"{text}\" is neither a port nor a file that ends in .prom, as node_exporter wants it"))
    }
}

/// State shared by the watch and the publisher's thread.
#[derive(Debug, Default)]
struct Shared {
    newest: Mutex<Newest>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Newest {
    text: Arc<str>,
    is_over: bool,
}

impl Shared {
    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes the newest figures until it is dropped.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
    writer: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Starts publishing. Opens the port, or writes the file once, right away, so that mistakes are reported at once.
    ///
    /// # Errors
    /// One sentence: the port is taken or not allowed, the file cannot be written, or the system cannot start a thread.
    pub fn start(outlet: &Outlet) -> Result<Self, String> {
        let shared = Arc::new(Shared::default());
        let mine = Arc::clone(&shared);
        let begin = |work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name("metrics".to_owned())
                .spawn(work)
                .map_err(|e| format!("no thread can be started: {e}"))
        };
        match outlet {
            Outlet::Port(port) => {
                let taken = |e| format!("port {port} of this machine cannot be used: {e}; 0 takes one that is free");
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).map_err(taken)?;
                let address = listener.local_addr().map_err(taken)?;
                begin(Box::new(move || http::serve(&listener, &mine)))?;
                Ok(Publisher { shared, address: Some(address), writer: None })
            }
            Outlet::File(path) => {
                replace(path, "").map_err(|e| format!("{}: cannot be written: {e}", path.display()))?;
                let path = path.clone();
                let writer = begin(Box::new(move || write_on(&path, &mine)))?;
                Ok(Publisher { shared, address: None, writer: Some(writer) })
            }
        }
    }

    /// Address of the HTTP server.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Replaces the figures. Does not block.
    pub fn publish(&self, text: String) {
        self.shared.newest().text = text.into();
        self.shared.changed.notify_all();
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.shared.newest().is_over = true;
        self.shared.changed.notify_all();
        let Some(writer) = self.writer.take() else { return };
        let since = Instant::now();
        while !writer.is_finished() && since.elapsed() < FOR_END {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Writes the file at intervals, and removes it at the end because old figures would be taken for new ones.
fn write_on(path: &Path, shared: &Shared) {
    let mut written = Arc::default();
    loop {
        let newest = shared.newest();
        let wait = |n: &mut Newest| !n.is_over && Arc::ptr_eq(&n.text, &written);
        let Ok(newest) = shared.changed.wait_while(newest, wait) else { return };
        if newest.is_over {
            break;
        }
        let text = Arc::clone(&newest.text);
        drop(newest);
        if let Err(error) = replace(path, &text) {
            tracing::warn!("{}: cannot be written: {error}", path.display());
        }
        written = text;
        // Sleeps until the next write or the end.
        let rest = shared.changed.wait_timeout_while(shared.newest(), EVERY, |n| !n.is_over);
        if rest.is_ok_and(|(n, _)| n.is_over) {
            break;
        }
    }
    let _ = std::fs::remove_file(path);
}

/// Writes a temporary file and renames it, so that readers see whole contents, old or new. Its name does not end in `.prom`.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    let done = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    done
}
