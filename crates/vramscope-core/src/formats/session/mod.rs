//! The `.vramscope` session: what a live session recorded.
//!
//! A session is the 8 bytes `VRAMSES\x01`, followed by frames that are appended one by one and never changed:
//!
//! ```text
//! u32 length   little endian, bytes of the payload
//! u32 crc32    of the payload (the polynomial of gzip)
//! payload      one JSON object; its field "k" names the kind of record
//! ```
//!
//! Everything written before a kill, a full disk or a broken connection can be opened: reading stops at the first incomplete
//! frame and reports it. The same bytes go through a pipe, so `ssh host vramscope record -` is a session that is read while it is
//! written. [`Record`] lists all kinds; [`History`] combines them into a [`Recording`], both live and from a file.

mod file;
mod frame;
mod history;
mod record;
mod tracks;

pub use file::{SessionFile, writer_of};
pub use frame::{MAGIC, Next, SessionReader, SessionWriter};
pub use history::{DeviceNow, History};
pub use record::{
    Attached, Blocks, Costs, Detached, DeviceFacts, DeviceGauge, DevicePeaks, End, HostMemory, Lost, MarkPoint, MemoryPoint,
    ProcessFacts, ProcessList, Record, Start, TorchPoint, Trouble,
};

use super::FormatError;
use crate::model::{Progress, Recording, WarningKind};

/// Reads a saved session. A truncated file gives what came before the cut. Fails when it contains no device.
pub(super) fn read(bytes: &[u8], name: &str, progress: &Progress) -> Result<Recording, FormatError> {
    let io = |error: std::io::Error| FormatError::Io { name: name.to_owned(), what: error.to_string() };
    let Some(mut reader) = SessionReader::new(bytes).map_err(io)? else {
        return Err(FormatError::NotRecognised {
            name: name.to_owned(),
            found: "the beginning of a session of another version".to_owned(),
        });
    };
    // A file that is read whole may use more memory than an endless live session.
    let mut history = History::unbounded();
    let (mut unknown, mut broken) = ((0u64, None), None);
    loop {
        progress.check()?;
        match reader.next_record().map_err(io)? {
            Next::Record(record) => history.add(*record),
            Next::Unknown { offset } => {
                unknown.0 += 1;
                unknown.1 = unknown.1.or(Some(offset));
            }
            Next::End => break,
            Next::Broken { offset, what } => {
                broken = Some((offset, what));
                break;
            }
        }
    }
    let mut recording = history.recording(name);
    if history.devices().next().is_none() {
        let what = history.trouble().unwrap_or("the session ended before a device was found").to_owned();
        return Err(FormatError::Empty { name: name.to_owned(), what });
    }
    // A complete last record without an `End` record: the recorder was stopped with Ctrl+C, and nothing is missing.
    if let Some((offset, what)) = broken {
        recording.report.warn(WarningKind::Truncated, Some(offset), || {
            format!("the session is cut short: {what}; everything before it was read")
        });
    }
    recording.report.warn_many(WarningKind::Skipped, unknown.0, unknown.1, || {
        "records of a newer version of vramscope were left out".to_owned()
    });
    recording.report.warn_many(WarningKind::Skipped, history.left_out(), None, || {
        "the session tells of more devices than a machine has; the rest was left out".to_owned()
    });
    Ok(recording)
}

#[cfg(test)]
mod tests {
    use super::frame::LONGEST;
    use super::*;
    use crate::formats::read as open;

    fn session(n: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = SessionWriter::new(&mut bytes).unwrap();
        let facts = DeviceFacts { uuid: "GPU-0".into(), name: "H200".into(), total: 1000, ..DeviceFacts::default() };
        writer.write(&Record::Device(facts)).unwrap();
        for i in 0..n {
            let point = MemoryPoint { d: 0, t: 1000 + i, total: 1000, used: 10 + i as u64, driver: Some(5) };
            writer.write(&Record::Memory(point)).unwrap();
        }
        bytes
    }

    #[test]
    fn a_session_cut_anywhere_gives_every_whole_record_before_the_cut() {
        let whole = session(20);
        let full = open(&whole, "s.vramscope", &Progress::new()).unwrap();
        assert_eq!((full.devices[0].samples.len(), full.report.warnings.len()), (20, 0));
        let mut last = 0;
        for cut in 0..whole.len() {
            match open(&whole[..cut], "s.vramscope", &Progress::new()) {
                Ok(r) => {
                    let n = r.devices[0].samples.len();
                    assert!(n >= last);
                    last = n;
                }
                Err(e) => assert!(last == 0, "{cut}: {e}"),
            }
        }
        assert_eq!(last, 19);
    }

    #[test]
    fn a_damaged_record_ends_the_reading_with_its_place() {
        let mut bytes = session(20);
        let at = bytes.len() - 40;
        bytes[at] ^= 0x20;
        let r = open(&bytes, "s.vramscope", &Progress::new()).unwrap();
        let w = &r.report.warnings[0];
        assert!(w.text.contains("checksum") && w.first_offset.is_some(), "{w:?}");
        assert_eq!(r.devices[0].samples.len(), 19);
        // An impossible length must not allocate memory.
        let mut long = session(1);
        let n = long.len();
        long.extend_from_slice(&[0xff; 8]);
        assert_eq!(open(&long, "s", &Progress::new()).unwrap().report.warnings[0].first_offset, Some(n as u64));
    }

    #[test]
    fn zeros_at_the_end_are_damage_and_not_a_newer_version() {
        for zeros in [8, 64, 4096] {
            let mut bytes = session(20);
            let whole = bytes.len() as u64;
            bytes.resize(bytes.len() + zeros, 0);
            let r = open(&bytes, "s.vramscope", &Progress::new()).unwrap();
            let [w] = r.report.warnings.as_slice() else { panic!("{:?}", r.report.warnings) };
            assert!(w.kind == WarningKind::Truncated && w.text.contains("zeros") && !w.text.contains("newer"), "{w:?}");
            assert_eq!((w.first_offset, r.devices[0].samples.len()), (Some(whole), 20));
        }
    }

    #[test]
    fn a_record_that_no_reader_takes_is_not_written_and_said() {
        let mut bytes = Vec::new();
        let mut writer = SessionWriter::new(&mut bytes).unwrap();
        writer.write(&Record::Device(DeviceFacts { total: 1000, ..DeviceFacts::default() })).unwrap();
        let snapshot = Box::new(serde_json::Value::String("x".repeat(LONGEST as usize)));
        writer.write(&Record::Blocks(Blocks { t: 7, pid: 9, snapshot, ..Blocks::default() })).unwrap();
        writer.write(&Record::Memory(MemoryPoint { t: 8, total: 1000, used: 10, ..MemoryPoint::default() })).unwrap();
        assert!(bytes.len() < 10_000, "{}", bytes.len());
        let r = open(&bytes, "s.vramscope", &Progress::new()).unwrap();
        assert_eq!((r.devices[0].samples.len(), r.report.warnings.len()), (1, 0));
        let marks = &r.devices[0].live.as_ref().unwrap().marks;
        assert!(marks.len() == 1 && marks[0].text.contains("too large for a session"), "{marks:?}");
    }

    #[test]
    fn records_of_a_newer_version_are_counted_and_skipped() {
        let mut bytes = session(2);
        let payload = br#"{"k":"hologram","x":1}"#;
        let mut crc = flate2::Crc::new();
        crc.update(payload);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc.sum().to_le_bytes());
        bytes.extend_from_slice(payload);
        let r = open(&bytes, "s", &Progress::new()).unwrap();
        assert_eq!((r.report.warnings[0].count, r.devices[0].samples.len()), (1, 2));
    }

    #[test]
    fn blocks_of_a_helper_become_the_state_of_the_device() {
        let mut history = History::new();
        history.add(Record::Device(DeviceFacts { device: 3, ..DeviceFacts::default() }));
        let snapshot = serde_json::json!({"segments": [{"device": 0, "address": 4096, "total_size": 2_097_152, "allocated_size": 512,
            "active_size": 512, "stream": 0, "segment_type": "small", "blocks": [
            {"address": 4096, "size": 512, "state": "active_allocated"}, {"address": 4608, "size": 2_096_640, "state": "inactive"}]}],
            "device_traces": []});
        history.add(Record::Blocks(Blocks { t: 1, pid: 7, devices: vec![(0, 3)], snapshot: Box::new(snapshot) }));
        let r = history.recording("live");
        assert_eq!((r.devices[0].id.index, r.devices[0].segments.len(), r.devices[0].blocks.len()), (3, 1, 2));
        assert_eq!(r.devices[0].final_reserved(), 2_097_152);
    }

    #[test]
    fn pytorchs_figures_split_the_process_between_two_lists() {
        use crate::model::TorchFigures;
        let mut h = History::new();
        let m = |reserved, allocated| TorchFigures { reserved, allocated, ..TorchFigures::default() };
        h.add(Record::Device(DeviceFacts { total: 1000, ..DeviceFacts::default() }));
        h.add(Record::Torch(TorchPoint { d: 0, t: 1, pid: 9, m: m(100, 60) }));
        h.add(Record::Processes(ProcessList { d: 0, t: 2, p: vec![(9, 1, Some(300)), (10, 1, Some(50))] }));
        h.add(Record::Memory(MemoryPoint { d: 0, t: 3, total: 1000, used: 400, driver: Some(40) }));
        // 50 more bytes are reserved; the list of processes has not been read again.
        h.add(Record::Torch(TorchPoint { d: 0, t: 4, pid: 9, m: m(150, 130) }));
        h.add(Record::Memory(MemoryPoint { d: 0, t: 5, total: 1000, used: 450, driver: Some(40) }));
        let r = h.recording("live");
        for (sample, allocated, cached) in [(&r.devices[0].samples[0], 60, 40), (&r.devices[0].samples[1], 130, 20)] {
            let b = sample.bands(1000).unwrap();
            assert_eq!((b.outside, b.allocated, b.cached, b.others, b.unattributed), (200, allocated, cached, 50, 10));
            assert_eq!((b.used() + b.free, b.skew), (1000, 0));
        }
    }

    /// Seen on an H200: the driver's list included 2,000 MiB, allocated at once, before the helper reported them.
    #[test]
    fn what_a_list_counts_before_the_helper_tells_it_is_not_counted_twice() {
        use crate::model::TorchFigures;
        let mut h = History::new();
        let m = |reserved| TorchFigures { reserved, allocated: reserved, ..TorchFigures::default() };
        h.add(Record::Device(DeviceFacts { total: 10_000, ..DeviceFacts::default() }));
        h.add(Record::Torch(TorchPoint { d: 0, t: 1, pid: 9, m: m(160) }));
        h.add(Record::Processes(ProcessList { d: 0, t: 2, p: vec![(9, 1, Some(4_794))] }));
        h.add(Record::Memory(MemoryPoint { d: 0, t: 3, total: 10_000, used: 5_418, driver: Some(615) }));
        h.add(Record::Torch(TorchPoint { d: 0, t: 4, pid: 9, m: m(2_160) }));
        h.add(Record::Memory(MemoryPoint { d: 0, t: 5, total: 10_000, used: 5_418, driver: Some(615) }));
        // The reverse: freed in the list first, then in the helper's report.
        h.add(Record::Processes(ProcessList { d: 0, t: 6, p: vec![(9, 1, Some(746))] }));
        h.add(Record::Memory(MemoryPoint { d: 0, t: 7, total: 10_000, used: 1_370, driver: Some(615) }));
        h.add(Record::Torch(TorchPoint { d: 0, t: 8, pid: 9, m: m(160) }));
        h.add(Record::Memory(MemoryPoint { d: 0, t: 9, total: 10_000, used: 1_370, driver: Some(615) }));
        let r = h.recording("live");
        let bands = |at: usize| r.devices[0].samples[at].bands(10_000).unwrap();
        assert_eq!((bands(1).outside, bands(1).allocated, bands(1).skew, bands(1).used()), (2_643, 2_160, 0, 5_418));
        assert_eq!((bands(3).outside, bands(3).allocated, bands(3).unattributed), (586, 160, 9));
    }

    #[test]
    fn peaks_before_the_watch_and_before_a_reset_are_kept() {
        use crate::model::TorchFigures;
        let mut h = History::new();
        let m = |reserved_peak| TorchFigures { reserved: 50, reserved_peak, ..TorchFigures::default() };
        h.add(Record::Device(DeviceFacts { total: 1000, ..DeviceFacts::default() }));
        h.add(Record::Processes(ProcessList { d: 0, t: 2, p: vec![(9, 1, Some(300))] }));
        h.add(Record::Peaks(DevicePeaks { d: 0, t: 3, p: vec![(9, 1, 800), (8, 1, 5)] }));
        h.add(Record::Torch(TorchPoint { d: 0, t: 4, pid: 9, m: m(700) }));
        h.add(Record::Torch(TorchPoint { d: 0, t: 5, pid: 9, m: m(60) }));
        let r = h.recording("live");
        let track = &r.devices[0].live.as_ref().unwrap().processes[0];
        assert_eq!((track.peak, track.lifetime_peak, track.torch_peak), (Some((300, 2)), Some(800), Some((0, 700))));
    }

    #[test]
    fn a_pid_that_is_used_again_is_another_process() {
        let mut h = History::new();
        h.add(Record::Device(DeviceFacts { total: 1000, ..DeviceFacts::default() }));
        h.add(Record::Memory(MemoryPoint { t: 1, total: 1000, used: 1, ..MemoryPoint::default() }));
        h.add(Record::Process(ProcessFacts { pid: 9, started: 1, name: "old".into(), ..ProcessFacts::default() }));
        h.add(Record::Processes(ProcessList { d: 0, t: 2, p: vec![(9, 1, Some(300))] }));
        h.add(Record::Process(ProcessFacts { pid: 9, started: 2, name: "new".into(), ..ProcessFacts::default() }));
        h.add(Record::Processes(ProcessList { d: 0, t: 3, p: vec![(9, 2, Some(5))] }));
        let r = h.recording("live");
        let tracks = &r.devices[0].live.as_ref().unwrap().processes;
        assert_eq!(tracks.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["old", "new"]);
        assert_eq!((tracks[0].ended_us, tracks[1].ended_us), (Some(3), None));
        assert_eq!((tracks[0].peak, tracks[1].peak), (Some((300, 2)), Some((5, 3))));
    }
}
