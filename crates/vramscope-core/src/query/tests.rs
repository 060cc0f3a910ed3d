//! Tests the language on a recording made by hand, and against brute force on random recordings.

use proptest::prelude::*;

use super::prepare::trailing_number;
use super::*;
use crate::model::{AllocConf, PoolId, StackId, StackTableBuilder, StreamId};
use crate::tables::{LifetimeId, NO_EVENT};
use crate::toy::{self, Toy};

fn recording() -> Recording {
    let mut b = StackTableBuilder::new();
    let frame = b.frame_of("attention", "/home/me/train.py", 71);
    let stack = b.stack(&[frame]);
    let mut d = DeviceRecording { streams: vec![0, 0x55], pools: vec![(0, 0), (0, 7)], ..DeviceRecording::default() };
    d.events.has_time = true;
    let mut push = |t: i64, action, address: u64, size: u64, stream: u16, pool: u16, stack| {
        d.events.push(1_000 + t, action, address, size, StreamId(stream), PoolId(pool), stack);
    };
    push(0, Action::SegmentAlloc, 0x7f1d_0000_0000, 20 << 20, 0, 0, StackId::NONE);
    push(10, Action::Alloc, 0x7f1d_0000_0000, 2 << 20, 0, 0, stack);
    push(20, Action::Alloc, 0x7f1d_0020_0000, 1 << 20, 1, 1, StackId::NONE);
    push(30, Action::FreeRequested, 0x7f1d_0000_0000, 2 << 20, 0, 0, stack);
    push(31, Action::FreeCompleted, 0x7f1d_0000_0000, 2 << 20, 0, 0, stack);
    push(40, Action::Oom, 900, 5 << 20, 0, 0, stack);
    Recording { devices: vec![d], stacks: b.finish(), ..Recording::default() }
}

fn find(text: &str) -> Vec<u32> {
    let recording = recording();
    let device = &recording.devices[0];
    let tables = DeviceTables::build(device, &Progress::new()).unwrap();
    Query::parse(text).unwrap().events(&Scope::new(&recording, device, &tables), &Progress::new()).unwrap()
}

/// The matching rows, with the cursor at event 2 and marker A at event 1.
fn rows(text: &str) -> Vec<u32> {
    let recording = recording();
    let device = &recording.devices[0];
    let tables = DeviceTables::build(device, &Progress::new()).unwrap();
    let scope = Scope { cursor: Some(2), markers: [Some(1), None], ..Scope::new(&recording, device, &tables) };
    Query::parse(text).unwrap().allocations(&scope, &Progress::new()).unwrap()
}

#[test]
fn terms_hold_for_the_events_they_name() {
    assert_eq!(find(""), [0, 1, 2, 3, 4, 5]);
    assert_eq!(find("alloc"), [1, 2]);
    assert_eq!(find("free"), [3, 4]);
    assert_eq!(find("action=free_completed"), [4]);
    assert_eq!(find("segment"), [0]);
    assert_eq!(find("alloc size>1MiB"), [1]);
    assert_eq!(find("alloc size>=1MiB"), [1, 2]);
    assert_eq!(find("size=1MiB..2MiB"), [1, 2, 3, 4]);
    assert_eq!(find("<2MiB"), [2]);
    assert_eq!(find("train.py"), [1, 3, 4, 5]);
    assert_eq!(find("train.py:71 oom"), [5]);
    assert_eq!(find("train.py:72"), Vec::<u32>::new());
    assert_eq!(find("stack~Attention alloc"), [1]);
    assert_eq!(find("-stack~attention"), [0, 2]);
    assert_eq!(find("stream=1"), [2]);
    assert_eq!(find("stream=0x55"), [2]);
    assert_eq!(find("pool=private"), [2]);
    assert_eq!(find("pool=graph -alloc"), Vec::<u32>::new());
    assert_eq!(find("time<=20us"), [0, 1, 2]);
    assert_eq!(find("event=1..3"), [1, 2, 3]);
    assert_eq!(find("4"), [4]);
}

#[test]
fn addresses_are_found_inside_blocks_and_by_their_first_digits() {
    assert_eq!(find("0x7f1d00200010"), [0, 2]);
    assert_eq!(find("alloc 0x7f1d002.."), [2]);
    assert_eq!(find("0x7f1d.."), [0, 1, 2, 3, 4], "the free bytes of an out-of-memory event are no address");
    assert_eq!(find("0x9.."), Vec::<u32>::new());
}

#[test]
fn blocks_live_at_an_instant() {
    assert_eq!(find("live@2 alloc"), [1, 2]);
    assert_eq!(find("live@end"), [2]);
    assert_eq!(find("live@oom"), [2]);
    assert_eq!(find("live@peak alloc"), [1, 2]);
}

#[test]
fn what_can_not_be_read_is_said_in_a_sentence() {
    for text in ["size>lots", "size>", "live@noon", "stream=x", "pool=deep", "action=cry", "0xzz..", "time>soon", "step=x"] {
        let sentence = Query::parse(text).unwrap_err().to_string();
        assert!(sentence.contains('"') && sentence.len() > 20, "{text}: {sentence}");
    }
    assert_eq!(Query::parse("\"two words\"").unwrap().any, [[(Term::Text("two words".to_owned()), false)]]);
    assert_eq!(trailing_number("ProfilerStep#12"), Some(12));
    assert_eq!(trailing_number("step"), None);
}

#[test]
fn allocations_are_found_by_what_they_are_and_when_they_lived() {
    // Row 0: 2 MiB allocated at event 1, freed at 4, with stack, default stream, pool. Row 1: 1 MiB at 2, stream 1, private pool.
    let both = vec![0, 1];
    assert_eq!(rows(""), both);
    assert_eq!(rows("size>1MiB"), [0]);
    assert_eq!(rows("block<=1MiB"), [1]);
    assert_eq!(rows("stack~attention"), [0]);
    assert_eq!(rows("stack=0"), [0]);
    assert_eq!(rows("not stack=0"), [1]);
    assert_eq!(rows("train.py:71"), [0]);
    assert_eq!(rows("stream=1 pool=private"), [1]);
    assert_eq!(rows("pool=0.7"), [1]);
    assert_eq!(rows("pool=large"), [0], "1 MiB is still a small request");
    assert_eq!(rows("gone"), [0]);
    assert_eq!(rows("kept"), [1]);
    assert_eq!(rows("alloc"), both);
    assert_eq!(rows("free"), [0]);
    assert_eq!(rows("born>1"), [1]);
    assert_eq!(rows("born>=a"), both);
    assert_eq!(rows("born>a"), [1]);
    assert_eq!(rows("born<20us"), [0]);
    assert_eq!(rows("gone<oom"), [0]);
    assert_eq!(rows("gone>=oom"), Vec::<u32>::new());
    assert_eq!(rows("age>3"), [1], "3 events against 4");
    assert_eq!(rows("age<=21us"), both, "21 us, and 20 us to the end");
    assert_eq!(rows("live@cursor"), both);
    assert_eq!(rows("live@end"), [1]);
    assert_eq!(rows("live@b"), Vec::<u32>::new(), "there is no marker B");
    assert_eq!(rows("4"), [0], "the event that ended it");
    assert_eq!(rows("event=2..9"), [1]);
    assert_eq!(rows("id=1"), [1]);
    assert_eq!(rows("0x7f1d00200010"), [1]);
    assert_eq!(rows("size>1MiB or stream=1"), both);
    assert_eq!(rows("size>1MiB stream=1 or kept"), [1]);
    assert_eq!(rows("role=other"), both);
    assert_eq!(rows("-role=grad and kept"), [1]);
}

/// Queries as users type them, and the rows that they match in the recording above.
#[test]
fn queries_are_read_as_they_are_typed() {
    let both = vec![0, 1];
    let none = Vec::<u32>::new();
    for (text, want) in [
        // The design's example: no allocation here is in a private pool and from attention.
        ("size>1MiB stack~attention step=3 live@peak pool=graph", &none),
        ("size>1MiB stack~attention live@peak", &vec![0]),
        ("age>3", &vec![1]),
        ("age > 3", &vec![1]),
        ("live @peak size>1MiB", &vec![0]),
        ("live@ peak", &both),
        ("freed=never", &vec![1]),
        ("gone=never", &vec![1]),
        ("gone!=never", &vec![0]),
        ("born=before", &none),
        ("-born=before", &both),
        ("stream=7", &none),
        ("stream=default", &vec![0]),
        ("stream!=0", &vec![1]),
        ("module~layer.3", &none),
        ("role=activations", &none),
        ("role!=activations", &both),
        ("function~attention", &vec![0]),
        ("file~train.py", &vec![0]),
        ("file~attention", &none),
        ("stack!~attention", &vec![1]),
        ("stack ~ \"attention\"", &vec![0]),
        ("\"attention\"", &vec![0]),
        ("size==2MiB", &vec![0]),
        ("size!=2MiB", &vec![1]),
        ("size >= 1024KiB", &both),
        ("size>=1MB", &both),
        ("size<0.002GB", &vec![1]),
        ("requested<=1m", &vec![1]),
        ("size=1048576", &vec![1]),
        ("size=1MiB..1.5MiB", &vec![1]),
        ("!kept", &vec![0]),
        ("not kept", &vec![0]),
        ("NOT kept OR stream=1", &both),
        ("kept or gone", &both),
        ("kept and stream=1", &vec![1]),
        ("lifetime<2s", &both),
        ("allocated<=1", &vec![0]),
        ("step=0", &none),
    ] {
        assert_eq!(&rows(text), want, "{text}");
    }
}

/// Steps are numbered as in the Steps lane.
#[test]
fn steps_are_counted_from_1() {
    let recording = recording();
    let device = &recording.devices[0];
    let tables = DeviceTables::build(device, &Progress::new()).unwrap();
    let steps = crate::anatomy::steps::Steps { bounds: vec![0, 2, 5, 6], ..Default::default() };
    let scope = Scope { steps: Some(&steps), ..Scope::new(&recording, device, &tables) };
    let of = |least, greatest| super::prepare::ranges_of_steps(&scope, Between { least, greatest });
    assert_eq!((of(1, 1), of(3, 3), of(2, 3)), (vec![(0, 2)], vec![(5, 6)], vec![(2, 6)]));
    assert_eq!((of(0, 0), of(4, 9), of(0, 9)), (vec![], vec![], vec![(0, 6)]));
    let why = Query::parse("step=4").unwrap().why_none(&scope, Asked::Allocations, &Progress::new()).unwrap().join(" ");
    assert!(why.contains("steps are 1 to 3"), "{why}");
}

/// Sizes and times as the program prints them, comparisons in either direction, all kinds of quotes.
#[test]
fn what_the_program_writes_can_be_typed() {
    for (text, same) in [
        ("size>1 MiB", "size>1MiB"),
        ("size>1\u{a0}MiB", "size>1MiB"),
        ("size > 1 MiB kept", "size>1MiB kept"),
        ("size>1,024 KiB", "size>1MiB"),
        (">1 MiB", ">1MiB"),
        ("size=1 MiB..2 MiB", "size=1MiB..2MiB"),
        ("size=1 MiB .. 2 MiB", "size=1MiB..2MiB"),
        ("size=1 .. 2MiB kept", "size=1..2MiB kept"),
        ("event=1.. 4", "event=1.. 4"),
        ("2MiB<size", "size>2MiB"),
        ("2 MiB < size", "size>2MiB"),
        ("2 MiB<=size", "size>=2MiB"),
        ("2MiB >= size", "size<=2MiB"),
        ("2MiB =block", "block=2MiB"),
        ("-1MiB<size", "-size>1MiB"),
        ("age>2 ms", "age>2ms"),
        ("age<2\u{a0}min\u{a0}05\u{a0}s", "age<125s"),
        ("stack~'attention'", "stack~attention"),
        ("stack~\u{201c}attention\u{201d}", "stack~attention"),
        ("'two words'", "\"two words\""),
        ("it's kept", "\"it's\" kept"),
    ] {
        let of = |text: &str| Query::parse(text).unwrap().any;
        assert_eq!(of(text), of(same), "{text}");
    }
    let two = Query::parse("27584 kept").unwrap().any;
    assert_eq!(two[0].len(), 2, "a number and a word are two terms");
}

#[test]
fn what_compares_nothing_is_refused() {
    for (text, says) in [
        ("size:8MiB", "write size=8MiB"),
        ("stack:Forward", "write stack~Forward"),
        ("live:peak", "write live@peak"),
        ("2MiB", "write size>2MiB"),
        ("step=3..1", "as in 1..3"),
        ("size=2MiB..1MiB", "lower end comes first"),
        ("1MiB<size<=2MiB", "write size>1MiB size<=2MiB"),
        ("2MiB<sise", "did you mean size"),
    ] {
        let error = Query::parse(text).unwrap_err();
        assert!(error.sentence.contains(says), "{text}: {}", error.sentence);
    }
    assert!(Query::parse("train.py:71").is_ok() && Query::parse("\"size:8\"").is_ok());
}

#[test]
fn a_query_that_holds_for_nothing_says_why() {
    let recording = recording();
    let device = &recording.devices[0];
    let tables = DeviceTables::build(device, &Progress::new()).unwrap();
    let scope = Scope { cursor: Some(2), ..Scope::new(&recording, device, &tables) };
    let why = |text: &str, asked| Query::parse(text).unwrap().why_none(&scope, asked, &Progress::new()).unwrap().join(" ");
    for (text, says) in [
        ("size>1GiB", "allocations requested 1 MiB to 2 MiB"),
        ("block<4KiB", "blocks have 1 MiB to 2 MiB"),
        ("live@99999999", "There is no event 99,999,999: the last is 5."),
        ("step=99", "no steps were found"),
        ("stream=7", "streams are 0 to 1"),
        ("pool=0.9", "its pools are 0.0, 0.7"),
        ("live@b", "Marker B is not set"),
        ("nowhere", "contains \"nowhere\""),
        ("stack~/now+here/", "is found by /now+here/"),
        ("kept stack~attention", "Of the 1 allocation that kept leaves, none passes stack~attention."),
        ("not size>0", "left out by not size>0"),
        ("size>1GiB or during~x", "no annotations"),
        ("born>4", "born>4 holds for no allocation"),
    ] {
        let said = why(text, Asked::Allocations).replace('\u{a0}', " ");
        assert!(said.contains(says), "{text}: {said}");
    }
    assert!(why("oom stack~nowhere", Asked::Events).contains("No call stack contains \"nowhere\"."));
    assert_eq!(why("kept or size>1GiB", Asked::Allocations), "", "it holds for something");
    assert_eq!(Query::parse("kept or live@b -step=9").unwrap().not_there(&scope).len(), 2);
    let no_oom = Recording { devices: vec![DeviceRecording::default()], ..Recording::default() };
    let tables = DeviceTables::build(&no_oom.devices[0], &Progress::new()).unwrap();
    let there = Query::parse("live@oom").unwrap().not_there(&Scope::new(&no_oom, &no_oom.devices[0], &tables));
    assert_eq!(there, ["live@oom: the recording has no out-of-memory event."]);
}

/// Every form in the table can be parsed, and every name that the parser knows is in the help.
#[test]
fn the_help_describes_the_language_that_is_read() {
    let text = reference();
    for entry in &super::reference::ENTRIES {
        for form in entry.forms {
            let example = form.replace('…', "a+");
            assert!(Query::parse(&example).is_ok(), "{form}: {:?}", Query::parse(&example));
            assert!(text.contains(form), "{form}");
        }
        for name in entry.also {
            assert!(text.contains(name), "{name}");
        }
    }
    for word in ["not", "or", "~", "KiB", "min", "a..b"] {
        assert!(text.contains(word), "{word}");
    }
    for completion in complete("", 0, Vocabulary::default()) {
        assert!(!completion.about.is_empty(), "{}", completion.word);
    }
}

#[test]
fn a_slip_of_the_finger_is_answered_with_what_was_meant() {
    for (text, meant) in [
        ("sise>1MiB", "size"),
        ("stck~attention", "stack"),
        ("stram=1", "stream"),
        ("role=activaton", "activations"),
        ("roel=other", "role"),
        ("live@peek", "peak"),
        ("born>eend", "end"),
        ("freed=nevr", "never"),
    ] {
        let error = Query::parse(text).unwrap_err();
        assert!(error.sentence.contains(&format!("did you mean {meant}")), "{text}: {}", error.sentence);
        assert_eq!(&text[error.at], text);
    }
    let error = Query::parse("kept size > lots").unwrap_err();
    assert_eq!(error.at, 5..16, "joined words are pointed at together");
    let far = Query::parse("colour=red").unwrap_err().sentence;
    assert!(far.contains("use size, block, stack"), "{far}");
}

#[test]
fn examples_hold_for_something_in_the_recording_they_are_made_from() {
    let recording = recording();
    let device = &recording.devices[0];
    let tables = DeviceTables::build(device, &Progress::new()).unwrap();
    let names = crate::tables::StackNames::of(&recording.stacks);
    let scope = Scope { cursor: Some(2), ..Scope::new(&recording, device, &tables) };
    let list = examples(&scope, &names, &Progress::new()).unwrap();
    assert!(list.len() >= 15, "{list:#?}");
    for key in ["size>", "stack~", "live@oom", "pool=graph", "gone=never", "age>", "addr="] {
        assert!(list.iter().any(|e| e.query.starts_with(key)), "{key}");
    }
    for example in &list {
        assert!(example.holds.is_some_and(|n| n > 0), "{example:?}");
    }
}

#[test]
fn an_error_points_at_its_term() {
    let place = |text: &str| {
        let error = Query::parse(text).unwrap_err();
        text[error.at].to_owned()
    };
    assert_eq!(place("alloc size>lots kept"), "size>lots");
    assert_eq!(place("kept or"), "or");
    assert_eq!(place("or kept"), "or");
    assert_eq!(place("kept not"), "not");
    assert_eq!(place("sise>1MiB"), "sise>1MiB");
    assert_eq!(place("age>peak"), "age>peak");
    assert_eq!(place("role=xyz"), "role=xyz");
    assert_eq!(place("(kept or size>1)"), "(kept");
    assert!(Query::parse("age>peak").unwrap_err().sentence.contains("age>5000"));
}

#[test]
fn completions_stand_in_for_the_word_being_typed() {
    let offered = |text: &str, byte: usize| -> Vec<String> {
        let known = Vocabulary {
            stacks: &["train.py:71", "two words.py:3"],
            annotations: &["forward pass", "Optimizer.step"],
            steps: 12,
            streams: 2,
        };
        complete(text, byte, known).into_iter().map(|c| c.word).collect()
    };
    assert_eq!(offered("during~for", 10), ["during~\"forward pass\""]);
    assert_eq!(offered("step=1", 6), ["step=10", "step=11", "step=12"]);
    assert_eq!(offered("stream=", 7), ["stream=0", "stream=1"]);
    assert_eq!(offered("freed=", 6), ["freed=never"]);
    assert_eq!(offered("mod", 3), ["module~"]);
    assert_eq!(offered("rol", 3), ["role="]);
    assert_eq!(offered("kept -rol", 9), ["-role="]);
    assert!(offered("role=", 5).contains(&"role=kv_cache".to_owned()));
    assert_eq!(offered("live@p", 6), ["live@peak"]);
    assert_eq!(offered("stack~two", 9), ["stack~\"two words.py:3\""]);
    assert_eq!(offered("born>o", 6), ["born>oom"]);
    assert_eq!(offered("size>1 ", 7).len(), 12);
    let none = Vocabulary::default();
    let c = &complete("kept rol gone", 8, none)[0];
    assert_eq!(c.at, 5..8);
    // Whatever is offered can be parsed once it has a value.
    for c in complete("", 0, none).into_iter().chain(complete("role=", 5, none)).chain(complete("pool=", 5, none)) {
        let needs_value = c.word.ends_with(['>', '<', '=', '~', '@']) || c.word == "not" || c.word == "or";
        assert!(needs_value || Query::parse(&c.word).is_ok(), "{}", c.word);
    }
}

/// A term in its simplest representation.
#[derive(Clone, Debug)]
enum Plain {
    SizeOver(u64),
    BlockWithin(u64, u64),
    BornBefore(u32),
    GoneFrom(u32),
    AgeUpTo(u32),
    LiveAt(u32),
    Kept,
    Small,
}

impl Plain {
    fn text(&self) -> String {
        match self {
            Plain::SizeOver(n) => format!("size>{n}"),
            Plain::BlockWithin(a, b) => format!("block={a}..{b}"),
            Plain::BornBefore(n) => format!("born<{n}"),
            Plain::GoneFrom(n) => format!("gone>={n}"),
            Plain::AgeUpTo(n) => format!("age<={n}"),
            Plain::LiveAt(n) => format!("live@{n}"),
            Plain::Kept => "kept".to_owned(),
            Plain::Small => "pool=small".to_owned(),
        }
    }

    fn holds(&self, d: &DeviceRecording, t: &DeviceTables, id: LifetimeId) -> bool {
        let l = t.lifetimes.get(d, id).unwrap();
        match *self {
            Plain::SizeOver(n) => l.requested > n,
            Plain::BlockWithin(a, b) => a <= l.block && l.block <= b,
            Plain::BornBefore(n) => l.born < n,
            Plain::GoneFrom(n) => l.gone != NO_EVENT && l.gone >= n,
            Plain::AgeUpTo(n) => l.gone.min(d.events.len() as u32) - l.born <= n,
            // Nothing is live after an event that does not exist.
            Plain::LiveAt(n) => (n as usize) < d.events.len() && l.born <= n && l.gone > n,
            Plain::Kept => l.gone == NO_EVENT,
            Plain::Small => l.class == SizeClass::Small,
        }
    }
}

fn plain_terms() -> impl Strategy<Value = Plain> {
    prop_oneof![
        (0u64..30_000_000).prop_map(Plain::SizeOver),
        (0u64..40_000, 1u64..30_000_000).prop_map(|(from, length)| Plain::BlockWithin(from, from + length)),
        (0u32..200).prop_map(Plain::BornBefore),
        (0u32..200).prop_map(Plain::GoneFrom),
        (0u32..200).prop_map(Plain::AgeUpTo),
        (0u32..200).prop_map(Plain::LiveAt),
        Just(Plain::Kept),
        Just(Plain::Small),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_query_holds_where_its_terms_do(
        ops in toy::ops(150),
        choices in prop::collection::vec(prop::collection::vec((plain_terms(), any::<bool>()), 1..4), 1..3),
    ) {
        let device = Toy::run(AllocConf::default(), &ops).recording(0).0;
        let tables = DeviceTables::build(&device, &Progress::new()).unwrap();
        let recording = Recording::default();
        let all = |terms: &Vec<(Plain, bool)>| {
            terms.iter().map(|(term, not)| format!("{}{}", if *not { "-" } else { "" }, term.text())).collect::<Vec<_>>().join(" ")
        };
        let text = choices.iter().map(all).collect::<Vec<_>>().join(" or ");
        let query = Query::parse(&text).unwrap();
        let found = query.allocations(&Scope::new(&recording, &device, &tables), &Progress::new()).unwrap();
        let brute: Vec<u32> = (0..tables.lifetimes.len() as u32)
            .filter(|&i| {
                let id = LifetimeId(i);
                choices.iter().any(|terms| terms.iter().all(|(term, not)| term.holds(&device, &tables, id) != *not))
            })
            .collect();
        prop_assert_eq!(&found, &brute, "{}", text);
        // At each event the curve of the matching allocations equals the sum of those that are live.
        let matching = crate::query::matching::Matching::of(&device, &tables, found, &Progress::new()).unwrap();
        for event in 0..device.events.len() as u32 {
            let live: u64 = brute.iter().map(|&i| LifetimeId(i))
                .filter(|&id| tables.lifetimes.is_live_at(id, event))
                .map(|id| tables.lifetimes.block_size(id)).sum();
            prop_assert_eq!(matching.bytes_at(&device, &tables, event), live, "after event {}", event);
        }
        let n = device.events.len() as u32;
        let bounds: Vec<u32> = (0..=7).map(|i| n * i / 7).collect();
        for (cell, w) in matching.columns(&device, &tables, &bounds).iter().zip(bounds.windows(2)) {
            let values: Vec<u64> = (w[0]..w[1]).map(|e| matching.bytes_at(&device, &tables, e)).collect();
            if let Some(&last) = values.last() {
                prop_assert_eq!((Some(&cell.max), cell.last), (values.iter().max(), last));
                prop_assert_eq!(Some(&cell.min), values.iter().min());
            }
        }
        let (peak, at) = matching.peak();
        let all: Vec<u64> = (0..n).map(|e| matching.bytes_at(&device, &tables, e)).collect();
        prop_assert_eq!(peak, all.iter().copied().max().unwrap_or(0));
        if peak > 0 {
            prop_assert_eq!(all.iter().position(|&v| v == peak), Some(at as usize));
        }
    }

    #[test]
    fn no_text_breaks_the_reader(text in "[ -~]{0,40}|(size|live@|stack~|or|not|\"|[<>=~]|1MiB| ){0,12}", byte in 0usize..60) {
        let read = Query::parse(&text);
        if let Err(error) = read {
            prop_assert!(text.get(error.at.clone()).is_some(), "{:?}", error);
        }
        let known = Vocabulary { stacks: &["a.py:1"], annotations: &["x y"], steps: 3, streams: 2 };
        let _ = complete(&text, byte.min(text.len()), known);
    }
}

#[test]
fn a_regular_expression_stands_between_slashes() {
    assert!(Query::parse("stack~/attn|forward/").is_ok());
    let wrong = Query::parse("stack~/(|/").unwrap_err().sentence;
    assert!(wrong.contains("no regular expression"), "{wrong}");
    let bar = Query::parse("stack~attn|forward").unwrap_err().sentence;
    assert!(bar.contains("stack~/attn|forward/"), "{bar}");
    assert!(Query::parse("file~/site-packages/").is_ok(), "a folder is a text");
    use super::needle::Needle;
    let has = |value: &str, name: &str| Needle::of(value).is_in(name);
    assert!(has("/attn|^For/", "forward") && !has("/attn|^For/", "before"));
    assert!(has("/\\S\\d/", "Layer1") && !has("/\\S\\d/", "layer"), "case is kept where it means something");
    assert!(has("layer", "MyLayer") && !has("/load/", "workloads.py"));
}
