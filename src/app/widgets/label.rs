//! Painting text at a place: aligned, cut with "…" when it is too wide.

use crate::app::theme::Type;

use egui::text::{LayoutJob, TextFormat, TextWrapping};
use egui::{Align2, Color32, Galley, Painter, Pos2, Rect, Ui, pos2};
use std::sync::Arc;
use vramscope_core::units::{Bytes, NBSP};

/// Text format with the style's line height, so that all faces share one baseline.
pub fn format(kind: Type, colour: Color32) -> TextFormat {
    TextFormat { line_height: Some(kind.line()), ..TextFormat::simple(kind.font(), colour) }
}

/// A share in percent, as every table writes it: one decimal, and `< 0.1 %` when it would round to zero.
pub fn share(part: u64, whole: u64) -> String {
    match part as f64 / whole.max(1) as f64 * 100.0 {
        share if part > 0 && share < 0.05 => "< 0.1 %".to_owned(),
        share => format!("{share:.1} %"),
    }
}

/// A change with its sign, written by `text`; `same` for no change. Where `text` only tells that it is small, as `<0.01`, it is
/// written in a unit of its own.
pub fn change(by: i64, text: impl Fn(u64) -> String) -> String {
    let bytes = by.unsigned_abs();
    let told = text(bytes);
    let told = if told.starts_with('<') { Bytes(bytes).to_string() } else { told };
    match by {
        0 => "same".to_owned(),
        1.. => format!("+{told}"),
        _ => format!("−{told}"),
    }
}

/// Lays out one line of text without cutting it.
pub fn galley(painter: &Painter, text: &str, kind: Type, colour: Color32) -> Arc<Galley> {
    let mut job = LayoutJob::single_section(text.to_owned(), format(kind, colour));
    job.break_on_newline = false;
    painter.layout_job(job)
}

/// Lays out one line of text, cut with "…" to `width` points.
pub fn elided(painter: &Painter, text: &str, kind: Type, colour: Color32, width: f32) -> Arc<Galley> {
    let mut job = LayoutJob::single_section(text.to_owned(), format(kind, colour));
    job.wrap = TextWrapping { max_width: width.max(0.0), max_rows: 1, break_anywhere: true, overflow_character: Some('…') };
    painter.layout_job(job)
}

/// Lays out text in up to `lines` lines of `width` points, spaced closely enough for one row. Text that does not fit is cut with
/// "…".
pub fn in_lines(painter: &Painter, text: &str, kind: Type, colour: Color32, width: f32, lines: usize) -> Arc<Galley> {
    let close = TextFormat { line_height: Some(kind.line() - 2.0), ..format(kind, colour) };
    let mut job = LayoutJob::single_section(text.to_owned(), close);
    job.wrap =
        TextWrapping { max_width: width.max(0.0), max_rows: lines, break_anywhere: false, overflow_character: Some('…') };
    painter.layout_job(job)
}

/// Paints one line of text anchored at `at`. Returns the covered rectangle.
pub fn text(painter: &Painter, at: Pos2, anchor: Align2, text: &str, kind: Type, colour: Color32) -> Rect {
    let galley = galley(painter, text, kind, colour);
    let rect = anchor.anchor_size(at, galley.size());
    painter.galley(rect.min, galley, colour);
    rect
}

/// Paints one line at the left of `rect`, vertically centred and cut to its width. Paints nothing when fewer than three letters
/// would fit. Returns the covered rectangle.
pub fn text_in(painter: &Painter, rect: Rect, text: &str, kind: Type, colour: Color32) -> Rect {
    let galley = elided(painter, text, kind, colour, rect.width());
    let letters = galley.rows.first().map_or(0, |row| row.glyphs.len());
    if galley.elided && letters < 4 {
        return Rect::from_min_size(rect.left_center(), egui::Vec2::ZERO);
    }
    let at = pos2(rect.left(), rect.center().y - galley.size().y / 2.0);
    let covered = Rect::from_min_size(at, galley.size());
    painter.galley(at, galley, colour);
    covered
}

/// Like [`text_in`], but a source location that is too long loses its start, so that its line number stays.
pub fn name_in(painter: &Painter, rect: Rect, name: &str, kind: Type, colour: Color32) -> Rect {
    match is_place(name) {
        true => text_in(painter, rect, &without_start(painter, name, kind, rect.width()), kind, colour),
        false => text_in(painter, rect, name, kind, colour),
    }
}

/// Like [`text_in`], right aligned.
pub fn text_in_right(painter: &Painter, rect: Rect, text: &str, kind: Type, colour: Color32) -> Rect {
    let galley = elided(painter, text, kind, colour, rect.width());
    let at = pos2(rect.right() - galley.size().x, rect.center().y - galley.size().y / 2.0);
    let covered = Rect::from_min_size(at, galley.size());
    painter.galley(at, galley, colour);
    covered
}

/// Paints a number of a table: monospace, at the right of its cell.
pub fn figure(painter: &Painter, cell: Rect, text: &str, colour: Color32) {
    text_in_right(painter, cell, text, Type::Mono, colour);
}

/// Paints a value at the right of `rect`, and a name at the left that ends before it. Returns what the value covers.
pub fn pair(painter: &Painter, rect: Rect, name: (&str, Type, Color32), value: (&str, Type, Color32)) -> Rect {
    let covered = text_in_right(painter, rect, value.0, value.1, value.2);
    text_in(painter, rect.with_max_x(covered.left() - 8.0), name.0, name.1, name.2);
    covered
}

/// Paints laid-out text with the middle of its left edge at `left`.
pub fn lay(painter: &Painter, left: Pos2, galley: Arc<Galley>, colour: Color32) {
    painter.galley(pos2(left.x, left.y - galley.size().y / 2.0), galley, colour);
}

pub fn width(painter: &Painter, text: &str, kind: Type) -> f32 {
    galley(painter, text, kind, Color32::PLACEHOLDER).size().x
}

/// Removes the middle of a text that is too wide. Settings often start alike, and a folder is recognised by both ends.
pub fn without_middle(painter: &Painter, text: &str, kind: Type, room: f32) -> String {
    if width(painter, text, kind) <= room {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    let cut = |kept: usize| -> String {
        let head = kept / 3;
        let tail = letters.len() - (kept - head);
        letters[..head].iter().copied().chain(std::iter::once('…')).chain(letters[tail..].iter().copied()).collect()
    };
    // Bisects for the most letters that fit.
    let (mut fits, mut over) = (0, letters.len());
    while fits + 1 < over {
        let kept = usize::midpoint(fits, over);
        if width(painter, &cut(kept), kind) <= room { fits = kept } else { over = kept }
    }
    cut(fits)
}

/// Keeps so many letters of both ends of a text that is longer than them and a "…".
pub fn without_middle_letters(text: &str, head: usize, tail: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= head + tail + 1 {
        return text.to_owned();
    }
    letters[..head].iter().chain(&['…']).chain(&letters[letters.len() - tail..]).collect()
}

/// The text, or as many of its first words as fit. A sentence or title says at its start what it is about.
pub fn first_words(painter: &Painter, text: &str, kind: Type, room: f32) -> String {
    let cuts = text.rmatch_indices(' ').map(|(at, _)| format!("{}…", &text[..at]));
    let mut all = std::iter::once(text.to_owned()).chain(cuts);
    all.find(|text| width(painter, text, kind) <= room).unwrap_or_else(|| without_middle(painter, text, kind, room))
}

/// The text, or as much of its end as fits: the file and line of a location, the class of a module. A count such as `8 \u{d7}` at
/// the start stays. The cut falls between folders or parts of a name when that costs only a few letters.
pub fn without_start(painter: &Painter, text: &str, kind: Type, room: f32) -> String {
    shortened(text, |text| width(painter, text, kind) <= room)
}

/// True for `modeling_gpt2.py:608`.
fn is_place(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(_, line)| !line.is_empty() && line.chars().all(|c| c.is_ascii_digit()))
}

fn shortened(text: &str, fits: impl Fn(&str) -> bool) -> String {
    if fits(text) {
        return text.to_owned();
    }
    let (times, name) = match text.split_once(" \u{d7} ") {
        Some((number, name)) if number.chars().all(|c| c.is_ascii_digit() || c == ',') => {
            (&text[..text.len() - name.len()], name)
        }
        _ => ("", text),
    };
    let from = |at: usize| format!("{times}\u{2026}{}", &name[at..]);
    let starts: Vec<usize> = name.char_indices().map(|(at, _)| at).skip(1).collect();
    let first = starts.partition_point(|&at| !fits(&from(at)));
    // Prefers one of the next few letters that begins a part.
    let is_whole = |at: &&usize| name[..**at].ends_with(['/', '.', '_', ' ']);
    let whole = starts.iter().skip(first).take(4).find(is_whole);
    whole.or(starts.get(first)).map_or_else(String::new, |&at| from(at))
}

/// A wrapped paragraph laid out in a [`Ui`], with the style's line height.
pub fn paragraph(ui: &mut Ui, text: &str, kind: Type, colour: Color32) -> egui::Response {
    ui.add(egui::Label::new(kind.text(text).color(colour)).wrap())
}

/// A wrapped paragraph with markup: text between `*` is strong (`text1`, Inter 500), text between backquotes monospace. Used for
/// the verdict with its figures.
pub fn rich_paragraph(ui: &mut Ui, text: &str, kind: Type, colour: Color32, strong: Color32) -> egui::Response {
    let mut job = LayoutJob::default();
    job.wrap.max_width = ui.available_width();
    for (piece, style) in pieces(text) {
        let mut format = format(kind, colour);
        match style {
            Piece::Plain => {}
            Piece::Strong => {
                format.color = strong;
                format.font_id = egui::FontId::new(kind.font().size, Type::Strong.font().family);
            }
            Piece::Code => {
                format.font_id = egui::FontId::new(kind.font().size - 1.0, Type::Mono.font().family);
                format.valign = egui::Align::Center;
            }
        }
        job.append(piece, 0.0, format);
    }
    ui.add(egui::Label::new(job).wrap())
}

/// Prepares a sentence for [`rich_paragraph`] with its figures marked as strong: a number, a no-break space and its unit, or a
/// range that ends in one.
pub fn with_strong_figures(sentence: &str) -> String {
    let words: Vec<&str> = sentence.split(' ').collect();
    // Punctuation that ends a clause is not part of the figure.
    let bare = |word: &str| word.trim_end_matches(['.', ',', ';', ':', ')']).len();
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let is_figure = |i: usize| words.get(i).is_some_and(|w| is_number(w) && w[..bare(w)].contains(NBSP));
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut i = 0;
    while let Some(&word) = words.get(i) {
        let is_range = is_number(word) && bare(word) == word.len() && words.get(i + 1) == Some(&"to") && is_figure(i + 2);
        let last = if is_range { i + 2 } else { i };
        if is_figure(last) {
            let (figure, rest) = words[last].split_at(bare(words[last]));
            let from = if is_range { format!("{word} to ") } else { String::new() };
            out.push(format!("*{from}{figure}*{rest}"));
        } else {
            out.push(word.to_owned());
        }
        i = last + 1;
    }
    out.join(" ")
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Piece {
    Plain,
    Strong,
    Code,
}

fn pieces(text: &str) -> Vec<(&str, Piece)> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find(['*', '`']) {
        let mark = rest.as_bytes()[open] as char;
        let Some(length) = rest[open + 1..].find(mark) else { break };
        if open > 0 {
            out.push((&rest[..open], Piece::Plain));
        }
        let style = if mark == '*' { Piece::Strong } else { Piece::Code };
        out.push((&rest[open + 1..open + 1 + length], style));
        rest = &rest[open + length + 2..];
    }
    if !rest.is_empty() {
        out.push((rest, Piece::Plain));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_keeps_its_end_and_its_number() {
        let short = |text: &str, room: usize| shortened(text, |text| text.chars().count() <= room);
        assert_eq!(short("modeling_gpt2.py:608", 20), "modeling_gpt2.py:608");
        assert_eq!(short("modeling_gpt2.py:608", 15), "\u{2026}gpt2.py:608");
        assert_eq!(short("8 \u{d7} transformers/modeling_gpt2.py:608", 28), "8 \u{d7} \u{2026}modeling_gpt2.py:608");
        assert_eq!(short("Qwen2DecoderLayerWithCache", 12), "\u{2026}erWithCache");
        assert_eq!(short("stride \u{d7} size of it", 8), "\u{2026}of it");
        assert_eq!(["a.py:12", "a.py:", "0x7f", "backward, no stack"].map(is_place), [true, false, false, false]);
        assert_eq!([short("h\u{e9}llo", 1), short("", 0)], ["", ""]);
    }

    #[test]
    fn a_small_change_is_told_in_a_unit_of_its_own() {
        let size = vramscope_core::units::SizeColumn::default();
        let told = [0, 1 << 20, -5243, 512].map(|by| change(by, |n| size.figure(n)));
        assert_eq!(told, ["same".to_owned(), "+1".to_owned(), "−0.01".to_owned(), format!("+512{NBSP}B")]);
    }

    #[test]
    fn marks_split_a_sentence() {
        assert_eq!(
            pieces("*500 MiB* was asked for, see `run.pickle` and 2 * 3"),
            [
                ("500 MiB", Piece::Strong),
                (" was asked for, see ", Piece::Plain),
                ("run.pickle", Piece::Code),
                (" and 2 * 3", Piece::Plain)
            ]
        );
        assert_eq!(pieces(""), []);
    }

    #[test]
    fn figures_with_their_units_are_strong_and_nothing_else() {
        let plain = format!("A request for 500{NBSP}MiB failed: it is in 26 pieces, and the largest is 27{NBSP}MiB.");
        let strong = format!("A request for *500{NBSP}MiB* failed: it is in 26 pieces, and the largest is *27{NBSP}MiB*.");
        assert_eq!(with_strong_figures(&plain), strong);
        let range = format!("has a cap of 1,664 to 2,244{NBSP}MiB, which");
        assert_eq!(with_strong_figures(&range), format!("has a cap of *1,664 to 2,244{NBSP}MiB*, which"));
        assert_eq!(with_strong_figures("nothing to say in 26 pieces"), "nothing to say in 26 pieces");
    }
}
