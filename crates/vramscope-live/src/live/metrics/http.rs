//! The part of HTTP that a scrape needs: one request at a time, limited in size and time, answered and closed.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;

/// Longest request in bytes, including its headers.
const LONGEST: usize = 8 << 10;
/// Time for a client to send its request, and again to read the answer. Other clients wait that long at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// Answers requests until the process ends.
pub(super) fn serve(listener: &TcpListener, shared: &Shared) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // Probably too many open files, which may pass.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let text = || Arc::clone(&shared.newest().text);
        // Errors of a slow or vanished client are ignored.
        let _ = answer(&mut stream, text);
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn answer(stream: &mut TcpStream, text: impl Fn() -> Arc<str>) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let reply = match read_head(stream, until) {
        Ok(head) => respond(&head, text),
        Err(e) if e.kind() == io::ErrorKind::FileTooLarge => {
            Reply::error("431 Request Header Fields Too Large", "The request is too long.")
        }
        Err(e) => return Err(e),
    };
    send(stream, &reply.bytes(), Instant::now() + PATIENCE)
}

/// Reads up to the empty line that ends the headers.
fn read_head(stream: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        let n = match stream.read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        // The end may be split over two reads.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&part[..n]);
        if head[from..].windows(4).any(|w| w == b"\r\n\r\n") || head[from..].windows(2).any(|w| w == b"\n\n") {
            return Ok(head);
        }
        if head.len() > LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}

fn send(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Time left until `until`; an error when there is none, because a timeout of zero would mean no timeout.
fn left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

struct Reply {
    status: &'static str,
    kind: &'static str,
    body: Arc<str>,
    /// For a HEAD request the length is sent but not the body.
    is_head: bool,
}

impl Reply {
    fn error(status: &'static str, body: &str) -> Self {
        Reply { status, kind: "text/plain; charset=utf-8", body: format!("{body}\n").into(), is_head: false }
    }

    fn bytes(&self) -> Vec<u8> {
        let allow = if self.status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let mut out = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
            self.status,
            self.kind,
            self.body.len()
        )
        .into_bytes();
        if !self.is_head {
            out.extend_from_slice(self.body.as_bytes());
        }
        out
    }
}

fn respond(head: &[u8], text: impl Fn() -> Arc<str>) -> Reply {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target, version) =
        (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if !version.starts_with("HTTP/1.") || words.next().is_some() {
        return Reply::error("400 Bad Request", "This is no request that can be read.");
    }
    // Guards against DNS rebinding: a web page can make any host name resolve to this machine, but cannot choose the Host header.
    let host = lines.filter_map(|l| l.split_once(':')).find(|(key, _)| key.trim().eq_ignore_ascii_case("host"));
    if !host.is_none_or(|(_, value)| is_this_machine(value.trim())) {
        return Reply::error("403 Forbidden", "Ask as localhost or 127.0.0.1.");
    }
    if !["GET", "HEAD"].contains(&method) {
        return Reply::error("405 Method Not Allowed", "Only GET and HEAD are answered.");
    }
    let mut reply = match target.split('?').next().unwrap_or_default() {
        "/metrics" => Reply { status: "200 OK", kind: "text/plain; version=0.0.4; charset=utf-8", body: text(), is_head: false },
        "/" => Reply::error("200 OK", "vramscope record: the figures are at /metrics"),
        _ => Reply::error("404 Not Found", "The figures are at /metrics."),
    };
    reply.is_head = method == "HEAD";
    reply
}

/// True for this machine's names for itself, with or without a port.
fn is_this_machine(host: &str) -> bool {
    let name = if host.starts_with('[') { host.split_inclusive(']').next() } else { host.split(':').next() };
    name.is_some_and(|n| {
        n.eq_ignore_ascii_case("localhost") || n == "[::1]" || n.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(request: &str) -> String {
        let reply = respond(request.as_bytes(), || "figures 1\n".into());
        String::from_utf8(reply.bytes()).unwrap()
    }

    #[test]
    fn requests_are_answered_by_their_kind() {
        let metrics = said("GET /metrics HTTP/1.1\r\nHost: localhost:9400\r\n\r\n");
        assert!(
            metrics.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
                && metrics.ends_with("\r\n\r\nfigures 1\n"),
            "{metrics}"
        );
        let head = said("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 10\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n", "200"),
            ("GET /metrics HTTP/1.1\r\nhost: [::1]:9400\r\n\r\n", "200"),
            ("GET /other HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403"),
            ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", "403"),
            ("GET /metrics HTTP/1.1\r\nHost:\r\n\r\n", "403"),
            ("GET /metrics SPDY/3\r\n\r\n", "400"),
            ("GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            ("\u{0}\u{1}\u{7f}\r\n\r\n", "400"),
            ("\r\n\r\n", "400"),
        ] {
            assert!(said(request).starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {}", said(request));
        }
        assert!(respond(&[0xff; 100], || "".into()).status.starts_with("400"));
    }
}
