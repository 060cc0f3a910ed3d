//! `vramscope explain`: an out-of-memory message in plain words.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use vramscope_core::diagnose::explain::{Explanation, explain, explain_all};
use vramscope_core::formats::{Log, LogError, oom_message};
use vramscope_core::units::pytorch_size;

/// Reads a text from `file` or from standard input, and writes what its out-of-memory messages mean. In a text longer than 80 MiB
/// it searches the first 16 and the last 64 MiB.
///
/// The JSON has the explanation of the first message with figures, and all messages under `messages`. Fails when the text cannot
/// be read or has no out-of-memory message.
pub fn run(file: Option<&Path>, json: bool, out: &mut dyn Write) -> Result<(), String> {
    let (log, name) = match file {
        Some(path) if path != Path::new("-") => {
            if path.is_dir() {
                return Err(format!("{}: this is a folder; give a file in it, or a message on standard input", path.display()));
            }
            let name = path.display().to_string();
            (File::open(path).map_err(LogError::from).and_then(Log::read).map_err(|e| format!("{name}: {e}"))?, name)
        }
        _ => {
            let log = Log::read(std::io::stdin().lock()).map_err(|e| format!("standard input cannot be read: {e}"))?;
            (log, "the text".to_owned())
        }
    };
    let found = log.messages();
    let explained = explain_all(&found);
    let Some(main) = explained.get(oom_message::main_message(&found)) else {
        if let Some(path) = file.filter(|path| super::opening::is_recording(path)) {
            let path = super::quoted(&path.display().to_string());
            return Err(format!(
                "{path} is a recording, and explain reads the text of an out-of-memory error: use vramscope summary {path}, or \
                 vramscope oom {path} for why it ran out of memory"
            ));
        }
        if let Some(page) = log.page() {
            return Err(format!("{name}: the program's last lines in it hold no out-of-memory message; {}", page.origin()));
        }
        return Err(format!(
            "{name} holds no out-of-memory message that vramscope knows: of PyTorch, JAX, TensorFlow, servers and libraries on GPUs, drivers, or what killed a program for the machine's memory"
        ));
    };
    let snapshot = log.page().and_then(|page| {
        let name = page.snapshot()?;
        Some(file.map_or_else(|| name.into(), |page| page.with_file_name(name)).display().to_string())
    });
    let snapshot = snapshot.as_deref();
    let other = oom_message::other_kind(&found).and_then(|at| explained.get(at));
    let written =
        if json { write_json(main, &explained, snapshot, out) } else { write_text(main, other, &explained, snapshot, out) };
    written.map_err(|e| super::not_written(&e))
}

/// The explanation of the most informative message of a file, and the explanations of all messages. `None` when the file cannot
/// be read or has none.
pub(super) fn of_file(path: &Path) -> Option<(Explanation, Vec<Explanation>)> {
    let log = File::open(path).ok().filter(|_| path.is_file()).and_then(|file| Log::read(file).ok())?;
    let found = log.messages();
    let main = found.get(oom_message::main_message(&found)).map(explain)?;
    Some((main, explain_all(&found)))
}

fn write_json(main: &Explanation, all: &[Explanation], snapshot: Option<&str>, out: &mut dyn Write) -> std::io::Result<()> {
    let mut value = serde_json::to_value(main)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("messages".to_owned(), serde_json::to_value(all)?);
        object.extend(snapshot.map(|name| ("snapshot".to_owned(), name.into())));
    }
    serde_json::to_writer_pretty(&mut *out, &value)?;
    writeln!(out)
}

/// `other` is a failure of another kind in the same text, such as a kill by the system after the card was full. `snapshot` is a
/// recording of the same moment.
fn write_text(
    e: &Explanation,
    other: Option<&Explanation>,
    all: &[Explanation],
    snapshot: Option<&str>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    let doubt = e.doubt.filter(|_| e.contradictions.is_empty()).map_or(String::new(), |why| format!(" (Not certain: {why}.)"));
    writeln!(out, "{}{}{doubt}", named(e.cause), e.sentence)?;
    if let Some(other) = other {
        let advice = other.remedies.first().map_or("", |r| r.sentence.as_str());
        writeln!(out, "Another failure, in line {}: {}{} {advice}", other.line, named(other.cause), other.sentence)?;
    }
    writeln!(out, "\nMessage of {}, line {}", e.writer, e.line)?;
    for name in e.figures.keys() {
        let label = name.trim_end_matches("_bytes").replace('_', " ");
        // Rounding is mentioned only when it could change the verdict.
        let slack = e.rounding.get(name).filter(|_| !e.certain).map_or(String::new(), |s| format!("  ±{}", pytorch_size(*s)));
        writeln!(out, "  {label:<18} {:>14}{slack}", e.printed(name).unwrap_or_default())?;
    }
    for p in &e.processes {
        let who = match (p.is_this, p.pid) {
            (true, Some(pid)) => format!("pid {pid}, this one"),
            (true, None) => "this process".to_owned(),
            (false, Some(pid)) => format!("pid {pid}"),
            (false, None) => "a process".to_owned(),
        };
        writeln!(out, "  {who:<18} {:>14}", pytorch_size(p.bytes.bytes))?;
    }
    // A single contradiction is already in the sentence above.
    let several = e.contradictions.iter().map(String::as_str).filter(|_| e.contradictions.len() > 1);
    section(out, "Figures that contradict each other", several)?;
    section(out, "What to do", e.remedies.iter().map(|r| r.sentence.as_str()))?;
    buffers(e, out)?;
    section(out, "Also known", e.known.iter().map(String::as_str))?;
    section(out, "Not in a message", e.not_known.iter().map(String::as_str))?;
    if let Some(name) = snapshot {
        writeln!(out, "\nThe snapshot of this moment tells the rest: vramscope oom {}", super::quoted(name))?;
    } else if !e.record.is_empty() {
        writeln!(out, "\nTo see the rest, record the next run and open the file:")?;
        for line in &e.record {
            writeln!(out, "  {line}")?;
        }
    }
    if all.len() > 1 {
        let all_of_them = if all.len() == 2 { "Both".to_owned() } else { format!("All {}", all.len()) };
        writeln!(out, "\n{all_of_them} messages in the text:")?;
        for m in all {
            let rank = m.rank.map_or(String::new(), |r| format!(", rank {r}"));
            writeln!(out, "  line {}{rank}: {}{}", m.line, named(m.cause), m.sentence)?;
        }
    }
    Ok(())
}

/// The largest buffers that XLA lists for a program that did not fit.
fn buffers(e: &Explanation, out: &mut dyn Write) -> std::io::Result<()> {
    if !e.buffers.is_empty() {
        writeln!(out, "\nLargest buffers of the program:")?;
    }
    for b in &e.buffers {
        let [operator, source, shape] = [&b.operator, &b.source, &b.shape].map(|text| text.as_deref().unwrap_or("-"));
        writeln!(out, "  {:>12}  {shape:<28}  {source:<32}  {operator}", pytorch_size(b.bytes))?;
    }
    Ok(())
}

fn section<'a>(out: &mut dyn Write, title: &str, lines: impl Iterator<Item = &'a str>) -> std::io::Result<()> {
    for (i, line) in lines.enumerate() {
        if i == 0 {
            writeln!(out, "\n{title}:")?;
        }
        writeln!(out, "  - {line}")?;
    }
    Ok(())
}

/// A cause before a sentence: `fragmentation: `. Empty for an unknown cause, because the sentence says what is known.
pub(super) fn named(cause: &str) -> String {
    match cause {
        "unknown" => String::new(),
        "non_pytorch" => "outside PyTorch: ".to_owned(),
        cause => format!("{}: ", cause.replace('_', " ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 133.79 GiB is free. 1.61 GiB allowed; Of the allocated memory 990.02 MiB is allocated by PyTorch, and 609.98 MiB is reserved by PyTorch but unallocated.";

    #[test]
    fn text_and_json_carry_the_same_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.txt");
        std::fs::write(&path, format!("a\n{TEXT}\n[rank1]: {TEXT}\n")).unwrap();
        let mut json = Vec::new();
        // Logs are often compressed.
        let packed = dir.path().join("log.txt.gz");
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&std::fs::read(&path).unwrap()).unwrap();
        std::fs::write(&packed, gz.finish().unwrap()).unwrap();
        run(Some(&packed), true, &mut json).unwrap();
        let unpacked: serde_json::Value = serde_json::from_slice(&json).unwrap();
        json.clear();
        run(Some(&path), true, &mut json).unwrap();
        assert_eq!(unpacked, serde_json::from_slice::<serde_json::Value>(&json).unwrap());
        let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(value["verdict"], "fragmentation");
        assert_eq!(value["figures"]["requested_bytes"], 524_288_000);
        assert_eq!(value["messages"].as_array().unwrap().len(), 2);
        assert_eq!(value["messages"][1]["rank"], 1);
        let mut text = Vec::new();
        run(Some(&path), false, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("fragmentation: PyTorch has 609.98 MiB free inside its own memory, but scattered"), "{text}");
        assert!(text.contains("line 3, rank 1"));
    }

    /// The first failure in the text comes first, whichever has figures.
    #[test]
    fn failures_of_two_kinds_are_both_told() {
        let shm = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.";
        let killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=44.0. Some of the step tasks have been OOM Killed.";
        let told = |log: String| {
            let path = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&path, log).unwrap();
            let mut text = Vec::new();
            run(Some(path.path()), false, &mut text).unwrap();
            String::from_utf8(text).unwrap().lines().take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let [first, second] = told(format!("{shm}\n{TEXT}\n")).try_into().unwrap();
        assert!(first.starts_with("shared memory: ") && second.starts_with("Another failure, in line 2: fragmentation: "));
        let [first, second] = told(format!("{TEXT}\n{killed}\n")).try_into().unwrap();
        assert!(first.starts_with("fragmentation: ") && second.starts_with("Another failure, in line 2: host memory: "));
        assert!(second.ends_with("#SBATCH --mem or --mem-per-cpu."), "{second}");
        assert!(told(format!("{TEXT}\n{TEXT}\n"))[1].is_empty());
    }

    #[test]
    fn text_without_a_message_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.txt");
        std::fs::write(&path, "all went well").unwrap();
        let error = run(Some(&path), false, &mut Vec::new()).unwrap_err();
        assert!(error.contains("no out-of-memory message"), "{error}");
    }
}
