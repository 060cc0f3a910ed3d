//! Sizes as text, and the sentences of the answer.

use std::sync::Arc;

use vramscope_core::plan::cards::CONTEXT;
use vramscope_core::plan::{holes_sentence, is_no_answer, surety};
use vramscope_core::units::{Bytes, NBSP, capital, count};

use super::runs::Point;
use super::scene::{Kind, Outcome, Row, Scene, outcome};

/// How a piece of a sentence is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    Strong,
    Red,
}

/// The answer in a few words, and whether it is negative.
pub(super) fn headline(scene: &Scene) -> Option<(String, bool)> {
    let place = &match scene.plan.horizon() {
        Some(horizon) => format!("{}, {}", scene.place, horizon.reach()),
        None => scene.place.clone(),
    };
    if !scene.knows {
        let point = scene.at.as_ref()?;
        return Some(match outcome(&point.capped) {
            Outcome::Fits => (format!("This run fits {place}"), false),
            Outcome::May => (format!("This run may fit {place}"), false),
            _ => (format!("This run does not fit {}", scene.place), true),
        });
    }
    let name = capital(&scene.name);
    Some(match scene.fits? {
        (0, 0) => (format!("Not even {} {} fits {}", scene.name, scene.unit, scene.place), true),
        (0, may) => (format!("At most {} {} may fit {place}", scene.name, count(may)), false),
        (sure, may) if is_no_answer(sure, may) => {
            (format!("How large a {} fits {} cannot be told", scene.name, scene.place), false)
        }
        (sure, may) if may > sure && scene.is_single() => {
            (format!("{name} {} fits {place}, up to {} may fit", count(sure), count(may)), false)
        }
        (sure, may) => {
            let may_be_less = sure == may && scene.largest.as_ref().is_some_and(|l| !l.certain);
            let at = scene.points.iter().find(|p| p.0 == sure).map(|p| &p.1.capped);
            let how = surety(at, !may_be_less, scene.limit);
            (format!("{name} {} {how}fits {place}", count(sure)), false)
        }
    })
}

/// Why no larger size fits, and what would make the wanted size fit.
pub(super) fn lead(scene: &Scene) -> Vec<(String, Ink)> {
    let mut out: Vec<(String, Ink)> = Vec::new();
    let mut say = |text: String, ink| out.push((text, ink));
    if let Some((size, failure)) = &scene.failure {
        let words = match scene.fits {
            Some((0, 0)) => format!("{} fails", count(*size)),
            _ if scene.knows => format!("{} first fails", count(*size)),
            _ => "It fails".to_owned(),
        };
        say(format!("{words} at event {}", count(u64::from(failure.event))), Ink::Red);
        // When only a range is known for the cap, its low end is used. An earlier request than the recorded one may then fail.
        let is_recorded_size = !scene.knows || scene.recorded.contains(size);
        let is_told = scene.recorded_failures.contains(&failure.event) || !is_recorded_size;
        if let Some(&recorded) = scene.recorded_failures.last().filter(|_| !is_told) {
            say(format!(" under that limit (in the recording: {})", count(u64::from(recorded))), Ink::Plain);
        }
        let doing = if failure.doing.is_empty() { String::new() } else { format!(", {}", failure.doing) };
        say(format!("{doing}: a request of {} does not fit. ", Bytes(failure.bytes)), Ink::Plain);
    }
    if scene.fits == Some((0, 0))
        && let Some((_, least)) = scene.points.first()
    {
        let bytes = |role: &str| least.free.by_role.get(role).copied().unwrap_or(0);
        let fixed = bytes("weights") + bytes("gradients") + bytes("optimizer_state");
        if fixed > 0 {
            let and = if fixed > scene.limit { " is more than there is" } else { " is there at every size" };
            say(format!("{} of weights, gradients and optimizer state{and}. ", Bytes(fixed)), Ink::Plain);
        }
    }
    if let Some((sure, may)) = scene.fits.filter(|f| f.0 > 0 && f.1 > f.0 && !scene.is_single()) {
        let words = if may == sure + scene.unit { count(may) } else { format!("Up to {}", count(may)) };
        say(format!("{words} may fit. "), Ink::Plain);
    }
    // A request may find a large enough hole at one size but not at a smaller one.
    let is_hole =
        |(size, p): &&(u64, Arc<Point>)| scene.fits.is_some_and(|(sure, _)| *size < sure) && outcome(&p.capped) != Outcome::Fits;
    let holes: Vec<u64> = scene.points.iter().filter(is_hole).map(|p| p.0).collect();
    if let Some(said) = holes_sentence(scene.fits.map_or(0, |fits| fits.0), &holes) {
        say(format!("{said} "), Ink::Plain);
    }
    let open = scene.largest.as_ref().filter(|l| !l.certain && scene.fits.is_some_and(|f| f.0 > 0 && f.0 == f.1));
    if let Some(at) = open.and_then(|l| l.at.as_ref()) {
        let on = match at.uncertain_because {
            Some("placement") => "where the driver puts segments",
            _ => "allocations whose sizes could not be predicted exactly",
        };
        say(format!("It depends on {on}. "), Ink::Plain);
    }
    let Some(point) = scene.at_wanted() else { return out };
    let wanted = if scene.knows { format!("The wanted {}", count(scene.wanted)) } else { "It".to_owned() };
    if outcome(&point.capped) == Outcome::Fits {
        let peak = point.capped.peak_reserved_bytes;
        let left = scene.limit.saturating_sub(peak);
        say(wanted, if scene.knows { Ink::Strong } else { Ink::Plain });
        let beside = if scene.is_card { format!(" beside {} for the CUDA context", Bytes(CONTEXT)) } else { String::new() };
        say(format!(" reserves {} and leaves {}{beside}. ", Bytes(peak), Bytes(left)), Ink::Plain);
    } else {
        match scene.best() {
            Some(best) => {
                let what = match (scene.plan.horizon(), scene.knows) {
                    (None, _) => wanted,
                    (Some(_), true) => format!("What is recorded, at {},", scene.named(scene.wanted)),
                    (Some(_), false) => "What is recorded of it".to_owned(),
                };
                say(format!("{what} would fit"), Ink::Strong);
                say(format!(": {}. ", means(best)), Ink::Plain);
            }
            None if scene.is_hopeless => {
                let peaks = scene.rows.iter().filter_map(|r| r.figures.as_ref().filter(|f| f.peak > 0).map(|f| f.peak));
                let least = peaks.min().map_or(String::new(), |least| {
                    format!(": the least that one of them needs is {}, and there is {}", Bytes(least), Bytes(scene.limit))
                });
                let mut others = scene.rows.iter().filter(|r| r.kind != Kind::Own);
                let may = others.find(|r| r.figures.as_ref().is_some_and(|f| f.outcome == Outcome::May));
                match may {
                    Some(row) => {
                        say("Nothing that was tried is sure to make it fit. ".to_owned(), Ink::Plain);
                        say(format!("This may: {}. ", means(row)), Ink::Strong);
                    }
                    None => {
                        say(format!("No change that was tried makes {} fit{least}. ", scene.named(scene.wanted)), Ink::Plain);
                    }
                }
            }
            None => say("Trying what would make it fit\u{2026} ".to_owned(), Ink::Plain),
        }
        let passes = scene.rows.iter().find(|row| matches!(row.kind, Kind::Passes(..)));
        if let Some(row) = passes.filter(|row| !row.is_best) {
            say(format!("Or: {}.", row.title), Ink::Plain);
        }
    }
    out
}

/// What a row does, as part of a sentence.
fn means(row: &Row) -> String {
    match &row.kind {
        Kind::Setting(conf) if conf == "expandable_segments:True" => "expandable segments".to_owned(),
        Kind::Setting(conf) if conf.is_empty() => "PyTorch's default settings".to_owned(),
        Kind::Setting(conf) => format!("the setting {conf}"),
        _ => row.title.clone(),
    }
}

/// Parses a number field: `64`, `1,024`.
pub(super) fn number(text: &str) -> Option<u64> {
    let plain: String = text.chars().filter(|c| !matches!(c, ',' | ' ') && *c != NBSP).collect();
    plain.parse().ok().filter(|v| (1..1 << 32).contains(v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_are_shown() {
        assert_eq!((number("1,024"), number(" 64"), number("0"), number("x")), (Some(1024), Some(64), None, None));
    }
}
