use super::*;

/// Writes protobuf, as far as profiles need it.
fn varint(mut n: u64, out: &mut Vec<u8>) {
    while n > 127 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn number(field: u32, n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(u64::from(field << 3), &mut out);
    varint(n, &mut out);
    out
}

fn message(field: u32, parts: &[Vec<u8>]) -> Vec<u8> {
    let body = parts.concat();
    let mut out = Vec::new();
    varint(u64::from(field << 3 | 2), &mut out);
    varint(body.len() as u64, &mut out);
    out.extend(body);
    out
}

/// Sample types, `kind`, `device` and the two kinds are texts 1 to 8; other names follow.
struct Writer {
    texts: Vec<String>,
    body: Vec<u8>,
}

impl Writer {
    fn new(types: [&str; 4]) -> Self {
        let texts = ["", types[0], types[1], types[2], types[3], "kind", "device", "buffer", "executable"];
        let body = [[1, 2], [3, 4]].map(|[name, unit]| message(1, &[number(1, name), number(2, unit)])).concat();
        Writer { texts: texts.map(str::to_owned).to_vec(), body }
    }

    fn jax() -> Self {
        Writer::new(["allocations", "count", "space", "bytes"])
    }

    fn text(&mut self, text: &str) -> u64 {
        self.texts.push(text.to_owned());
        self.texts.len() as u64 - 1
    }

    fn sample(&mut self, stack: &[u64], values: [i64; 2], kind: u64, device: &str) {
        let mut parts: Vec<_> = stack.iter().map(|&id| number(1, id)).collect();
        let mut packed = Vec::new();
        values.iter().for_each(|&v| varint(v.cast_unsigned(), &mut packed));
        parts.push(message(2, &[packed]));
        parts.push(message(3, &[number(1, 5), number(2, kind)]));
        if !device.is_empty() {
            let device = self.text(device);
            parts.push(message(3, &[number(1, 6), number(2, device)]));
        }
        self.body.extend(message(2, &parts));
    }

    fn place(&mut self, id: u64, function: &str, file: &str, line: u64) {
        let (name, file) = (self.text(function), self.text(file));
        self.body.extend(message(4, &[number(1, id), message(4, &[number(1, id), number(2, line)])]));
        self.body.extend(message(5, &[number(1, id), number(2, name), number(4, file)]));
    }

    fn bytes(&self) -> Vec<u8> {
        let texts: Vec<Vec<u8>> = self.texts.iter().map(|t| message(6, &[t.clone().into_bytes()])).collect();
        [self.body.clone(), texts.concat()].concat()
    }
}

const BUFFER: u64 = 7;
const PROGRAM_KIND: u64 = 8;

fn load(bytes: &[u8]) -> Result<Recording, FormatError> {
    crate::formats::read(bytes, "memory.prof", &Progress::new())
}

fn sizes(device: &DeviceRecording) -> Vec<u64> {
    device.blocks.iter().map(|b| b.size).collect()
}

#[test]
fn arrays_are_blocks_of_their_device_with_their_stack() {
    let mut w = Writer::jax();
    w.sample(&[1, 2], [3, 12_288], BUFFER, "cuda:1");
    w.sample(&[2], [2, 5], BUFFER, "cuda:0");
    w.sample(&[], [1, 64], BUFFER, "TFRT_CPU_0");
    w.sample(&[], [1, 64], BUFFER, "TPU_3(process=0,(1,1,0,0))");
    w.sample(&[2], [1, 600], PROGRAM_KIND, "");
    w.sample(&[2], [4, 0], PROGRAM_KIND, "");
    w.sample(&[2], [1, -1], PROGRAM_KIND, "");
    w.sample(&[2], [2, 0], BUFFER, "cuda:0");
    w.place(1, "layer", "model.py", 8);
    w.place(2, "train", "train.py", 30);
    let r = load(&w.bytes()).unwrap();
    let names: Vec<String> = r.devices.iter().map(|d| d.id.to_string()).collect();
    assert_eq!(names, ["GPU 0", "GPU 1", "TPU 3", "CPU", "Unnamed device"]);
    // A remainder of the division is kept to the byte.
    assert_eq!(r.devices.iter().map(sizes).collect::<Vec<_>>(), [vec![3, 2], vec![4096; 3], vec![64], vec![64], vec![600]]);
    let frames = |d: usize| -> Vec<String> {
        let frames = r.stacks.frames(r.devices[d].blocks[0].stack).iter().filter_map(|&f| r.stacks.frame(f));
        frames.map(|f| format!("{} {}", r.stacks.location(f), r.stacks.text(f.name))).collect()
    };
    assert_eq!(frames(1), ["model.py:8 layer", "train.py:30 train"], "innermost first");
    assert_eq!(frames(2), [""; 0]);
    assert_eq!(frames(4), ["<executable> compiled program", "train.py:30 train"]);
    let warnings: Vec<(WarningKind, u64, &str)> = r.report.warnings.iter().map(|w| (w.kind, w.count, w.text.as_str())).collect();
    let said = "2\u{a0}arrays and 5\u{a0}compiled programs were left out: the file gives them no size";
    assert_eq!(warnings, [(WarningKind::Skipped, 7, said)]);
    assert!(
        !r.addresses().is_known()
            && r.devices[0].can_show.requested.is_known()
            && r.devices.iter().all(|d| d.segments.is_empty())
    );
}

/// Recorded on an H200 with JAX 0.11.2; the sums are those of `jax.live_arrays()` at that instant.
#[test]
fn a_real_profile_has_every_live_array_to_the_byte() {
    for (name, arrays, bytes) in [("jax_train", 24, 465_718_272), ("jax_leak", 64, 486_689_792)] {
        let path = format!("{}/../../tests/recordings/{name}.prof", env!("CARGO_MANIFEST_DIR"));
        let r = crate::formats::open(path.as_ref(), &Progress::new()).unwrap();
        let [device] = &r.devices[..] else { panic!("{name}: one device") };
        assert_eq!((device.id.to_string().as_str(), device.blocks.len()), ("GPU 0", arrays), "{name}");
        assert_eq!(sizes(device).iter().sum::<u64>(), bytes, "{name}");
        assert!(device.blocks.iter().all(|b| b.stack.is_some()), "{name}");
        let of_mebibytes = device.blocks.iter().filter(|b| b.size == 64 << 20).count();
        assert_eq!(of_mebibytes, 6, "{name}: the 4096 × 4096 weights and Adam's two moments of each");
    }
}

#[test]
fn another_pprof_profile_says_what_it_is() {
    let mut heap = Writer::new(["inuse_objects", "count", "inuse_space", "bytes"]);
    heap.sample(&[], [1, 64], BUFFER, "");
    let error = load(&heap.bytes()).unwrap_err().to_string();
    assert!(error.contains("a pprof profile of inuse_objects, inuse_space, and not one of device memory"), "{error}");
    heap.texts[1] = "in\nuse".to_owned();
    assert!(load(&heap.bytes()).unwrap_err().to_string().contains("a pprof profile of inuse, inuse_space, and"));
    // The value types are right, but the labels are not JAX's.
    let mut w = Writer::jax();
    w.texts[5] = "thread".to_owned();
    w.sample(&[], [1, 64], BUFFER, "cuda:0");
    let error = load(&w.bytes()).unwrap_err().to_string();
    assert!(error.contains("a pprof profile, and not one of device memory"), "{error}");
    let error = load(&Writer::jax().bytes()).unwrap_err().to_string();
    assert!(error.contains("has no array in it; call jax.profiler.save_device_memory_profile"), "{error}");
    // A text that begins with an empty line is no profile.
    assert!(!is_pprof(b"\n\x04abcd") && !is_pprof(b"\n\n\nx") && !is_pprof(b"") && is_pprof(&heap.bytes()));
}

#[test]
fn a_few_bytes_can_not_claim_gigabytes() {
    let mut w = Writer::jax();
    w.sample(&[], [i64::MAX, 1 << 40], BUFFER, "cuda:0");
    let error = load(&w.bytes()).unwrap_err().to_string();
    assert!(error.contains("more than a process keeps"), "{error}");
    // Locations with many lines, used by many samples.
    let mut w = Writer::jax();
    let lines: Vec<Vec<u8>> =
        std::iter::once(number(1, 1)).chain((0..2_000).map(|l| message(4, &[number(1, 1), number(2, l)]))).collect();
    w.body.extend(message(4, &lines));
    (0..2_000).for_each(|_| w.sample(&[1], [1, 64], BUFFER, ""));
    let error = load(&w.bytes()).unwrap_err().to_string();
    assert!(error.contains("more lines than a profile of its size"), "{error}");
    let mut w = Writer::jax();
    w.sample(&[], [1, i64::MAX], BUFFER, "cuda:0");
    w.sample(&[], [1, 64], BUFFER, "cuda:0");
    let r = load(&w.bytes()).unwrap();
    assert_eq!((r.devices[0].blocks.len(), r.report.nonsense()), (1, 1));
}

#[test]
fn a_profile_cut_anywhere_gives_what_came_before_or_one_sentence() {
    let whole = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/jax/gpu.pb")).unwrap();
    let mut read = 0;
    for end in 1..whole.len() {
        match load(&whole[..end]) {
            Ok(r) => {
                read += 1;
                let held: u64 = r.devices.iter().flat_map(|d| &d.blocks).map(|b| b.size).sum();
                assert!(held <= 486_689_792);
            }
            Err(error) => assert!(!error.to_string().contains('\n')),
        }
    }
    assert!(read > 0);
}
