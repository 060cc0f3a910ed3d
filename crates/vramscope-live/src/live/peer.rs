//! The socket of a helper: reached within a time limit, with a known process at its other end, read in lines of bounded length.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{connect, peer, send};

/// Connects to a socket. A listener that accepts nobody, because its program is stopped, makes a plain connect wait for ever.
#[cfg(target_os = "linux")]
pub(super) fn connect(path: &Path, until: Instant) -> io::Result<UnixStream> {
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(e) => return Err(e.into()),
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Process and user at the other end, as this process sees them; the process is 0 where that end lives in a PID namespace that this one
/// does not see into.
#[cfg(target_os = "linux")]
pub(super) fn peer(stream: &UnixStream) -> io::Result<(u32, u32)> {
    use std::os::fd::AsRawFd as _;
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` and `length` live through the call, and `length` is the size of `who`, whose fields are integers that may have
    // any value. (rustix keeps the process in a `NonZeroI32`, which 0 must never be.)
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast::<libc::c_void>(),
            &raw mut length,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((u32::try_from(who.pid).unwrap_or(0), who.uid))
}

/// Sends a short line without ever waiting: an end that takes nothing in is not answered by waiting for it.
#[cfg(target_os = "linux")]
pub(super) fn send(stream: &UnixStream, line: &[u8]) -> io::Result<()> {
    use rustix::net::{SendFlags, send};
    let sent = send(stream, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    if sent == line.len() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

/// Other systems have no NVIDIA driver to watch; this only lets the rest be built there.
#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::io::{self, Write};
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::time::Instant;

    pub fn connect(path: &Path, _until: Instant) -> io::Result<UnixStream> {
        UnixStream::connect(path)
    }

    pub fn peer(_stream: &UnixStream) -> io::Result<(u32, u32)> {
        Ok((0, rustix::process::geteuid().as_raw()))
    }

    pub fn send(mut stream: &UnixStream, line: &[u8]) -> io::Result<()> {
        stream.write_all(line)
    }
}

/// Lines from a socket.
pub(super) struct Lines {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// What of `buffer` was given out.
    taken: usize,
}

impl Lines {
    pub fn new(stream: UnixStream) -> Self {
        Lines { stream, buffer: Vec::new(), taken: 0 }
    }

    /// The next line, without its end; `None` when the other end is closed.
    ///
    /// # Errors
    /// When it does not come before `until`, or has more than `longest()` bytes.
    pub fn next(&mut self, longest: impl Fn() -> usize, until: Option<Instant>) -> io::Result<Option<&[u8]>> {
        self.buffer.drain(..std::mem::take(&mut self.taken));
        if self.buffer.is_empty() {
            // A long line was an exception.
            self.buffer.shrink_to(1 << 16);
        }
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..]) {
                self.taken = searched + at + 1;
                return Ok(Some(&self.buffer[..searched + at]));
            }
            searched = self.buffer.len();
            if searched > longest() {
                return Err(io::Error::other(format!(
                    "it sent a line of more than {}",
                    vramscope_core::units::Bytes(longest() as u64)
                )));
            }
            let left = until.map(|u| u.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(left)?;
            let mut piece = [0; 1 << 14];
            match self.stream.read(&mut piece) {
                Ok(0) => return Ok(None),
                Ok(n) => self.buffer.extend_from_slice(&piece[..n]),
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;

    use super::*;

    const SOON: Duration = Duration::from_millis(300);

    #[test]
    fn a_slow_line_an_endless_line_and_a_full_listener_end_in_time() {
        let (mut far, near) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(near);
        far.write_all(b"one\ntwo\nhalf").unwrap();
        let next = |lines: &mut Lines| lines.next(|| 100, Some(Instant::now() + SOON)).map(|l| l.map(<[u8]>::to_vec));
        assert_eq!(next(&mut lines).unwrap().as_deref(), Some(&b"one"[..]));
        assert_eq!(next(&mut lines).unwrap().as_deref(), Some(&b"two"[..]));
        // A byte now and then is no line: the limit is for the whole.
        let mut drip = far.try_clone().unwrap();
        std::thread::spawn(move || {
            while drip.write_all(b".").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let since = Instant::now();
        assert_eq!(next(&mut lines).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(since.elapsed() < 3 * SOON, "{:?}", since.elapsed());

        let (mut far, near) = UnixStream::pair().unwrap();
        std::thread::spawn(move || while far.write_all(&[b'x'; 4096]).is_ok() {});
        let mut lines = Lines::new(near);
        let error = lines.next(|| 100_000, None).unwrap_err();
        assert!(error.to_string().contains("a line of more than") && lines.buffer.len() < 200_000, "{error}");

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None).unwrap();
        rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let since = Instant::now();
        let mut kept = Vec::new();
        let error = loop {
            match connect(&path, since + SOON) {
                Ok(stream) => kept.push(stream),
                Err(error) => break error,
            }
        };
        assert!(error.kind() == io::ErrorKind::TimedOut && since.elapsed() < 20 * SOON, "{error} after {:?}", since.elapsed());
    }

    #[test]
    fn the_other_end_is_named() {
        let (near, _far) = UnixStream::pair().unwrap();
        assert_eq!(peer(&near).unwrap(), (std::process::id(), rustix::process::geteuid().as_raw()));
    }
}
