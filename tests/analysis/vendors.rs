//! Recordings of other vendors' cards are described in those vendors' terms.

use crate::findings::diagnoses;
use crate::shared::open_sample;
use vramscope_core::model::DeviceKind;

#[test]
fn an_intel_card_is_told_nothing_of_cuda() {
    let mut told = 0;
    for name in ["fragment_oom.pickle", "leak.pickle", "kv_decode_oom.pickle.gz"] {
        let mut recording = open_sample(name);
        for device in &mut recording.devices {
            device.id.kind = DeviceKind::Xpu;
        }
        for found in diagnoses(&recording) {
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
