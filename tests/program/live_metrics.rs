//! `vramscope record --prometheus`: what a scrape reads, and that no client delays the watch.

#![cfg(all(target_os = "linux", feature = "live"))]
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::shared::wait_for;

use super::live_helper::{Job, TRAINING, needs_python};
use super::live_record::Machine;

const MIB: u64 = 1 << 20;

struct Served {
    child: Child,
    address: SocketAddr,
}

impl Served {
    fn start(mut record: Command) -> Served {
        let mut child = record.spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(errors.read_line(&mut line).unwrap() > 0, "{said}");
            if let Some((_, rest)) = line.split_once("http://") {
                break rest.split('/').next().unwrap().parse().unwrap();
            }
            said += &line;
        };
        // Reads its errors, so that the pipe does not fill.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Served { child, address }
    }

    fn ask(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The request may be refused before all of it is sent.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn figures(&self) -> String {
        let answer = self.ask(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        let length = format!("Content-Length: {}\r\n", body.len());
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(&length), "{head}");
        body.to_owned()
    }

    fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        wait_for(what, || Some(self.figures()).filter(|text| holds(text)))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

#[test]
fn a_scrape_has_the_drivers_figures_and_those_of_a_program() {
    needs_python!();
    let mut job = Job::start(TRAINING, &[]);
    job.wait_for_socket();
    let pid = job.child.id();
    let state = format!("0.used={}\n0.proc={pid}:{}\n0.util=97\n0.temp=61\n0.power=350000\n", 1400 * MIB, 890 * MIB);
    let Some(m) = Machine::new(&state) else { return };
    let mut record = m.vramscope(&["record", "--prometheus", "0"]);
    record.env("VRAMSCOPE_DIR", job.folder.path().join("private"));
    let served = Served::start(record);
    assert!(served.address.ip().is_loopback());
    writeln!(job.child.stdin.as_mut().unwrap(), "torch.cuda.init()\ntorch.set_figures(500 << 20, 400 << 20)").unwrap();
    let gpu = "gpu=\"0\",uuid=\"GPU-00000000-0000-0000-0000-000000000000\"";
    let text = served.until("PyTorch's figures", |t| {
        t.contains("\nvramscope_torch_allocated_bytes{") && t.contains(&format!("part=\"allocated\"}} {}\n", 400 * MIB))
    });
    let part = |name: &str| value(&text, &format!("vramscope_gpu_memory_bytes{{{gpu},part=\"{name}\"}}")) as u64;
    assert_eq!((part("allocated"), part("cached"), part("outside_pytorch")), (400 * MIB, 100 * MIB, 390 * MIB));
    let parts = text
        .lines()
        .filter(|l| l.starts_with("vramscope_gpu_memory_bytes{"))
        .map(|l| value(&text, l.rsplit_once(' ').unwrap().0));
    assert_eq!(parts.sum::<f64>(), value(&text, &format!("vramscope_gpu_memory_capacity_bytes{{{gpu}}}")));
    let name = text.split(&format!("pid=\"{pid}\",name=\"")).nth(1).unwrap().split('"').next().unwrap();
    let who = format!("pid=\"{pid}\",name=\"{name}\"");
    for (metric, want) in [
        ("process_memory_bytes", 890 * MIB),
        ("torch_reserved_bytes", 500 * MIB),
        ("torch_requested_bytes", 400 * MIB - 5),
        ("torch_alloc_retries_total", 3),
        ("torch_ooms_total", 0),
    ] {
        assert_eq!(value(&text, &format!("vramscope_{metric}{{{gpu},{who}}}")) as u64, want, "{metric}");
    }
    assert_eq!(value(&text, &format!("vramscope_process_pinned_bytes{{{who}}}")), 4096.0);
    assert_eq!(value(&text, &format!("vramscope_process_pinned_used_bytes{{{who}}}")), 1024.0);
    assert!(value(&text, &format!("vramscope_process_resident_bytes{{{who}}}")) > 1e6, "a Python has more than a megabyte");
    assert_eq!(value(&text, &format!("vramscope_gpu_busy_ratio{{{gpu}}}")), 0.97);
    assert_eq!(value(&text, &format!("vramscope_gpu_power_watts{{{gpu}}}")), 350.0);
    // Every metric of the dashboard is one of these, or needs what this fake driver does not report.
    let dashboard = m.vramscope(&["record", "--grafana"]).output().unwrap().stdout;
    let dashboard: serde_json::Value = serde_json::from_slice(&dashboard).unwrap();
    for word in
        dashboard.to_string().split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| w.starts_with("vramscope_"))
    {
        assert!(text.contains(&format!("\n# TYPE {word} ")) || text.starts_with(&format!("# HELP {word} ")), "{word}");
    }
    check_with_promtool(&text);
    // When the program ends, its metrics end too.
    job.finish();
    m.say(&format!("0.used={}\n", 510 * MIB));
    served.until("the end of the program", |t| !t.contains("vramscope_torch_") && !t.contains("vramscope_process_"));
}

/// Checks names and format with Prometheus' own tool, if installed.
fn check_with_promtool(text: &str) {
    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut tool) = tool else {
        crate::shared::not_run("promtool (Debian's package prometheus) is not installed, so its lint of the metrics");
        return;
    };
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let out = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.is_empty(), "{said}");
}

#[test]
fn no_client_holds_up_the_watch_or_breaks_it() {
    let Some(m) = Machine::new(&format!("0.used={}\n", 900 * MIB)) else { return };
    let out = m.path("s.vramscope");
    let served = Served::start(m.vramscope(&["record", out.to_str().unwrap(), "--prometheus", "0"]));
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut garbage = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as u8
    };
    for n in [0, 1, 2, 100, 1000, 5000] {
        let bytes: Vec<u8> = (0..n).map(|_| garbage()).collect();
        served.ask(&bytes);
        served.ask(&[b"GET /metrics HTTP/1.1\r\n".as_slice(), &bytes, b"\r\n\r\n"].concat());
    }
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 20_000], b"\r\n\r\n"].concat();
    let refused = served.ask(&long);
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 431 "), "{refused}");
    assert!(served.ask(b"GET /metrics HTTP/1.1\r\nHost: attacker.example\r\n\r\n").starts_with("HTTP/1.1 403 "));
    assert!(served.ask(b"DELETE / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    // Clients that say nothing, and one that sends a byte at a time. The next client waits a little, the watch not at all.
    let idle: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(served.address).unwrap()).collect();
    let before = m.wait("samples", |d| d.first().is_some_and(|d| d.samples.len() > 5))[0].samples.len();
    let since = Instant::now();
    let slow = TcpStream::connect(served.address).unwrap();
    let dripping = std::thread::spawn(move || {
        let mut slow = slow;
        while since.elapsed() < Duration::from_secs(12) && slow.write_all(b"G").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(served.figures().contains("vramscope_gpu_up{"));
    assert!(since.elapsed() < Duration::from_secs(12), "answered after {:?}", since.elapsed());
    let seconds = since.elapsed().as_secs_f64();
    let samples = m.recorded()[0].samples.len() - before;
    assert!(samples as f64 > seconds * 10.0 * 0.6, "{samples} samples in {seconds} s");
    drop(idle);
    dripping.join().unwrap();
}

#[test]
fn a_file_is_replaced_whole_and_goes_with_the_watch() {
    let Some(m) = Machine::new(&format!("0.used={}\n", 900 * MIB)) else { return };
    let file = m.path("gpu.prom");
    let mut child = m.vramscope(&["record", "--prometheus", file.to_str().unwrap(), "--seconds", "3"]).spawn().unwrap();
    let written = || std::fs::read_to_string(&file).ok().filter(|text| text.contains("vramscope_gpu_memory_used_bytes{"));
    let text = wait_for("figures in the file", written);
    assert!(text.ends_with('\n'));
    check_with_promtool(&text);
    assert!(child.wait().unwrap().success());
    let left: Vec<String> =
        std::fs::read_dir(file.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!left.iter().any(|n| n.contains("prom")), "old figures would be read as new ones: {left:?}");
    for (outlet, want) in [("/nonexistent/gpu.prom", "cannot be written"), ("gpu.txt", "ends in .prom"), ("70000", "no port")] {
        let out = m.vramscope(&["record", "--prometheus", outlet, "--seconds", "1"]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(want) && said.lines().count() == 1, "{said}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let out = m.vramscope(&["record", "--prometheus", &port, "--seconds", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && said.contains(&format!("port {port} of this machine cannot be used")), "{said}");
}

#[test]
fn a_gpu_that_shares_the_machines_memory_is_told_as_what_it_is() {
    let Some(m) = Machine::new("0.name=NVIDIA GB10\n0.err.memory=3\n0.err.memory2=3\n") else { return };
    m.record(&["--seconds", "1.5"]).wait().unwrap();
    let d = &m.recorded()[0];
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok()).unwrap();
    assert_eq!(d.capacity, Some(kib * 1024));
    let used = d.samples.last().unwrap().used.unwrap();
    assert!(used > 0 && used < kib * 1024);
    let limits = &d.live.as_ref().unwrap().limits;
    assert!(limits.iter().any(|l| l.contains("shares the machine's memory")), "{limits:?}");
    // Any other GPU without the figure says so, and nothing replaces it.
    m.say("0.err.memory=3\n0.err.memory2=3\n");
    let out = m.vramscope(&["record", "-", "--seconds", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("does not tell how much memory is in use"), "{said}");
}
