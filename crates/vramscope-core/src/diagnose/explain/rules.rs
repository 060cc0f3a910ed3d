//! Why memory was refused, as rows: verdict, condition (`condition`), sentence (`words`). Of each table the first row decides that holds and
//! whose sentence can be said.

use super::Verdict;
use super::Verdict::{Cap, Capacity, Contention, Fragmentation, NonPytorch, TooLarge, Unknown};

/// Where it holds, its verdict and sentence are the message's.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) verdict: Verdict,
    pub(super) when: &'static str,
    pub(super) says: &'static str,
    /// Doubts a verdict that no rounding put in doubt so far.
    pub(super) doubt: Option<&'static str>,
    /// Certain, whatever comparisons before it left open.
    pub(super) is_sure: bool,
}

const fn rule(verdict: Verdict, when: &'static str, says: &'static str) -> Rule {
    Rule { verdict, when, says, doubt: None, is_sure: false }
}

impl Rule {
    const fn doubt(mut self, why: &'static str) -> Self {
        self.doubt = Some(why);
        self
    }

    const fn sure(mut self) -> Self {
        self.is_sure = true;
        self
    }
}

const MISSING: &str = "the request is in the part of the message that is missing";
const UNDER_LIMIT: &str = "This process may hold {limit} and has {allocated} in tensors; what it requested is not in the text.";
const MPS_HOLDS: &str = "This process holds {held} of the {limit} it may hold; what it requested is not in the text.{? Most of it, {mostly other}, is \
    outside PyTorch's tensors: other allocations of this process on the GPU.}";
const MPS_EXCEEDS: &str = "This process holds {held} and requested {requested} more, which exceeds its limit of {limit} (the high watermark).{? Most of \
    it, {mostly other}, is outside PyTorch's tensors: other allocations of this process on the GPU.}";
const AT_START: &str = "TensorFlow takes what is free on the card when it starts, and that was only {at start}{? of the card's {capacity}}: something else \
    held the card. {requested} was requested.";
const ONLY: &str =
    "{requested} was requested and only {free}{? of the device's {capacity}} is free{? while {program} holds {allocated}}.";
const TOO_LARGE: &str =
    "{requested} was requested at once, and the whole card has {capacity}: the request has to become smaller.";
const NOT_READ: &str = "a part of the message was not read";
/// Only what is free in the pool and on the stream of the request can be joined with what the card has.
const WHICH_HOLES: &str = "which of these holes the request's pool and stream may use is unknown";
const SOMETHING_ELSE: &str = "{requested} was requested and {free} is free on the card, so something else refused it: another process that gave memory \
    back since, or a limit of the system, container or driver.{?[device_free < capacity / 20] The card is nearly full: PyTorch holds {held} of \
    {capacity}.}{? {rest of card}}";
const NON_PYTORCH: &str = "This process holds {outside_pytorch} outside PyTorch's allocator, more than CUDA and its libraries usually need. The \
    requested {requested} would fit into the difference.";
const HOLES: &str = "PyTorch has {unallocated} free inside its own memory, but scattered; no single gap fits {requested}; the card has {free} free.{? {rest of card}}";
const CUT_LIMIT: &str = "This process may hold {limit}{?, has {held} in tensors} and requested {requested} more{? although the card has {free} free}.";
const CUT_OTHERS: &str = "{who}{?; this process has {process}}. {requested} was requested and {free} is free.";
const LIMIT: &str = "This process may hold {limit}, holds {held} and requested {requested} more{? although the card has {free} free}.{?[0 < unallocated, \
    left + holes >= requested] Together with the {unallocated} in holes, {share} of what it holds, it would be enough, but a hole cannot be joined with \
    memory that PyTorch has not reserved yet.}";
const HOLDS: &str = "PyTorch holds {held} of {capacity} and requested {requested} more.";

/// The message does not tell what was requested.
#[rustfmt::skip]
pub(super) const NO_REQUEST: &[Rule] = &[
    rule(Cap, "allocated >= limit - limit / 10", UNDER_LIMIT).doubt(MISSING),
    rule(Unknown, "", UNDER_LIMIT).doubt(MISSING),
    rule(Contention, "not pytorch, free <= capacity / 5, most others >= capacity / 2",
        "{who}, as nvidia-smi in the text shows, and {free} was free. What was requested is not in the text.")
        .doubt("the table does not say whether one of these is the process that failed"),
    rule(Unknown, "pytorch",
        "PyTorch held {reserved} of the device. This part of the message does not say how much was requested, so it does not say why that \
         failed; paste the whole of it."),
    rule(Unknown, "figures",
        "The device ran out of memory{? in {around}}.{? {free} of {capacity} was free.| {free} was free.} The requested size could not be \
         read, so the reason is unknown."),
    rule(Unknown, "", "The device ran out of memory{? in {around}}{?[capturing] while a CUDA graph was captured}; the message has no figures, so the reason is unknown."),
];

/// PyTorch's warning that the driver had no memory to give: it gives back its cache and asks again.
#[rustfmt::skip]
pub(super) const RETRIED: &[Rule] = &[
    rule(TooLarge, "capacity < requested", TOO_LARGE),
    rule(Unknown, "",
        "PyTorch warns that the driver did not give it {?{requested}|what it requested}{?; {free} of the card's {capacity} was free}. It then \
         gives back its cache and asks again, so this alone is no failure. If that fails too, an error follows; look at that one."),
];

/// MPS has one limit for everything the process holds.
#[rustfmt::skip]
pub(super) const MPS: &[Rule] = &[
    rule(Cap, "not requested told, held >= limit - limit / 10", MPS_HOLDS).doubt(MISSING),
    rule(Unknown, "not requested told", MPS_HOLDS).doubt(MISSING),
    rule(TooLarge, "requested > limit", "{requested} was requested, more than the {limit} this process may ever hold."),
    rule(Cap, "held + requested >? limit", MPS_EXCEEDS),
    rule(Unknown, "", "The figures fit below the limit, so the message does not say why it failed."),
];

/// vLLM takes a share of the whole card when it starts, and looks first whether that is free.
#[rustfmt::skip]
pub(super) const VLLM: &[Rule] = &[
    rule(Capacity, "tokens",
        "One input of {?{wanted} tokens|the longest length} {?needs {requested} of KV cache, and vLLM's share of the card leaves {limit} beside \
         the weights and the activations|needs {requested} of KV cache, more than vLLM's share of the card leaves|does not fit into the KV \
         cache that vLLM's share of the card leaves}.{? About {fits} tokens would fit.| About {part} of that length would fit.}"),
    rule(Contention, "",
        "vLLM is to take {requested} of the card's {capacity}, and {free} is free: {used} is held by other programs, or by one that did not end \
         cleanly."),
    rule(Capacity, "",
        "{?[activations told]vLLM's share of the card{?, {limit},} is used up before the KV cache: the weights take {weights}{?, {other_allocations} is \
         outside PyTorch} and the activations of its largest batch {activations}.|The model{? ({weights})}, and the activations of its longest input, \
         take all of vLLM's share of the card: nothing is left for the KV cache.}{? {short} is missing.}"),
];

/// What another program's own figures allow to say.
#[rustfmt::skip]
pub(super) const NEIGHBOUR: &[Rule] = &[
    rule(Unknown, "cpu", "{program} could not get {?{requested}|what it requested} of the machine's memory: that ran out, not the GPU's."),
    rule(Unknown, "warning",
        "{program} could not get {?{requested}|what it requested} at once. It says that this is no failure and goes on in another way, which may \
         be slower. If the program stopped, its error stands further down."),
    rule(Unknown, "not requested told",
        "{program} ran out of memory; {?{free} of {capacity} was free, and what it requested is not in the message|it requested a tensor of \
         {elements} elements, {as float} if they are float32{?; its pool held {allocated} of at most {limit}}, and the message does not say more|its \
         pool held {allocated} of at most {limit}, and what it requested is not in the message|the message has no figures, so the reason is unknown}."),
    // More than the memory of any device.
    rule(TooLarge, "not capacity told, requested >= 16384 GiB",
        "{program} asked for {requested} at once, more than any device has. That size is wrong, or the device was misread."),
    rule(TooLarge, "tpu, requested > capacity",
        "The compiled program needs {requested}, and the TPU has {capacity}. Make it smaller or spread it over more chips."),
    rule(TooLarge, "requested > capacity", "{program} needs {requested} at once, and the device has {capacity}: the request has to become smaller, or be spread over several devices."),
    rule(Contention, "capacity told", AT_START),
    rule(Contention, "at start < 512 MiB", AT_START),
    rule(Contention, "", AT_START).doubt("a limit that the program set itself would read the same"),
    rule(Cap, "allocated + requested > limit", "{program}'s pool holds {allocated}, {requested} more was requested, and its limit is {limit}."),
    rule(Unknown, "not free told",
        "{program} could not get {requested}{? while it holds {allocated}}; the message does not say how much was free or who held the rest."),
    rule(Fragmentation, "tpu, requested <= free",
        "{requested} was requested and {free} is free{? while {program} holds {allocated}}, but no single piece is large enough."),
    // A GPU's driver joins scattered pages.
    rule(Unknown, "free >= requested",
        "{requested} was requested and {free}{? of the device's {capacity}} was free{? while {program} holds {allocated}}, so something else \
         refused it: another program that took memory since, or a limit of the system, container or driver."),
    rule(Capacity, "allocated told, requested > free", ONLY),
    rule(Capacity, "requested > free", ONLY).doubt("the message does not say whether this program or others hold the rest"),
];

/// PyTorch on a GPU: the classifier of the diagnoses reference (E1) as far as the figures of a message go. Where it has a limit it judges as
/// the autopsy of a snapshot does (`diagnose::oom`).
#[rustfmt::skip]
pub(super) const DEVICE: &[Rule] = &[
    rule(Unknown, "pool allocator",
        "The custom allocator behind this MemPool returned nothing for {requested}: it refused, not PyTorch's own allocator."),
    rule(Cap, "segment reserve",
        "{requested} was requested at once, more than the address space of one expandable segment. Memory is not what ran out."),
    rule(TooLarge, "requested > capacity - usual outside", TOO_LARGE),
    rule(Cap, "rejected",
        "PyTorch refused {requested} beforehand because this process may not exceed its memory fraction{? of {limit}}{?; it has {allocated} \
         allocated}."),
    rule(Fragmentation, "pools hold it",
        "{requested} was requested. {private_pool} lies free in private pools (CUDA graphs, MemPool), where only they may use it; live tensors \
         take {live}."),
];

/// Figures that the form always has and that a text lacks are not 0: of such a text only what does not rest on them is said.
#[rustfmt::skip]
pub(super) const CUT: &[Rule] = &[
    // Used if the text breaks off after the limit: what is reserved is at least what is allocated.
    rule(Cap, "limit decides, held + requested > limit", CUT_LIMIT),
    rule(Cap, "limit decides", CUT_LIMIT).doubt("what PyTorch holds in all is in the part of the message that is missing"),
    // Names the process that holds most of the card, even if the text lacks other figures.
    rule(Contention, "not unallocated told, process told, free < requested, most others >= capacity / 4", CUT_OTHERS),
    rule(Contention, "not unallocated told, several processes, free < requested, most others >= capacity / 4", CUT_OTHERS)
        .doubt("in a container this process may be one of those listed, under another number"),
    rule(Unknown, "no other figure", "{requested} was requested. The text has no other figure of the message, so the reason is unknown."),
    rule(Capacity, "unallocated told, requested + live > capacity",
        "Live tensors take {live} of the card's {capacity}, and {requested} more was requested."),
    rule(Unknown, "unallocated told, requested <= free", SOMETHING_ELSE).doubt(NOT_READ),
    rule(Fragmentation, "0 < unallocated, not spilled, requested <= own", HOLES).doubt(NOT_READ),
    rule(Unknown, "",
        "{requested} was requested{? and {free} is free}; {?PyTorch has {allocated} of the card's {capacity} in tensors; |this process has \
         {process} of the card's {capacity}, PyTorch's share of it unknown; |[several processes]{used} \
         of the card is in use, by {others} among others; |{used} of the card is in use, owner unknown; }the text lacks {unread}, so the reason is unknown.").sure(),
];

#[rustfmt::skip]
pub(super) const WHOLE: &[Rule] = &[
    rule(Fragmentation, "limit refused, holes >= requested, requested <= holes",
        "PyTorch has {unallocated} free inside its own memory, but scattered; no single gap fits {requested}. It may hold {limit} and holds {held}."),
    rule(Cap, "limit refused, tensor may fit", LIMIT)
        .doubt("the tensor may be smaller than the segment that was requested, and then the holes together would have held it"),
    rule(Cap, "limit refused", LIMIT),
    // Intel's driver allocates no single block above this size, unless it is configured to.
    rule(TooLarge, "xpu, requested >= 4 GiB, room >= requested",
        "{requested} was requested in one block while {?{free} is free|PyTorch holds {held} of the card's {capacity}}: Intel's driver usually \
         allows no single block of 4 GiB or more.")
        .doubt("another program may hold the card, or a limit of the system may have refused it"),
    rule(Capacity, "not free told, 0 < unallocated, capacity >= requested + held - holes, requested + held > capacity", HOLDS)
        .doubt("how much is free is unknown: with the holes it may have been enough"),
    rule(Capacity, "not free told, requested + held > capacity", HOLDS),
    rule(Unknown, "not free told",
        "{requested} was requested; the message does not say how much was free.{? PyTorch holds {held} of the card's {capacity}.}").sure(),
    rule(Capacity, "requested <= free, free < capacity / 20, held >= capacity - capacity / 10",
        "The card is nearly full: PyTorch holds {held} of its {capacity}. {requested} was requested and {free} is free.{? {rest of card}}")
        .doubt("as much was free as was requested, so something took memory between the request and the message, or what is free lies in pieces"),
    rule(Capacity, "requested <= free, free < capacity / 50",
        "The card is full: {free} of its {capacity} is free, which is not enough for the segment around {requested}; PyTorch holds {held}.{? {rest of card}}")
        .doubt("as much was free as was requested, so something may have taken memory between the request and the message"),
    rule(Unknown, "requested <= free", SOMETHING_ELSE),
    // Who holds much of the card outweighs holes that would be just enough in sum.
    rule(Contention, "process told, 0 < unallocated, most others >= capacity / 4, most others / 2 >= holes, not limit short, \
        requested <= free + most others",
        "{who}; this process has {process}{?, {own outside} of that outside PyTorch}. {requested} was requested and {free} is free on the card."),
    // The message lists no process, but no library of one process takes more than half of a card.
    rule(Contention, "not process told, not other_processes told, capacity / 2 < unattributed, held < unattributed / 2, not limit short",
        "{unattributed} of the card's {capacity} is held outside PyTorch, very likely by other processes; PyTorch holds {held}. {requested} \
         was requested and {free} is free.").doubt("the message lists no process: it may be this one's, outside PyTorch"),
    // More outside PyTorch than inside it is the reason, even where the holes would be just enough in sum.
    rule(NonPytorch, "0 < unallocated, 2 GiB < outside_pytorch, held < outside_pytorch, not limit short, requested <= own + outside_pytorch - 512 MiB",
        NON_PYTORCH),
    rule(Capacity, "few holes, 0 < unallocated, free < capacity / 10, not spilled, requested <= own",
        "The card is nearly full: live tensors take {live} of {capacity}. {requested} was requested, {free} is free, and another {unallocated} \
         lies scattered inside PyTorch's own memory ({share} of it).{?[0 < other_processes, requested <= free + other_processes] Other processes hold \
         {other_processes} of the card; without them it would fit.}{? {rest of card}}").doubt("joined together the holes might have held this request"),
    rule(Fragmentation, "0 < unallocated, not spilled, holes >= requested, requested <= own, requested <= holes", HOLES),
    rule(Fragmentation, "0 < unallocated, not spilled, requested <= own",
        "PyTorch has {unallocated} free inside its own memory and the card has {free} free. Together that is enough for {requested}, but they \
         cannot be joined.{? {rest of card}}").doubt(WHICH_HOLES),
    rule(Contention, "0 < other_processes, not small beside a server, requested <= own + other_processes",
        "{requested} was requested and {own} is free{?[0 < unallocated], holes included}, while other processes hold {other_processes} of the card's \
         {capacity}. Without them it would \
         fit."),
    rule(NonPytorch, "2 GiB < outside_pytorch, requested <= own + outside_pytorch - 512 MiB", NON_PYTORCH),
    rule(Contention, "process told, 2 GiB < unattributed, own + unattributed >= requested",
        "{unattributed} of the card belongs to no listed process: one of another container or user, or one that died and was not cleaned up. \
         Without it the requested {requested} would fit."),
    // The driver's pool keeps what tensors gave back, and its message has no figure of that: it may be all of the rest.
    rule(Unknown, "async, not process told, 2 GiB < rest, own + rest - 512 MiB >= requested",
        "{requested} was requested and {own} is free{?[0 < unallocated], holes included}. {rest} of the card is neither free nor in tensors, and the \
         message does not say whose: freed \
         memory that the driver's pool keeps, other processes, or this one's context and libraries.{?[capacity >= requested + held] The tensors \
         and the request together would fit on the card.}").sure(),
    rule(Unknown, "not process told, 2 GiB < rest, own + rest - 512 MiB >= requested",
        "{requested} was requested and {own} is free{?[0 < unallocated], holes included}. {rest} of the card is held outside PyTorch, by other processes \
         or by libraries of this one: \
         the message does not say which.").sure(),
    rule(Capacity, "left < free",
        "{requested} was requested; {free} is free on the card{?, and {unallocated} in holes of what this process holds}."),
    rule(Unknown, "not held told", "{requested} was requested and {own} is free{?[0 < unallocated], holes included}. Who holds the rest is unknown.").sure(),
    rule(Capacity, "spilled",
        "{requested} was requested on a full card: PyTorch holds {held}, more than the card's {capacity}. Windows' driver has moved the rest to the \
         machine's memory, which is slow, and refused more.").sure(),
    rule(Capacity, "",
        "{requested} was requested and only {own} is left, counting the holes inside PyTorch's own memory. Live tensors take {live} of {capacity}, and \
         {deciding} is {?[process told]this process's own outside PyTorch, its context and libraries|outside PyTorch, in other processes or in this \
         one's context and libraries}; the request would fit without that."),
    rule(Capacity, "live / 3 < capacity / 4",
        "{requested} was requested at once, and only {own} is {?[async]free beside what the driver's pool keeps, which the message does not \
         tell|left, counting the holes inside PyTorch's own memory}: live tensors take {live} of {capacity}."),
    rule(Capacity, "",
        "Live tensors fill the card: they take {live} of {capacity}. {requested} was requested, and only {own} is {?[async]free beside what the \
         driver's pool keeps, which the message does not tell|left, counting the holes inside PyTorch's own memory}."),
];

/// The limit, where it would have refused what the card could not give either.
pub(super) const LIMIT_AS_WELL: &str =
    "{?[pytorch's, limit short, free < requested] Its limit of {limit} leaves {left} and would have refused as well.}";

#[cfg(test)]
pub(super) const ALL: [&[Rule]; 8] = [NO_REQUEST, RETRIED, MPS, VLLM, NEIGHBOUR, DEVICE, CUT, WHOLE];
