//! The short form of a failure or a leak, shown above the memory tables: the cause in one sentence, what to try first, and links.

use egui::{Align, Layout, Ui, UiBuilder, vec2};

use super::{Tried, ViewContext, is_red, take_there};
use crate::app::state::{Command, ViewKind, Workspace};
use crate::app::theme::Type;
use crate::app::widgets::{Push, label};
use vramscope_core::diagnose::findings::{Class, Finding, Findings};
use vramscope_core::diagnose::oom::{Verdict, advice, best_advice};
use vramscope_core::units::NBSP;

/// A cause or remedy with more characters than this is cut at its colon.
const LONG: usize = 150;
const LONG_REMEDY: usize = 90;

enum Remedy {
    /// The settings are being simulated.
    Trying,
    Known {
        line: Option<String>,
        sentence: String,
    },
}

/// The cause alone: the first sentence, without parentheses and without explanations.
pub(super) fn cause(text: &str) -> String {
    first_sentence(text, LONG)
}

fn first_sentence(text: &str, long: usize) -> String {
    let is_end = |&(i, _): &(usize, &str)| text[i + 2..].starts_with(char::is_uppercase);
    let first = text.match_indices(". ").find(is_end).map_or(text, |(i, _)| &text[..=i]);
    let mut said = without_asides(first);
    let ends = said.find("; ").or_else(|| said.find(": ").filter(|_| said.chars().count() > long));
    if let Some(end) = ends {
        said.truncate(end);
        said.push('.');
    }
    said
}

/// Removes parentheses from a sentence.
fn without_asides(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (") {
        let Some((_, end)) = after.split_once(')') else { break };
        out.push_str(before);
        rest = end;
    }
    out + rest
}

/// The sentence with a figure (kept after "May help." when the text begins with that), or else the cause.
fn with_figure(text: &str) -> String {
    let sentences = || text.split_inclusive(". ").map(str::trim_end);
    let doubt = if text.starts_with("May help.") { "May help. " } else { "" };
    match sentences().find(|s| s.contains(NBSP)) {
        Some(said) => format!("{doubt}{}", first_sentence(said, LONG_REMEDY)),
        None => first_sentence(text, LONG_REMEDY),
    }
}

/// What would reduce the peak most, when memory itself is short; otherwise the best advice on the failure.
fn remedy(found: &Findings, f: &Finding, helped: &Tried) -> Remedy {
    let own = || Remedy::Known { line: f.remedy.clone(), sentence: with_figure(&f.advice) };
    let autopsy = found.ooms.iter().find(|a| f.class == Class::OutOfMemory && Some(a.event) == f.place.event);
    let Some(a) = autopsy else { return own() };
    let saves = |f: &&Finding| !is_red(f) && f.saving.is_some_and(|saving| !saving.is_nothing());
    if let Some(best) = found.findings.iter().find(saves).filter(|_| a.is_short_of_memory()) {
        let falls = best.sentence.split_inclusive(". ").find(|s| s.contains("the peak falls"));
        return Remedy::Known {
            line: best.remedy.clone(),
            sentence: falls.map_or_else(|| cause(&best.advice), |s| cause(s.trim_end())),
        };
    }
    let helped = match helped {
        Some(None) if a.verdict != Verdict::TooLarge => return Remedy::Trying,
        Some(Some(helped)) => Some(&**helped),
        _ => None,
    };
    match best_advice(a, &advice(a, helped)) {
        Some(best) => Remedy::Known { line: best.setting.clone(), sentence: with_figure(&best.sentence) },
        None => own(),
    }
}

/// What to try first, and links to more. True when the rest was requested.
pub(super) fn ways_on(ui: &mut Ui, cx: &ViewContext<'_>, f: &Finding, index: usize, helped: &Tried) -> bool {
    let t = cx.tokens;
    if let Some(found) = cx.findings {
        ui.add_space(8.0);
        ui.label(Type::Caption.text("Try first").color(t.text3));
        match remedy(found, f, helped) {
            Remedy::Trying => {
                label::paragraph(ui, "Trying other settings on the recorded requests…", Type::Body, t.text3);
                // Reserves about the height of the answer, so that no button moves under the pointer.
                ui.add_space(32.0);
            }
            Remedy::Known { line, sentence } => {
                // The whole line, to copy, is with the rest of the advice. Of code that is long a sentence with a figure says more.
                let fits = |line: &str| label::width(ui.painter(), line, Type::MonoStrong) <= ui.available_width();
                let short = line.as_deref().and_then(|line| match line.strip_prefix(cx.words().conf) {
                    Some(setting) if fits(setting) => Some(setting.trim_start_matches('=').to_owned()),
                    Some(setting) => Some(setting.trim_start_matches('=').replace(',', ",\n")),
                    None => (fits(line) || !sentence.contains(NBSP)).then(|| line.to_owned()),
                });
                if let Some(line) = short {
                    label::paragraph(ui, &line, Type::MonoStrong, t.text1);
                }
                label::rich_paragraph(ui, &label::with_strong_figures(&sentence), Type::Body, t.text1, t.text1);
            }
        }
    }
    ui.add_space(8.0);
    let row = ui.scope_builder(UiBuilder::new().id_salt(("ways on", index)), |ui| {
        ui.with_layout(Layout::left_to_right(Align::Min).with_main_wrap(true), |ui| {
            ui.spacing_mut().item_spacing = vec2(8.0, 6.0);
            let (name, command) = match f.is_of_failure() {
                false => ("Open Leaks", Command::Show(ViewKind::Leaks)),
                true => ("Open autopsy", Command::Workspace(Workspace::Autopsy)),
            };
            if Push::primary(name).show(ui).clicked() {
                take_there(cx, f);
                cx.actions.run(command);
            }
            Push::outlined("What helps").show(ui).clicked()
        })
    });
    row.inner.inner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_one_short_sentence() {
        let one = "A request for 12.27\u{a0}GiB failed: 8.86\u{a0}GiB is free.";
        assert_eq!(cause(&format!("{one} Called from train.py:14 it fits.")), one);
        assert_eq!([cause(one), cause("")], [one, ""]);
        let long = "A request for 48\u{a0}MiB failed because this process has used up its cap of 10.62 to 10.67\u{a0}GiB (estimated from the \
                    failed requests): tensors hold 10.45\u{a0}GiB of it, and with this request it would be more than at any time before. More.";
        let said = "A request for 48\u{a0}MiB failed because this process has used up its cap of 10.62 to 10.67\u{a0}GiB.";
        assert_eq!(cause(long), said);
    }

    #[test]
    fn a_remedy_is_said_by_its_figure() {
        let text = "May help. Large blocks are kept whole. In a replay all 93 requests succeed if the cap is 1.60\u{a0}GiB or more; it is \
                    1.56 to 2.05\u{a0}GiB. Whether later requests fit is not known.";
        assert_eq!(with_figure(text), "May help. In a replay all 93 requests succeed if the cap is 1.60\u{a0}GiB or more.");
        assert_eq!(with_figure("Detach it: loss.item()."), "Detach it: loss.item().");
    }
}
