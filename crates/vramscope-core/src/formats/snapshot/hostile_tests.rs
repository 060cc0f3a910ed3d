//! Damaged and hostile files must cause no panic, no hang and no excessive memory. Random damage is in `tests/formats/hostile.rs`.

use std::io::Write as _;
use std::time::Instant;

use super::super::{FormatError, read};
use super::tests::{Dialect, V, dict, entry, everything, open, pickle, s};
use crate::model::{Format, Progress, WarningKind};

/// Reads arbitrary bytes; a recording that results must be consistent.
fn survive(bytes: &[u8]) {
    let Ok(recording) = read(bytes, "damaged", &Progress::new()) else { return };
    for device in &recording.devices {
        let n = device.events.len();
        assert!(device.events.time_us.len() == n && device.events.stack.len() == n && device.events.pool.len() == n);
        assert!(device.events.notes.iter().all(|note| (note.event as usize) < n));
        assert!(device.events.stack.iter().all(|s| !s.is_some() || (s.0 as usize) < recording.stacks.len()));
        assert!(device.events.stream.iter().all(|s| usize::from(s.0) < device.streams.len()));
        for segment in &device.segments {
            let blocks = device.blocks_of(segment);
            assert_eq!(blocks.len(), (segment.blocks.end - segment.blocks.start) as usize);
        }
    }
}

#[test]
fn a_file_cut_anywhere_gives_what_came_before() {
    for dialect in [Dialect::Python(0), Dialect::Python(2), Dialect::Python(4), Dialect::Cpp] {
        let whole = pickle(&everything(), dialect);
        let mut most = 0;
        for cut in 0..whole.len() {
            let Ok(recording) = read(&whole[..cut], "cut", &Progress::new()) else { continue };
            assert!(recording.report.warnings.iter().any(|w| w.kind == WarningKind::Truncated), "cut at {cut} of {dialect:?}");
            let events: usize = recording.devices.iter().map(|d| d.events.len()).sum();
            assert!(events >= most, "cut at {cut} of {dialect:?} has {events} events, one byte less had {most}");
            most = events;
        }
        assert_eq!(most, 11, "{dialect:?}");
    }
}

/// `device_traces` with one list, whose batch is `body`.
fn around(body: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x80\x04}\x94(\x8c\x08segments\x94]\x94\x8c\x0ddevice_traces\x94]\x94]\x94(".to_vec();
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(b"eau.");
    bytes
}

#[test]
fn memory_and_time_stay_in_proportion() {
    let started = Instant::now();
    // Nested lists that fetch the inner list twice each: 2^30 leaves if they were copied.
    let mut bomb = b"\x80\x04}\x94(\x8c\x08segments\x94]\x94(K\x00K\x00e".to_vec();
    for id in 0..30u8 {
        bomb.extend([b'0', b']', 0x94, b'(', b'h', id + 2, b'h', id + 2, b'e']);
    }
    bomb.extend(b"u.");
    survive(&bomb);
    // Many entries that fetch the same very long stack.
    let mut body = b"}\x94(\x8c\x06frames\x94]\x94(".to_vec();
    body.extend(b"}\x94(\x8c\x04name\x94\x8c\x01f\x94u".iter());
    body.extend(b"h\x09".repeat(40_000));
    body.extend(b"eu");
    for _ in 0..40_000 {
        body.extend(b"}(h\x07h\x08u");
    }
    survive(&around(&body));
    // One entry fetched again and again: two bytes per event.
    let mut body = b"}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94K\x01\x8c\x04size\x94K\x02u".to_vec();
    body.extend(b"h\x06".repeat(100_000));
    survive(&around(&body));
    // Depths, lengths and ids with no data after them.
    survive(&[b"\x80\x04".as_slice(), &b"(".repeat(1_000_000)].concat());
    survive(&around(&b"(".repeat(1_000_000)));
    survive(&[b"\x80\x04]".as_slice(), &b"]".repeat(1_000_000)].concat());
    survive(b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f");
    survive(b"\x80\x02}r\xff\xff\xff\xffq\x00.");
    survive(&around(b"}r\xff\xff\xff\xff(h\xffh\xffu"));
    // A list that contains itself, in place of frames.
    survive(&around(
        b"}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94K\x01\x8c\x04size\x94K\x02\x8c\x06frames\x94]\x94h\x0cau",
    ));
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn refused(bytes: &[u8]) -> String {
    let error = read(bytes, "bomb", &Progress::new()).unwrap_err();
    assert!(matches!(error, FormatError::TooLarge { .. }), "{error}");
    error.to_string()
}

#[test]
fn what_containers_unpack_to_is_bounded_over_all_of_them() {
    // Each container alone is within the limits.
    let packed = gzip(&vec![b' '; 30 << 20]);
    let twice = gzip(&packed);
    assert!(refused(&twice).contains("unpacks to more than 16"), "{}", refused(&twice));
    let error = read(&twice, "bomb", &Progress::new()).unwrap_err();
    let FormatError::TooLarge { offset, .. } = error else { panic!("{error}") };
    assert!(offset > 15 << 20 && offset <= 16 << 20, "{offset}: what was unpacked until then, not the packed size");
    let four = gzip(&gzip(&gzip(&gzip(&gzip(b"x")))));
    assert!(refused(&four).contains("more than 4 containers"));
}

#[test]
fn values_are_bounded_by_the_file() {
    for value in [b"N".as_slice(), b")", b"]", b"K\x00", b"h\x00"] {
        let bomb = [b"\x80\x04]\x94(".as_slice(), &value.repeat((12 << 20) / value.len()), b"e."].concat();
        assert!(refused(&bomb).contains("more values than"), "{value:?}");
    }
    // In a trace, in place of entries.
    let read = open(&around(&b"N".repeat(12 << 20)));
    assert!(read.report.warnings.iter().any(|w| w.text.contains("more values than")), "{:?}", read.report.warnings);
    let json = format!("{{\"segments\": [{}0], \"device_traces\": []}}", "0,".repeat(6 << 20));
    let error = super::super::read(json.as_bytes(), "bomb", &Progress::new()).unwrap_err().to_string();
    assert!(error.contains("more values than"), "{error}");
}

/// A list of `items`, all of them references to the first.
fn shared(out: &mut Vec<u8>, stored: &mut u32, item: impl FnOnce(&mut Vec<u8>, &mut u32), times: usize) {
    out.extend(b"]\x94(");
    *stored += 1;
    let id = *stored;
    item(out, stored);
    for _ in 1..times {
        out.push(b'j');
        out.extend(id.to_le_bytes());
    }
    out.push(b'e');
}

#[test]
fn a_list_of_blocks_that_many_segments_share_is_refused() {
    let mut bomb = b"\x80\x04}\x94(\x8c\x08segments\x94".to_vec();
    let mut stored = 2;
    let block = b"}\x94(\x8c\x04size\x94M\x00\x02\x8c\x07address\x94K\x00u";
    let segment = |out: &mut Vec<u8>, stored: &mut u32| {
        out.extend(b"}\x94(\x8c\x07address\x94M\x00\x10\x8c\x06blocks\x94");
        *stored += 3;
        shared(
            out,
            stored,
            |out, stored| {
                out.extend(block);
                *stored += 3;
            },
            2000,
        );
        out.push(b'u');
    };
    shared(&mut bomb, &mut stored, segment, 2000);
    bomb.extend(b"\x8c\x0ddevice_traces\x94]\x94u.");
    let sentence = refused(&bomb);
    assert!(sentence.contains("the same blocks again and again"), "{sentence}");
}

/// Stacks like those of PyTorch's `stacks="all"`: hundreds of frames, each a dict that is written once and then fetched. The
/// first stack with a frame contains it in full between fetched ones.
fn deep_stacks(stacks: usize, depth: usize) -> Vec<u8> {
    let mut out = b"\x80\x04}\x94(\x8c\x08segments\x94]\x94\x8c\x0ddevice_traces\x94]\x94]\x94(".to_vec();
    let mut stored = 6u32;
    let mut texts: rustc_hash::FxHashMap<String, u32> = rustc_hash::FxHashMap::default();
    let fetch = |out: &mut Vec<u8>, id: u32| {
        out.push(b'j');
        out.extend(id.to_le_bytes());
    };
    let mut text = |out: &mut Vec<u8>, stored: &mut u32, text: String| match texts.get(&text) {
        Some(&id) => {
            out.push(b'j');
            out.extend(id.to_le_bytes());
        }
        None => {
            out.extend([0x8c, text.len() as u8]);
            out.extend(text.as_bytes());
            out.push(0x94);
            texts.insert(text, *stored);
            *stored += 1;
        }
    };
    let mut frames: Vec<Option<u32>> = vec![None; 4 * depth];
    let mut lists: Vec<u32> = Vec::new();
    for entry in 0..2 * stacks {
        let k = entry % stacks;
        out.extend(b"}\x94(");
        stored += 1;
        for (key, value) in [("addr", entry as u32 * 512), ("size", 512)] {
            text(&mut out, &mut stored, key.to_owned());
            out.push(b'J');
            out.extend(value.to_le_bytes());
        }
        text(&mut out, &mut stored, "action".to_owned());
        text(&mut out, &mut stored, "alloc".to_owned());
        text(&mut out, &mut stored, "frames".to_owned());
        if let Some(&list) = lists.get(k).filter(|_| entry >= stacks) {
            fetch(&mut out, list);
        } else {
            out.extend(b"]\x94(");
            lists.push(stored);
            stored += 1;
            for i in 0..depth {
                let at = (k * 7 + i * (1 + k % 3)) % frames.len();
                if let Some(id) = frames[at] {
                    fetch(&mut out, id);
                    continue;
                }
                out.extend(b"}\x94(");
                frames[at] = Some(stored);
                stored += 1;
                for (key, value) in [("name", format!("f{at}")), ("filename", format!("lib{}.py", at % 40))] {
                    text(&mut out, &mut stored, key.to_owned());
                    text(&mut out, &mut stored, value);
                }
                text(&mut out, &mut stored, "line".to_owned());
                out.push(b'M');
                out.extend((at as u16).to_le_bytes());
                out.push(b'u');
            }
            out.push(b'e');
        }
        out.push(b'u');
    }
    out.extend(b"eau.");
    out.extend([0; 700]);
    out
}

#[test]
fn stacks_whose_frames_are_stored_once_are_read_whole() {
    let bytes = deep_stacks(800, 200);
    let since = Instant::now();
    let recording = open(&bytes);
    assert_eq!(recording.report.warnings, []);
    let device = &recording.devices[0];
    assert_eq!((device.events.len(), recording.stacks.len()), (1600, 800));
    assert!(device.events.stack[..800] == device.events.stack[800..]);
    let frames = recording.stacks.frames(device.events.stack[5]);
    let names: Vec<&str> =
        frames.iter().filter_map(|&f| recording.stacks.frame(f)).map(|f| recording.stacks.text(f.name)).collect();
    let wanted: Vec<String> = (0..200).map(|i| format!("f{}", (35 + i * 3) % 800)).collect();
    assert_eq!(names, wanted);
    assert!(since.elapsed().as_secs_f64() < 2.0, "{:?}", since.elapsed());
}

#[test]
fn a_long_text_that_every_entry_fetches_takes_no_time() {
    let since = Instant::now();
    for key in [b"\x8c\x0duser_metadata".as_slice(), b"\x8c\x0acpp_frames"] {
        let mut body = b"}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94K\x01\x8c\x04size\x94K\x02".to_vec();
        body.extend(key);
        body.extend(b"\x94X\x00\x00\x10\x00");
        body.extend(b"a line\n       \n".repeat((1 << 20) / 15 + 1).iter().take(1 << 20));
        body.extend(b"\x94u");
        for _ in 0..30_000 {
            body.extend(b"}(h\x07h\x08h\x09K\x01h\x0aK\x02h\x0bh\x0cu");
        }
        survive(&around(&body));
    }
    assert!(since.elapsed().as_secs() < 20, "{:?}", since.elapsed());
}

#[test]
fn depth_has_a_limit_and_names_it() {
    let error = read(&[b"\x80\x04".as_slice(), &b"(".repeat(5000)].concat(), "deep", &Progress::new()).unwrap_err();
    assert!(matches!(error, FormatError::TooLarge { .. }), "{error}");
}

#[test]
fn one_entry_twice_in_a_trace_is_two_events() {
    let body = b"}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94K\x01\x8c\x04size\x94K\x02uh\x06h\x06";
    let recording = open(&around(body));
    assert_eq!(recording.devices[0].events.size, [2, 2, 2]);
}

#[test]
fn a_dict_filled_in_two_batches_is_one_entry() {
    let body = b"}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94K\x01u(\x8c\x04size\x94K\x02u}\x94(h\x07h\x08h\x09K\x05h\x0aK\x06u";
    let recording = open(&around(body));
    assert_eq!((&recording.devices[0].events.size[..], &recording.devices[0].events.address[..]), (&[2, 6][..], &[1, 5][..]));
}

#[test]
fn containers_around_a_snapshot_are_taken_off() {
    let inner = pickle(&everything(), Dialect::Python(2));
    let plain = open(&inner);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&inner).unwrap();
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    zip.start_file("archive/data.pkl", options).unwrap();
    zip.write_all(&inner).unwrap();
    zip.start_file("archive/version", options).unwrap();
    zip.write_all(b"3\n").unwrap();
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &inner);
    let page = format!(
        "\n<!DOCTYPE html>\n<html><script>\nconst local_files = [{{\"name\": \"snapshot.pickle\", \"base64\": \"{base64}\"}}]"
    );
    let wrapped = [
        (gzip.finish().unwrap(), Format::SnapshotPickle),
        (zstd::encode_all(&inner[..], 1).unwrap(), Format::SnapshotPickle),
        (zip.finish().unwrap().into_inner(), Format::SnapshotPickle),
        (page.into_bytes(), Format::SnapshotHtml),
    ];
    for (bytes, format) in wrapped {
        let recording = open(&bytes);
        assert_eq!(recording.source.format, format);
        assert_eq!(format!("{:?}", recording.devices), format!("{:?}", plain.devices));
        assert_eq!(recording.source.bytes, bytes.len() as u64);
        for cut in [bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] {
            survive(&bytes[..cut]);
        }
    }
}

fn json(value: &V) -> serde_json::Value {
    match value {
        V::None => serde_json::Value::Null,
        V::Bool(v) => (*v).into(),
        V::Int(v) => u64::try_from(*v).map_or_else(|_| (*v as i64).into(), Into::into),
        V::Float(v) => (*v).into(),
        V::Str(text) => text.clone().into(),
        V::List(items) | V::Tuple(items) => items.iter().map(json).collect(),
        V::Dict(pairs) => serde_json::Value::Object(
            pairs.iter().map(|(k, v)| (json(k).as_str().unwrap_or_default().to_owned(), json(v))).collect(),
        ),
    }
}

#[test]
fn json_gives_the_same_recording() {
    let text = serde_json::to_string_pretty(&json(&everything())).unwrap();
    let recording = open(text.as_bytes());
    let pickled = open(&pickle(&everything(), Dialect::Python(4)));
    assert_eq!(recording.source.format, Format::SnapshotJson);
    assert_eq!(recording.devices.len(), 3);
    for (a, b) in recording.devices.iter().zip(&pickled.devices) {
        assert_eq!(a.events.size, b.events.size);
        assert_eq!(a.events.address, b.events.address);
        assert_eq!(a.blocks.len(), b.blocks.len());
        assert_eq!(a.settings.conf, b.settings.conf);
    }
    let mut most = 0;
    for cut in (text.len() / 8..text.len()).step_by(7) {
        let Ok(recording) = read(&text.as_bytes()[..cut], "cut", &Progress::new()) else { continue };
        let events: usize = recording.devices.iter().map(|d| d.events.len()).sum();
        assert!(events + 1 >= most, "cut at {cut}: {events} events, {most} before");
        most = most.max(events);
    }
    assert!(most > 0);
}

#[test]
fn loading_tells_its_progress_and_can_be_stopped() {
    let trace: Vec<V> = (0..30_000).map(|i| entry(if i % 2 == 0 { "alloc" } else { "free_completed" }, 512, 7, i, &[])).collect();
    let value =
        dict(&[("segments", V::List(vec![])), ("device_traces", V::List(vec![V::List(vec![]), V::List(trace)])), ("x", s("y"))]);
    let bytes = pickle(&value, Dialect::Python(4));
    let progress = Progress::new();
    read(&bytes, "whole", &progress).unwrap();
    assert_eq!(progress.fraction(), Some(1.0));
    let preview = progress.preview_since(0);
    assert!(preview.len() >= 7 && preview.iter().all(|p| p.device == 1 && p.requested == 7 && p.reserved == 0), "{preview:?}");
    assert!(preview.is_sorted_by_key(|p| p.event));
    let stopped = Progress::new();
    stopped.cancel();
    assert_eq!(read(&bytes, "stopped", &stopped).unwrap_err(), FormatError::Cancelled);
}
