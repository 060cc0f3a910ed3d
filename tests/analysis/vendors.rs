//! Recordings of other vendors' cards are described in those vendors' terms.

use std::path::Path;

use vramscope_core::anatomy::roles::Rules;
use vramscope_core::diagnose::findings::diagnose;
use vramscope_core::formats;
use vramscope_core::model::{DeviceKind, Progress};
use vramscope_core::tables::{DeviceTables, StackNames};

#[test]
fn an_intel_card_is_told_nothing_of_cuda() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("sample_snapshots");
    let mut told = 0;
    for name in ["fragment_oom.pickle", "leak.pickle", "kv_decode_oom.pickle.gz"] {
        let progress = Progress::new();
        let mut recording = formats::open(&samples.join(name), &progress).unwrap();
        for device in &mut recording.devices {
            device.id.kind = DeviceKind::Xpu;
        }
        let names = StackNames::of(&recording.stacks);
        for device in &recording.devices {
            let tables = DeviceTables::build(device, &progress).unwrap();
            let found = diagnose(&recording, device, &tables, &names, &Rules::default(), &progress).unwrap();
            for f in &found.findings {
                told += 1;
                let all = [&f.title, &f.sentence, &f.advice, &f.verify].map(String::as_str).join(" ")
                    + f.remedy.as_deref().unwrap_or("");
                for foreign in ["torch.cuda.", "nvidia-smi", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_VISIBLE_DEVICES", "NCCL"] {
                    assert!(!all.contains(foreign), "{name}: {foreign} in {all}");
                }
            }
        }
    }
    assert!(told >= 3);
}
