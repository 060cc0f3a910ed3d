//! The socket of a helper: connects within a time limit, identifies the peer, and reads lines of bounded length.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{connect, peer, send};

/// Connects to a socket within a time limit. A plain connect would block for ever on a listener whose program is stopped.
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

/// Process and user of the peer, as this process sees them. The process is 0 if the peer's PID namespace is not visible here.
#[cfg(target_os = "linux")]
pub(super) fn peer(stream: &UnixStream) -> io::Result<(u32, u32)> {
    use std::os::fd::AsRawFd as _;
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = std::mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` and `length` live through the call, and `length` is the size of `who`, whose integer fields may have any
    // value. (rustix stores the process in a `NonZeroI32`, which must not be 0.)
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

/// Sends a short line without blocking. Fails when the peer does not read.
#[cfg(target_os = "linux")]
pub(super) fn send(stream: &UnixStream, line: &[u8]) -> io::Result<()> {
    use rustix::net::{SendFlags, send};
    let sent = send(stream, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    if sent == line.len() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

/// NVIDIA's driver is only watched on Linux; this lets other systems build the rest.
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

pub(super) struct Lines {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// How much of `buffer` was returned already.
    taken: usize,
}

impl Lines {
    pub fn new(stream: UnixStream) -> Self {
        Lines { stream, buffer: Vec::new(), taken: 0 }
    }

    /// The next line without its line end; `None` when the peer closed the socket.
    ///
    /// # Errors
    /// When it does not arrive before `until`, or is longer than `longest()` bytes.
    pub fn next(&mut self, longest: impl Fn() -> usize, until: Option<Instant>) -> io::Result<Option<&[u8]>> {
        self.buffer.drain(..std::mem::take(&mut self.taken));
        if self.buffer.is_empty() {
            // Long lines are rare, so their memory is released.
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
        // Single bytes do not extend the limit, which is for the whole line.
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
