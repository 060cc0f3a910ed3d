//! Parses one word of a query into a [`Term`].

use super::reference::{ENTRIES, Entry};
use super::{Between, Instant, Moment, Operator, Term};
use crate::anatomy::roles::{Role, role_named};
use crate::model::{Action, SizeClass};
use crate::units::{Address, Bytes, nearest};

/// Whether a lower-case word is the name of a comparison.
pub(super) fn is_name(word: &str) -> bool {
    !word.is_empty() && names().any(|name| name == word)
}

/// The names of comparisons and their synonyms.
fn names() -> impl Iterator<Item = &'static str> {
    let of = |e: &'static Entry| std::iter::once(e.name).chain(e.also.iter().copied());
    ENTRIES.iter().flat_map(of).filter(|name| !name.is_empty())
}

pub(super) const SIZE_UNITS: [&str; 15] =
    ["b", "byte", "bytes", "k", "kb", "kib", "m", "mb", "mib", "g", "gb", "gib", "t", "tb", "tib"];

pub(super) const TIME_UNITS: [&str; 5] = ["us", "µs", "ms", "s", "min"];

/// Units that may follow the number of a comparison.
pub(super) fn units_of(name: &str) -> &'static [&'static str] {
    match name {
        "" | "size" | "bytes" | "requested" | "block" => &SIZE_UNITS,
        "time" | "born" | "allocated" | "gone" | "freed" | "age" | "lifetime" | "lived" => &TIME_UNITS,
        _ => &[],
    }
}

/// Operators, longest first; those that begin with `!` negate the term.
const OPERATORS: [&str; 9] = ["<=", ">=", "==", "!=", "!~", "<", ">", "=", "~"];

/// The first operator in a word, and its position.
pub(super) fn operator_in(word: &str) -> Option<(usize, &'static str)> {
    let begins = |at: usize| OPERATORS.into_iter().find(|o| word[at..].starts_with(o)).map(|o| (at, o));
    word.char_indices().find_map(|(at, _)| begins(at))
}

/// Parses a word into a term; true if its operator negates it.
pub(super) fn term(word: &str) -> Result<(Term, bool), String> {
    let lower = word.to_lowercase();
    if let Some(at) = lower.strip_prefix("live@") {
        return instant(at).map(|at| (Term::LiveAt(at), false)).ok_or_else(|| no_instant(word, at));
    }
    if let Some((place, operator)) = operator_in(&lower) {
        let (name, rest) = lower.split_at(place);
        let value = &rest[operator.len()..];
        if name.is_empty() || is_name(name) {
            if value.is_empty() {
                return Err(format!("\"{word}\" has no value: write for example {}", example(name)));
            }
            let (plain, not) = match operator {
                "!=" => ("=", true),
                "!~" => ("~", true),
                "==" => ("=", false),
                other => (other, false),
            };
            if plain == "~" {
                // A regular expression keeps its case: \S differs from \s.
                let typed = word.get(place + operator.len()..).unwrap_or(value);
                super::needle::check(word, name, typed)?;
                if matches!(name, "stack" | "file" | "function" | "func") && super::needle::pattern_of(typed).is_some() {
                    return compared(word, name, plain, typed).map(|term| (term, not));
                }
            }
            return compared(word, name, plain, value).map(|term| (term, not));
        }
        if name.starts_with(|c: char| c.is_ascii_digit()) && !value.is_empty() {
            let typed = |text: &str, from: usize| word.get(from..from + text.len()).unwrap_or(text).to_owned();
            return reversed(word, &typed(name, 0), operator, &typed(value, place + operator.len()));
        }
        // In other texts an operator such as `==` is part of the text. A single word before an operator is a mistake.
        if !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphabetic()) {
            return Err(unknown(name));
        }
    } else if let Some((name, _)) = lower.split_once(':')
        && is_name(name)
    {
        let compares = |e: &&Entry| e.name == name || e.also.contains(&name);
        let is_text = ENTRIES.iter().find(compares).is_some_and(|e| e.forms[0].contains('~'));
        let operator = if name == "live" {
            '@'
        } else if is_text {
            '~'
        } else {
            '='
        };
        let value = word.get(name.len() + 1..).filter(|v| !v.is_empty()).unwrap_or("…");
        return Err(format!("\"{word}\" compares nothing: write {name}{operator}{value}, or put quotes around the text"));
    }
    alone(word, &lower).map(|term| (term, false))
}

fn unknown(name: &str) -> String {
    match nearest(name, names()) {
        Some(meant) => format!("\"{name}\" is not something to compare: did you mean {meant}, as in {}?", example(meant)),
        None => {
            let known: Vec<&str> = ENTRIES.iter().map(|e| e.name).filter(|name| !name.is_empty()).collect();
            format!("\"{name}\" is not something to compare: use {}", known.join(", "))
        }
    }
}

/// Parses `2MiB<size` as `size>2MiB`.
fn reversed(word: &str, value: &str, operator: &str, name: &str) -> Result<(Term, bool), String> {
    if let Some((at, second)) = operator_in(name) {
        let (name, greatest) = (&name[..at], &name[at + second.len()..]);
        if is_name(&name.to_lowercase()) {
            return Err(format!(
                "\"{word}\" is two comparisons: write {name}{}{value} {name}{second}{greatest}",
                turned_round(operator)
            ));
        }
    }
    if is_name(&name.to_lowercase()) {
        return term(&format!("{name}{}{value}", turned_round(operator)));
    }
    if name.bytes().all(|b| b.is_ascii_alphabetic()) && operator != "~" {
        return Err(unknown(&name.to_lowercase()));
    }
    Ok((Term::Text(word.to_lowercase()), false))
}

/// The operator with its sides swapped.
fn turned_round(operator: &str) -> &str {
    match operator {
        "<" => ">",
        "<=" => ">=",
        ">" => "<",
        ">=" => "<=",
        other => other,
    }
}

/// Parses a word without an operator.
fn alone(word: &str, lower: &str) -> Result<Term, String> {
    match lower {
        "gone" | "freed" => return Ok(Term::IsGone(true)),
        "kept" | "leaked" => return Ok(Term::IsGone(false)),
        "live" => return Ok(Term::LiveAt(Instant::Cursor)),
        // An incomplete comparison: as a text it would match nothing and blank every view while the user types.
        "size" | "stack" | "role" | "category" | "addr" | "stream" | "pool" | "born" | "age" | "during" | "step" | "module" => {
            return Err(format!("\"{word}\" has no value: write for example {}, or put quotes around the text", example(lower)));
        }
        _ => {}
    }
    if let Some(actions) = actions(lower) {
        return Ok(Term::Action(actions));
    }
    if let Some(digits) = lower.strip_prefix("0x") {
        return address(word, digits);
    }
    if !lower.is_empty()
        && lower.bytes().all(|b| b.is_ascii_digit())
        && let Ok(n) = lower.parse::<u64>()
    {
        // A long number is an address, as in PyTorch's snapshots.
        return Ok(if lower.len() > 10 { Term::Address(n) } else { Term::Event(Between { least: n, greatest: n }) });
    }
    let is_size = lower.starts_with(|c: char| c.is_ascii_digit())
        && SIZE_UNITS.iter().any(|unit| unit.len() > 1 && lower.ends_with(unit))
        && Bytes::parse(lower).is_ok();
    if is_size {
        return Err(format!(
            "\"{word}\" alone compares nothing: write size>{word} or size={word}, or put quotes around the text"
        ));
    }
    if lower.starts_with(['(', ')']) || lower.ends_with('(') {
        return Err(format!("\"{word}\" cannot be read: there are no parentheses, \"or\" divides choices"));
    }
    Ok(Term::Text(lower.to_owned()))
}

fn no_instant(word: &str, typed: &str) -> String {
    let known = ["peak", "oom", "end", "cursor"];
    match nearest(typed, known) {
        Some(meant) => format!("\"{word}\" names no instant: did you mean {meant}?"),
        None => format!("\"{word}\" names no instant: write live@peak, live@oom, live@end, live@cursor or live@1200"),
    }
}

fn example(name: &str) -> &'static str {
    let named = |e: &&Entry| !name.is_empty() && (e.name == name || e.also.contains(&name));
    ENTRIES.iter().find(named).unwrap_or(&ENTRIES[0]).forms[0]
}

fn compared(word: &str, name: &str, operator: &str, value: &str) -> Result<Term, String> {
    let numbers = |read: &dyn Fn(&str) -> Result<u64, String>| between(operator, value, read);
    match name {
        "" | "size" | "bytes" | "requested" => numbers(&size).map(Term::Size),
        "block" => numbers(&size).map(Term::Block),
        "event" => numbers(&number_of("an event: write event=27584")).map(Term::Event),
        "id" => numbers(&number_of("a row: write id=12")).map(Term::Id),
        "time" => numbers(&micros).map(Term::Time),
        "born" | "allocated" if operator == "=" && matches!(value, "before" | "never") => Ok(Term::BornBefore),
        "born" | "allocated" => moment(word, operator, value).map(Term::Born),
        "gone" | "freed" if operator == "=" && value == "never" => Ok(Term::IsGone(false)),
        "gone" | "freed" => moment(word, operator, value).map(Term::Gone),
        "age" | "lifetime" | "lived" => match moment(word, operator, value)? {
            Moment::At(..) => Err(format!("\"{value}\" is not an age: write age>5000 for events, age>2ms for time")),
            age => Ok(Term::Age(age)),
        },
        "action" => {
            actions(value).map(Term::Action).ok_or_else(|| format!("\"{value}\" is not an action: use {}", action_names()))
        }
        "address" | "addr" | "segment" => address(word, value.strip_prefix("0x").unwrap_or(value)),
        "stream" => {
            let read = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None if value == "default" => Some(0),
                None => value.parse().ok(),
            };
            read.map(Term::Stream).ok_or_else(|| format!("\"{value}\" is not a stream: write its index (stream=1) or its handle"))
        }
        "pool" => pool(value),
        "role" | "category" | "cat" => role(value),
        "step" => {
            numbers(&|v: &str| v.parse().map_err(|_| format!("\"{v}\" is not the number of a step: write step=3 or step=3..5")))
                .map(Term::Step)
        }
        "during" | "annotation" | "range" => Ok(Term::During(value.to_owned())),
        "file" => Ok(Term::File(value.to_owned())),
        "function" | "func" => Ok(Term::Function(value.to_owned())),
        "module" => Ok(Term::Module(value.to_owned())),
        "live" => instant(value).map(Term::LiveAt).ok_or_else(|| no_instant(word, value)),
        "stack" if operator == "=" && value == "none" => Ok(Term::StackIs(u32::MAX)),
        _ => match value.parse() {
            Ok(number) if operator == "=" => Ok(Term::StackIs(number)),
            _ => Ok(Term::Stack(value.to_owned())),
        },
    }
}

fn size(text: &str) -> Result<u64, String> {
    Bytes::parse(text).map(|b| b.0).map_err(|e| e.to_string())
}

fn number_of(what: &'static str) -> impl Fn(&str) -> Result<u64, String> {
    move |v| v.replace(',', "").parse::<u64>().map_err(|_| format!("\"{v}\" is not the number of {what}"))
}

fn pool(value: &str) -> Result<Term, String> {
    match value {
        "private" | "graph" | "graphs" => return Ok(Term::PrivatePool(true)),
        "default" => return Ok(Term::PrivatePool(false)),
        "small" => return Ok(Term::Class(SizeClass::Small)),
        "large" => return Ok(Term::Class(SizeClass::Large)),
        _ => {}
    }
    let key = value.trim_matches(['(', ')']).split_once([',', '.']);
    key.and_then(|(a, b)| Some(Term::Pool((a.trim().parse().ok()?, b.trim().parse().ok()?))))
        .ok_or_else(|| format!("\"{value}\" is not a pool: write pool=private, default, small or large, or its key, as pool=0.7"))
}

fn role(value: &str) -> Result<Term, String> {
    let plain = value.replace([' ', '-'], "_");
    let named = Role::from_name(&plain).or_else(|| Role::from_name(value));
    // `param`, `grad`, `opt` during typing: accepted if only one role begins so.
    let begun = || {
        let mut found = Role::ALL.into_iter().filter(|c| c.name().starts_with(&plain));
        found.next().filter(|_| found.next().is_none())
    };
    named.or_else(|| role_named(value)).or_else(begun).map(Term::Role).ok_or_else(|| {
        let names: Vec<&str> = Role::ALL.iter().map(|c| c.name()).collect();
        if let Some(meant) = nearest(&plain, names.iter().copied()) {
            return format!("\"{value}\" is not a role: did you mean {meant}?");
        }
        format!("\"{value}\" is not a role: use {}", names.join(", "))
    })
}

fn operator_of(operator: &str) -> Operator {
    match operator {
        "<" => Operator::Less,
        "<=" => Operator::AtMost,
        ">=" => Operator::AtLeast,
        ">" => Operator::More,
        _ => Operator::Is,
    }
}

/// `1200` and `100..200` are events, `2ms` is a time, `peak` is an instant.
fn moment(word: &str, operator: &str, value: &str) -> Result<Moment, String> {
    if value.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return instant(value).map(|at| Moment::At(operator_of(operator), at)).ok_or_else(|| {
            match nearest(value, ["peak", "oom", "end", "cursor", "never", "before"]) {
                Some(meant) => format!("\"{value}\" names no instant: did you mean {meant}?"),
                None => format!("\"{word}\" names no instant: use peak, oom, end, cursor, a, b, an event or a time"),
            }
        });
    }
    let is_time = value.ends_with('s') || value.ends_with("min");
    if is_time {
        return between(operator, value, &micros).map(Moment::Micros);
    }
    let read = |v: &str| {
        let digits = v.replace(',', "");
        digits.parse::<u64>().map_err(|_| format!("\"{v}\" is neither an event nor a time: write 1200, 2ms or peak"))
    };
    between(operator, value, &read).map(Moment::Events)
}

pub(super) fn between(operator: &str, value: &str, read: &dyn Fn(&str) -> Result<u64, String>) -> Result<Between, String> {
    if let Some((from, to)) = value.split_once("..")
        && operator == "="
    {
        let least = if from.is_empty() { 0 } else { read(from)? };
        let greatest = if to.is_empty() { u64::MAX } else { read(to)? };
        if least > greatest {
            return Err(format!("{from}..{to} is a range of nothing: the lower end comes first, as in {to}..{from}"));
        }
        return Ok(Between { least, greatest });
    }
    Ok(from_operator(operator_of(operator), read(value)?))
}

/// The range of whole numbers that an operator and a value allow.
pub(super) fn from_operator(operator: Operator, n: u64) -> Between {
    match operator {
        Operator::More if n == u64::MAX => Between { least: 1, greatest: 0 },
        Operator::More => Between { least: n + 1, greatest: u64::MAX },
        Operator::AtLeast => Between { least: n, greatest: u64::MAX },
        Operator::AtMost => Between { least: 0, greatest: n },
        // Nothing is below 0: an empty range.
        Operator::Less if n == 0 => Between { least: 1, greatest: 0 },
        Operator::Less => Between { least: 0, greatest: n - 1 },
        Operator::Is => Between { least: n, greatest: n },
    }
}

/// `13us`, `2.5ms`, `1s`, `2min05s`; a number without a unit is milliseconds.
fn micros(text: &str) -> Result<u64, String> {
    let wrong = || format!("\"{text}\" is not a time: write 13us, 2.5ms, 1s or 2min");
    let (mut rest, mut sum) = (text, 0.0);
    loop {
        let split = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(split);
        let end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let factor = match behind[..end].trim() {
            "us" | "µs" => 1.0,
            "" | "ms" => 1e3,
            "s" => 1e6,
            "min" => 6e7,
            _ => return Err(wrong()),
        };
        let value: f64 = number.parse().map_err(|_| wrong())?;
        sum += value * factor;
        rest = &behind[end..];
        if rest.is_empty() {
            return Ok(sum.round() as u64);
        }
    }
}

/// `7f1d..` is a prefix of addresses; complete digits are an address within a block.
fn address(word: &str, digits: &str) -> Result<Term, String> {
    let wrong = || format!("\"{word}\" is not an address: write 0x7f1dca2b7000, or 0x7f1d.. for all that begin so");
    let prefix = digits.strip_suffix("..").or_else(|| digits.strip_suffix('…')).or_else(|| digits.strip_suffix('*'));
    let Some(prefix) = prefix else {
        return Address::parse(&format!("0x{digits}")).map(|a| Term::Address(a.0)).ok_or_else(wrong);
    };
    // Device addresses have twelve hexadecimal digits.
    let missing = 12usize.checked_sub(prefix.len()).ok_or_else(wrong)? as u32;
    let n = if prefix.is_empty() { 0 } else { u64::from_str_radix(prefix, 16).map_err(|_| wrong())? };
    let least = n << (4 * missing);
    Ok(Term::Addresses(Between { least, greatest: least | ((1u64 << (4 * missing)) - 1) }))
}

fn instant(text: &str) -> Option<Instant> {
    Some(match text {
        "peak" => Instant::Peak,
        "oom" => Instant::Oom,
        "end" => Instant::End,
        "cursor" | "now" => Instant::Cursor,
        "a" => Instant::Marker(0),
        "b" => Instant::Marker(1),
        _ => Instant::Event(text.replace(',', "").parse().ok()?),
    })
}

fn actions(name: &str) -> Option<Vec<Action>> {
    match name {
        "free" => Some(vec![Action::FreeRequested, Action::FreeCompleted]),
        "segment" => Some(vec![Action::SegmentAlloc, Action::SegmentFree, Action::SegmentMap, Action::SegmentUnmap]),
        "unknown" => Some(vec![Action::Unknown]),
        _ => Action::named().find(|a| a.name() == name).map(|a| vec![a]),
    }
}

fn action_names() -> String {
    let names: Vec<&str> = Action::named().map(Action::name).collect();
    format!("{}, free or segment", names.join(", "))
}
