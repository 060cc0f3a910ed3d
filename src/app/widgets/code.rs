//! Code wells: lines of monospace text on the lowest surface, with a copy button.

use super::icons::Icon;
use super::label;
use crate::app::theme::visuals::RADIUS_CONTROL;
use crate::app::theme::{Tokens, Type};
use egui::text::LayoutJob;
use egui::{Color32, Rect, Response, Role, Sense, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2};

pub struct CodeWell<'a> {
    text: &'a str,
    number: Option<u32>,
    copy: bool,
    python: bool,
}

impl<'a> CodeWell<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, number: None, copy: false, python: false }
    }

    /// Numbers the lines from `number` on, as in a file.
    pub fn number(mut self, number: u32) -> Self {
        self.number = Some(number);
        self
    }

    /// Adds a button that copies the text.
    pub fn copy(mut self, copy: bool) -> Self {
        self.copy = copy;
        self
    }

    /// Highlights strings and dims comments, as Python.
    pub fn python(mut self) -> Self {
        self.python = true;
        self
    }

    /// Shows the well over the available width. A line that is too long is broken when the text is to be copied, which stays as it is;
    /// otherwise it is cut with "…". Returns whether the text was copied.
    pub fn show(self, ui: &mut Ui) -> bool {
        let t = Tokens::of(ui);
        let room = ui.available_width() - 54.0;
        let is_wide = |line: &str| label::width(ui.painter(), line, Type::Mono) > room;
        let shown = if self.copy { broken(self.text, is_wide) } else { self.text.to_owned() };
        let lines: Vec<&str> = shown.lines().collect();
        let pad = if lines.len() > 1 { vec2(12.0, 10.0) } else { vec2(10.0, 5.0) };
        // Only the first line makes room for the copy button.
        let beside = |line: usize| if self.copy && line == 0 { 28.0 } else { 0.0 };
        let gutter = self.number.map_or(0.0, |n| {
            let last = (n + lines.len() as u32).to_string();
            label::width(ui.painter(), &last, Type::Mono) + 14.0
        });
        let across = ui.available_width() - 2.0 * pad.x - gutter;
        let set = |(i, line): (usize, &&str)| {
            let galley = ui.painter().layout_job(self.job(line, t, across - beside(i)));
            let height = (galley.size().y + 4.0).max(20.0);
            (galley, height)
        };
        let set: Vec<_> = lines.iter().enumerate().map(set).collect();
        let high = set.iter().map(|line| line.1).sum::<f32>().max(20.0);
        let size = vec2(ui.available_width(), high + 2.0 * pad.y);
        let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
        response.widget_info(|| WidgetInfo::labeled(Role::Label, true, self.text));
        let fill = if t.dark { t.s0 } else { t.s2 };
        ui.painter().rect(rect, RADIUS_CONTROL, fill, Stroke::new(1.0, t.line), StrokeKind::Inside);
        let mut top = rect.top() + pad.y;
        for (i, (galley, height)) in set.into_iter().enumerate() {
            let y = top + height / 2.0;
            top += height;
            if let Some(number) = self.number {
                let at = Rect::from_min_max(pos2(rect.left() + pad.x, y - 8.0), pos2(rect.left() + pad.x + gutter, y + 8.0));
                label::text_in(ui.painter(), at, &(number + i as u32).to_string(), Type::Mono, t.text3);
            }
            let left = rect.left() + pad.x + gutter;
            ui.painter().galley(pos2(left, y - galley.size().y / 2.0), galley, t.text1);
        }
        self.copy && self.copy_button(ui, rect, pad.y)
    }

    fn copy_button(&self, ui: &mut Ui, rect: Rect, pad: f32) -> bool {
        let t = Tokens::of(ui);
        let place = Rect::from_center_size(pos2(rect.right() - 16.0, rect.top() + pad + 10.0), vec2(22.0, 20.0));
        let response: Response = ui.interact(place, ui.scope_id().with(("copy", self.text)), Sense::click());
        response.widget_info(|| WidgetInfo::labeled(Role::Button, true, "Copy"));
        if response.hovered() {
            ui.painter().rect_filled(place, RADIUS_CONTROL, t.s4);
        }
        let ink = if response.hovered() { t.text1 } else { t.text2 };
        Icon::Copy.paint(ui.painter(), place.center(), 13.0, ink);
        let clicked = response.clicked();
        if clicked {
            ui.copy_text(self.text.to_owned());
        }
        response.on_hover_text("Copy");
        clicked
    }

    fn job(&self, line: &str, t: &Tokens, width: f32) -> LayoutJob {
        let mut job = LayoutJob::default();
        let mut add = |text: &str, colour: Color32| job.append(text, 0.0, label::format(Type::Mono, colour));
        if self.python {
            for (text, kind) in python_pieces(line) {
                add(text, [t.text1, t.amber, t.text3][kind as usize]);
            }
        } else {
            add(line, t.text1);
        }
        job.wrap.max_width = width.max(0.0);
        // Text to copy wraps, at spaces if possible, because the user wants to read all of it before copying.
        if !self.copy {
            job.wrap.max_rows = 1;
            job.wrap.break_anywhere = true;
        }
        job
    }
}

/// Breaks the lines that are too wide: before a comment, between statements, then as [`code_broken`] does.
fn broken(text: &str, is_wide: impl Fn(&str) -> bool) -> String {
    let one = |code: &str| if is_wide(code) { code_broken(code, &is_wide) } else { code.to_owned() };
    let code = |code: &str| match is_wide(code) {
        true => code.replace("; ", ";\n").lines().map(one).collect::<Vec<_>>().join("\n"),
        false => code.to_owned(),
    };
    let line = |line: &str| match line.split_once("  #") {
        Some((before, comment)) if is_wide(line) => format!("{}\n#{comment}", code(before.trim_end())),
        _ => code(line),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Breaks a setting after `=`, and a line that is still too wide after commas outside brackets. A call breaks after its opening
/// parenthesis and between its arguments, and inside a dotted name only where that name alone is too wide. Other statements are
/// left to wrap at their spaces.
fn code_broken(text: &str, is_wide: impl Fn(&str) -> bool) -> String {
    let is_one_word = |text: &str| !text.strip_prefix("export ").unwrap_or(text).contains(' ');
    let setting = text.split_once('=').filter(|(name, _)| !name.contains('(') && is_one_word(name));
    let Some((name, value)) = setting else {
        return call_broken(text, is_wide);
    };
    let mut depth = 0;
    let parts = value.split_inclusive(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(last) if !is_wide(&format!("{last}{part}")) => last.push_str(part),
            _ => lines.push(format!("  {part}")),
        }
    }
    format!("{name}=\n{}", lines.join("\n"))
}

fn call_broken(text: &str, is_wide: impl Fn(&str) -> bool) -> String {
    let Some((function, rest)) = text.split_once('(') else { return text.to_owned() };
    let indent = &text[..text.len() - text.trim_start().len()];
    let split = function.rfind('.').filter(|_| is_wide(&format!("{function}("))).map(|dot| function.split_at(dot + 1));
    let (place, function) = split.map_or((String::new(), function), |(place, name)| (format!("{place}\n"), name));
    let step = if place.is_empty() { indent.to_owned() } else { format!("{indent}  ") };
    let function = if place.is_empty() { function.to_owned() } else { format!("{step}{function}") };
    // A closing parenthesis gets no line of its own.
    if rest.trim_end_matches(';') == ")" || !is_wide(&format!("{function}({rest}")) {
        return format!("{place}{function}({rest}");
    }
    // The copy button takes about four letters of the first line alone.
    let fits = |line: &str| !is_wide(line.get(4..).unwrap_or_default());
    let mut lines: Vec<String> = Vec::new();
    for part in rest.split_inclusive(", ") {
        match lines.last_mut() {
            Some(last) if fits(&format!("{last}{part}")) => last.push_str(part),
            _ => lines.push(format!("{step}  {part}")),
        }
    }
    format!("{place}{function}(\n{}", lines.join("\n"))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Python {
    Code = 0,
    Text = 1,
    Comment = 2,
}

/// Splits a line of Python into code, strings and a comment. Enough for short examples; not a parser.
fn python_pieces(line: &str) -> Vec<(&str, Python)> {
    let mut out = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (i, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => {
                out.push((&line[start..i], Python::Code));
                out.push((&line[i..], Python::Comment));
                return out.into_iter().filter(|(text, _)| !text.is_empty()).collect();
            }
            (None, '"' | '\'') => {
                out.push((&line[start..i], Python::Code));
                (start, quote) = (i, Some(c));
            }
            (Some(q), c) if c == q => {
                out.push((&line[start..=i], Python::Text));
                (start, quote) = (i + 1, None);
            }
            _ => {}
        }
    }
    out.push((&line[start..], if quote.is_some() { Python::Text } else { Python::Code }));
    out.into_iter().filter(|(text, _)| !text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_setting_breaks_where_it_is_a_list() {
        let text = "CONF=a:1,b:[1:2,3:4],c:3";
        assert_eq!(code_broken(text, |line| line.len() > 12), "CONF=\n  a:1,\n  b:[1:2,3:4],\n  c:3");
        assert_eq!(code_broken(text, |_| false), "CONF=\n  a:1,b:[1:2,3:4],c:3");
        assert_eq!(code_broken("no setting", |_| true), "no setting");
        assert_eq!(code_broken("export CONF=a:1", |_| true), "export CONF=\n  a:1");
    }

    #[test]
    fn calls_break_at_their_arguments_and_not_inside_words() {
        let at = |most: usize| move |line: &str| line.len() > most;
        let call = "torch.cuda.set_fraction(1.0)";
        assert_eq!(code_broken(call, at(26)), "torch.cuda.set_fraction(\n  1.0)");
        assert_eq!(code_broken(call, at(20)), "torch.cuda.\n  set_fraction(1.0)", "the name alone is too wide");
        let record = "torch.memory._record(stacks=\"all\", device=0)";
        assert_eq!(code_broken(record, at(26)), "torch.memory._record(\n  stacks=\"all\", device=0)");
        let more = "torch.memory._record(stacks=\"all\", device=0, entries=9)";
        assert_eq!(code_broken(more, at(26)), "torch.memory._record(\n  stacks=\"all\", device=0, \n  entries=9)");
        assert_eq!(
            code_broken("torch.memory._record()", at(21)),
            "torch.memory._record()",
            "a closing parenthesis has no line of its own"
        );
        assert_eq!(code_broken("total = loss.item()", at(8)), "total = loss.\n  item()");
        let two = "optimizer.step(); optimizer.zero_grad(set_to_none=True)";
        assert_eq!(broken(two, at(40)), "optimizer.step();\noptimizer.zero_grad(set_to_none=True)");
        assert_eq!(broken(two, at(30)), "optimizer.step();\noptimizer.zero_grad(\n  set_to_none=True)");
    }

    #[test]
    fn only_wide_lines_break() {
        let is_wide = |line: &str| line.len() > 20;
        assert_eq!(
            broken("a.b(1)  # short\ntorch.memory._dump(1)  # last", is_wide),
            "a.b(1)  # short\ntorch.memory._dump(\n  1)\n# last"
        );
        assert_eq!(broken("failed = True  # and try again", is_wide), "failed = True\n# and try again");
    }
    use Python::*;

    #[test]
    fn strings_and_comments_are_set_apart() {
        assert_eq!(
            python_pieces("mem._dump(\"run.pickle\")  # last"),
            [("mem._dump(", Code), ("\"run.pickle\"", Text), (")  ", Code), ("# last", Comment)]
        );
        assert_eq!(python_pieces("a = '#no'"), [("a = ", Code), ("'#no'", Text)]);
        assert_eq!(python_pieces("a = \"open"), [("a = ", Code), ("\"open", Text)]);
        assert_eq!(python_pieces(""), []);
    }
}
