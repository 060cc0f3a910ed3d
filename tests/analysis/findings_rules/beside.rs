//! Memory outside the allocator: pinned host memory, and the driver's own pool.

use super::{said, silent};
use crate::tape::{GIB, MIB, Tape};
use vramscope_core::model::{AllocConf, DeviceKind, StackId};

#[test]
fn pinned_memory_rounded_up() {
    let run = |asked: u64| {
        let mut t = Tape::new();
        t.device.id.kind = DeviceKind::Host;
        t.device.id.index = -1;
        for _ in 0..3 {
            let segment = t.segment(512 * MIB);
            t.place(segment, 0, asked, StackId::NONE);
        }
        t.finish()
    };
    let found = said(&run(300 * MIB), "pinned_rounding");
    assert_eq!(found.bytes, 3 * 212 * MIB);
    // Reported once: rounding on the host is not a setting of the card's allocator.
    silent(&run(300 * MIB), "rounding");
    silent(&run(500 * MIB), "pinned_rounding");
}

#[test]
fn more_is_pinned_on_the_host_than_the_card_holds() {
    let run = |pinned: u64| {
        let mut host = Tape::new();
        host.device.id.kind = DeviceKind::Host;
        host.device.id.index = -1;
        let segment = host.segment(pinned);
        host.place(segment, 0, pinned, StackId::NONE);
        let mut card = Tape::new();
        card.alloc(512 * MIB, StackId::NONE);
        let mut recording = card.finish();
        recording.devices.extend(host.finish().devices);
        recording
    };
    assert_eq!(said(&run(2 * GIB), "pinned_host").bytes, 2 * GIB);
    silent(&run(256 * MIB), "pinned_host");
}

#[test]
fn a_pool_of_the_driver_that_keeps_what_was_freed() {
    let run = |backend: &str| {
        let mut t = Tape::new();
        t.device.settings.conf = AllocConf::parse(backend).unwrap();
        let work = t.stack(&[("/home/me/model.py", "forward")]);
        let (h, _) = (t.alloc(400 * MIB, work), t.alloc(100 * MIB, work));
        t.free(h);
        t.finish()
    };
    assert_eq!(said(&run("backend:cudaMallocAsync"), "pool_retention").bytes, 400 * MIB);
    silent(&run("backend:native"), "pool_retention");
}
