//! What makes the peak.

use rustc_hash::FxHashMap;

use super::shared::{FOREACH, LOSS, REDUCER, VAE};
use crate::analysis::findings::{Class, Evidence, Finding, Patient, Place};
use crate::analysis::roles::Role;
use crate::analysis::{BlockAt, LifetimeId, NO_EVENT, Quantity, own_frame};
use crate::model::{BlockState, StackId};
use crate::units::{Bytes, GIBIBYTE, MEBIBYTE, count, counted};

/// What one line of the program allocated over the recording.
struct AllocatingLine {
    number: u64,
    bytes: u64,
    /// The different sizes, at most 10,000 of them.
    sizes: rustc_hash::FxHashSet<u64>,
    /// One of its stacks.
    stack: StackId,
}

/// One place that allocates again and again in growing sizes: a buffer that is copied to grow.
pub(super) fn copies(p: &Patient<'_>) -> Vec<Finding> {
    let lifetimes = &p.tables.lifetimes;
    let total = lifetimes.len() - lifetimes.initial_count();
    if total < 500 {
        return Vec::new();
    }
    let mut places: FxHashMap<Option<crate::model::FrameId>, AllocatingLine> = FxHashMap::default();
    let mut all = 0u64;
    for i in lifetimes.initial_count() as u32..lifetimes.len() as u32 {
        let id = LifetimeId(i);
        let stack = lifetimes.stack(p.device, id);
        let size = lifetimes.requested(p.device, id);
        all += size;
        let place = places.entry(own_frame(&p.recording.stacks, stack)).or_insert_with(|| AllocatingLine {
            number: 0,
            bytes: 0,
            sizes: rustc_hash::FxHashSet::default(),
            stack,
        });
        place.number += 1;
        place.bytes += size;
        if place.sizes.len() < 10_000 {
            place.sizes.insert(size);
        }
    }
    let peak = p.tables.curves.peak(Quantity::Requested).0;
    let Some((Some(line), top)) = places.into_iter().max_by_key(|(_, x)| x.bytes) else { return Vec::new() };
    if top.bytes * 2 < all || top.sizes.len() < 50 || top.bytes < peak.saturating_mul(8) {
        return Vec::new();
    }
    let is_there = |id: LifetimeId| own_frame(&p.recording.stacks, lifetimes.stack(p.device, id)) == Some(line);
    let ids: Vec<LifetimeId> =
        (lifetimes.initial_count() as u32..lifetimes.len() as u32).map(LifetimeId).filter(|&id| is_there(id)).collect();
    let copied = copied(p, &ids);
    if copied * 5 < top.number * 4 {
        return Vec::new();
    }
    // Written in place, the copy that is being made would not stand beside the old one.
    let at_peak = p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive && is_there(b.lifetime));
    let copy = at_peak.map(|b| b.size).max().unwrap_or(0);
    vec![Finding {
        rule: "grows_by_copy",
        class: Class::Peak,
        title: "Every step copies to grow".to_owned(),
        bytes: copy,
        sentence: format!(
            "{} allocated {} times in {} sizes, {} in all for a peak of {}: {} of these are a copy of a smaller block from there that goes next. Preallocate the buffer and write into it; the peak then loses one copy, up to {}.",
            p.names.of_stack(top.stack),
            count(top.number),
            count(top.sizes.len() as u64),
            Bytes(top.bytes),
            Bytes(peak),
            count(copied),
            Bytes(copy),
        ),
        evidence: vec![
            Evidence::text("allocations", count(top.number)),
            Evidence::text("grown by copy", count(copied)),
            Evidence::text("sizes", count(top.sizes.len() as u64)),
            Evidence::bytes("allocated in all", top.bytes),
            Evidence::bytes("peak", peak),
        ],
        place: Place { event: Some(p.peak_event), stack: Some(top.stack), ..Place::default() },
        remedy: Some("cache[:, :, n : n + k] = new".to_owned()),
        advice: "Make the cache once at its final length, torch.empty(...), and write each new part into it; Transformers does that with cache_implementation=\"static\". torch.cat holds the old and the new copy at once and leaves a hole of a new size behind each time.".to_owned(),
        verify: "The number of sizes falls to a few.".to_owned(),
    }]
}

/// How many of these allocations are likely grown copies: when they were made, the largest live one from there that is smaller,
/// by half at most, is freed before they are. Activations go the other way round: last made, first freed. O(n log n).
fn copied(p: &Patient<'_>, ids: &[LifetimeId]) -> u64 {
    let lifetimes = &p.tables.lifetimes;
    let size = |id: LifetimeId| lifetimes.requested(p.device, id);
    let freed = |id: LifetimeId| lifetimes.free_requested(id);
    let mut deaths: Vec<LifetimeId> = ids.to_vec();
    deaths.sort_by_key(|&id| freed(id));
    let mut deaths = deaths.into_iter().peekable();
    let mut live = std::collections::BTreeSet::new();
    let mut copied = 0;
    for &id in ids {
        while let Some(gone) = deaths.next_if(|&d| freed(d) < lifetimes.born(id)) {
            live.remove(&(size(gone), gone));
        }
        let source = live.range(..(size(id), LifetimeId(0))).next_back();
        copied += u64::from(source.is_some_and(|&(bytes, source)| bytes * 2 >= size(id) && freed(source) < freed(id)));
        live.insert((size(id), id));
    }
    copied
}

/// One short-lived block that makes the peak.
pub(super) fn spike(p: &Patient<'_>) -> Vec<Finding> {
    let (peak, at) = p.tables.curves.peak(Quantity::Active);
    let Some(block) = p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive).max_by_key(|b| b.size) else {
        return Vec::new();
    };
    let life = p.tables.lifetimes.get(p.device, block.lifetime);
    let Some(life) = life.filter(|l| l.born != NO_EVENT && l.gone != NO_EVENT) else { return Vec::new() };
    let lived = life.gone - life.born;
    let n = p.device.events.len() as u32;
    let typical = if p.steps.is_empty() { n } else { n / p.steps.len() as u32 };
    if block.size < 256 * MEBIBYTE || block.size * 3 < peak || lived * 10 > typical {
        return Vec::new();
    }
    vec![Finding {
        rule: "spike",
        class: Class::Peak,
        title: "One block makes the peak".to_owned(),
        bytes: block.size,
        sentence: format!(
            "{} of the {} at the peak is one block from {}, live for {} only.",
            Bytes(block.size),
            Bytes(peak),
            p.names.of_stack(life.stack),
            counted(u64::from(lived), "event", "events")
        ),
        evidence: vec![Evidence::bytes("the block", block.size), Evidence::bytes("peak active", peak)],
        place: Place {
            event: Some(at),
            stack: life.stack.is_some().then_some(life.stack),
            lifetimes: vec![life.id],
            range: None,
        },
        remedy: None,
        advice: "Compute it in chunks. For logits over a large vocabulary use a fused linear cross entropy.".to_owned(),
        verify: "The peak falls by about the block's size.".to_owned(),
    }]
}

/// Blocks at the peak whose stack has one of these marks, largest first, and their bytes.
fn marked<'a>(p: &'a Patient<'_>, mark: u8) -> (Vec<&'a BlockAt>, u64) {
    let held = p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive);
    let mut found: Vec<&BlockAt> = held.filter(|b| p.flags_of(b.lifetime) & mark != 0).collect();
    found.sort_by_key(|b| std::cmp::Reverse((b.size, b.address)));
    let bytes = found.iter().map(|b| b.size).sum();
    (found, bytes)
}

fn there(p: &Patient<'_>, blocks: &[&BlockAt]) -> Place {
    Place {
        event: (p.peak_event != NO_EVENT).then_some(p.peak_event),
        stack: blocks.first().and_then(|b| p.stack_of(b.lifetime)),
        lifetimes: blocks.iter().take(1000).map(|b| b.lifetime).collect(),
        range: None,
    }
}

/// The loss over a large vocabulary: logits, their copy in single precision, and the softmax of it.
pub(super) fn logits(p: &Patient<'_>) -> Vec<Finding> {
    let peak = p.tables.curves.peak(Quantity::Active).0;
    let (blocks, bytes) = marked(p, LOSS);
    if bytes < 512 * MEBIBYTE || bytes.saturating_mul(5) < peak {
        return Vec::new();
    }
    vec![
        Finding::new("logits", Class::Peak, "The loss makes the peak", bytes)
            .says(format!(
                "{} of the {} at the peak were made computing the loss at {}: batch times sequence times vocabulary, more than once.",
                Bytes(bytes),
                Bytes(peak),
                p.names.of_stack(p.tables.lifetimes.stack(p.device, blocks[0].lifetime))
            ))
            .bytes_of("made by the loss", bytes)
            .bytes_of("largest of them", blocks[0].size)
            .bytes_of("peak", peak)
            .at(there(p, &blocks))
            .advice("Use a fused linear cross entropy (Liger, Cut Cross Entropy), compute the loss in chunks, keep logits only where they are needed (logits_to_keep), and do not call .float() on all of them.")
            .check("The peak falls by one to three times the largest block."),
    ]
}

/// The decoder of an image model, on the whole image at once.
pub(super) fn image_decoder(p: &Patient<'_>) -> Vec<Finding> {
    let (blocks, bytes) = marked(p, VAE);
    if blocks.first().is_none_or(|b| b.size < GIBIBYTE) {
        return Vec::new();
    }
    let peak = p.tables.curves.peak(Quantity::Active).0;
    vec![
        Finding::new("image_decoder", Class::Peak, "Decoding the image makes the peak", bytes)
            .says(format!(
                "{} of the {} at the peak are held by the decoder that turns latents into the image, the largest block {}.",
                Bytes(bytes),
                Bytes(peak),
                Bytes(blocks[0].size)
            ))
            .bytes_of("held by the decoder", bytes)
            .bytes_of("largest block", blocks[0].size)
            .bytes_of("peak", peak)
            .at(there(p, &blocks))
            .remedy("pipe.enable_vae_tiling()")
            .advice("Decode in tiles, and one image at a time: enable_vae_slicing(). In ComfyUI use VAE Decode (Tiled).")
            .check("The peak falls to that of the denoising steps."),
    ]
}

/// Temporaries as large as the parameters, inside the optimizer's step.
pub(super) fn foreach_optimizer(p: &Patient<'_>) -> Vec<Finding> {
    let peak = p.tables.curves.peak(Quantity::Active).0;
    let (blocks, _) = marked(p, FOREACH);
    // State that stays is not the spike.
    let steps = p.steps.len() as u32;
    let n = p.device.events.len() as u32;
    let step = n.checked_div(steps).unwrap_or(n / 4);
    let blocks: Vec<&BlockAt> = blocks
        .into_iter()
        .filter(|b| {
            let (born, gone) = (p.tables.lifetimes.born(b.lifetime), p.tables.lifetimes.gone(b.lifetime));
            born != NO_EVENT && gone != NO_EVENT && gone - born < step
        })
        .collect();
    let bytes: u64 = blocks.iter().map(|b| b.size).sum();
    if bytes < 256 * MEBIBYTE || bytes.saturating_mul(10) < peak {
        return Vec::new();
    }
    vec![
        Finding::new("foreach_optimizer", Class::Peak, "The optimizer's step makes the peak", bytes)
            .says(format!(
                "{} of the {} at the peak are temporaries of the optimizer, which works on all parameters at once and is done with them within the step.",
                Bytes(bytes),
                Bytes(peak)
            ))
            .bytes_of("temporaries", bytes)
            .shows("blocks", count(blocks.len() as u64))
            .bytes_of("peak", peak)
            .at(there(p, &blocks))
            .remedy("torch.optim.AdamW(model.parameters(), fused=True)")
            .advice("fused=True updates in one kernel, foreach=False one parameter after the other: neither needs the temporaries.")
            .check("The spike inside each optimizer step is gone."),
    ]
}

/// DDP's buckets beside the gradients they are copied from.
pub(super) fn gradient_buckets(p: &Patient<'_>) -> Vec<Finding> {
    let peak = p.tables.curves.peak(Quantity::Active).0;
    let (blocks, bytes) = marked(p, REDUCER);
    let gradients: u64 = {
        let held = p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive);
        held.filter(|b| p.roles.of(b.lifetime) == Role::Gradients).map(|b| b.size).sum()
    };
    if bytes < 256 * MEBIBYTE || bytes.saturating_mul(20) < peak || gradients.saturating_mul(2) < bytes {
        return Vec::new();
    }
    vec![
        Finding::new("gradient_buckets", Class::Peak, "Gradients are held twice", bytes)
            .says(format!(
                "{} of DDP hold {}, beside {} of gradients that are copied into them.",
                counted(blocks.len() as u64, "bucket", "buckets"),
                Bytes(bytes),
                Bytes(gradients)
            ))
            .bytes_of("in buckets", bytes)
            .bytes_of("in gradients", gradients)
            .bytes_of("peak", peak)
            .at(there(p, &blocks))
            .remedy("DistributedDataParallel(model, gradient_as_bucket_view=True)")
            .advice("Gradients are then views of the buckets. Call zero_grad(set_to_none=True), the default.")
            .check("After the first iteration the peak falls by the size of the gradients."),
    ]
}

/// Bytes of a role at the peak.
fn of_role(p: &Patient<'_>, role: Role) -> (Vec<LifetimeId>, u64) {
    let held = p.at_peak.blocks.iter().filter(|b| b.state != BlockState::Inactive && p.roles.of(b.lifetime) == role);
    let mut bytes = 0;
    let ids = held.map(|b| {
        bytes += b.size;
        b.lifetime
    });
    (ids.collect(), bytes)
}

/// What the optimizer keeps, where memory is short.
pub(super) fn optimizer_state(p: &Patient<'_>) -> Vec<Finding> {
    let peak = p.tables.curves.peak(Quantity::Active).0;
    let (ids, bytes) = of_role(p, Role::OptimizerState);
    if !p.is_short() || bytes.saturating_mul(4) < peak || bytes < 64 * MEBIBYTE {
        return Vec::new();
    }
    let (_, parameters) = of_role(p, Role::Weights);
    vec![
        Finding::new("optimizer_state", Class::Peak, "Optimizer state takes a large share", bytes)
            .says(format!(
                "{} of the {} at the peak is what the optimizer keeps between steps, beside {} of parameters. It comes with the first step and stays: that is normal, and can be made smaller.",
                Bytes(bytes),
                Bytes(peak),
                Bytes(parameters)
            ))
            .bytes_of("optimizer state", bytes)
            .bytes_of("parameters", parameters)
            .bytes_of("peak", peak)
            .at(Place {
                event: (p.peak_event != NO_EVENT).then_some(p.peak_event),
                stack: ids.first().and_then(|&id| p.stack_of(id)),
                lifetimes: ids.into_iter().take(1000).collect(),
                range: None,
            })
            .advice("An 8-bit Adam keeps a quarter; ZeRO-1 or FSDP divide it by the number of GPUs. foreach and fused do not change it.")
            .check("Optimizer state falls by that factor."),
    ]
}

/// Activations kept for the backward pass, where memory is short.
pub(super) fn activations(p: &Patient<'_>) -> Vec<Finding> {
    let peak = p.tables.curves.peak(Quantity::Active).0;
    let (ids, bytes) = of_role(p, Role::Activations);
    if !p.is_short() || bytes.saturating_mul(2) < peak || bytes < 64 * MEBIBYTE {
        return Vec::new();
    }
    let mut by_stack: FxHashMap<StackId, u64> = FxHashMap::default();
    for &id in &ids {
        *by_stack.entry(p.tables.lifetimes.stack(p.device, id)).or_default() += p.tables.lifetimes.block_size(id);
    }
    let most = by_stack.into_iter().max_by_key(|&(stack, bytes)| (bytes, stack));
    let (stack, most) = most.unwrap_or((StackId::NONE, 0));
    let part = if most == bytes { "all of them".to_owned() } else { format!("most of them, {},", Bytes(most)) };
    let origin = if stack.is_some() {
        format!(", {part} from {}", p.names.of_stack(stack))
    } else {
        "; their call stacks were not recorded".to_owned()
    };
    vec![
        Finding::new("activations", Class::Peak, "Activations make the peak", bytes)
            .says(format!(
                "{} of the {} at the peak are activations kept for the backward pass{origin}.",
                Bytes(bytes),
                Bytes(peak),
            ))
            .bytes_of("activations", bytes)
            .shows("of the peak", format!("{:.0} %", bytes as f64 / peak.max(1) as f64 * 100.0))
            .bytes_of("peak", peak)
            .at(Place {
                event: (p.peak_event != NO_EVENT).then_some(p.peak_event),
                stack: stack.is_some().then_some(stack),
                lifetimes: ids.into_iter().take(1000).collect(),
                range: None,
            })
            .remedy("torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)")
            .advice("Checkpoint the layers that hold most (gradient_checkpointing_enable() with use_cache=False in Transformers), or a smaller micro-batch with accumulation.")
            .check("The peak falls by most of the activations; a step takes about a third longer."),
    ]
}
