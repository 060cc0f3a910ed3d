//! The type scale: font, size and line height of each text style.
//!
//! Numbers in columns, axis labels, addresses and frame locations are monospace, because this Inter subset has no tabular
//! figures. Numbers inside sentences are Inter.

use super::fonts;
use egui::{FontId, RichText, Style, TextStyle};

/// A style of the type scale, with size / line height in px.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Axis names, hints, header subtitles. 11 / 16.
    Caption,
    /// Column headers. Inter 500, 11 / 16.
    Column,
    /// Everything else. 12 / 16.
    Body,
    /// Row names, button text, values in a control. Inter 500, 12 / 16.
    Strong,
    /// Pane, finding and tooltip titles. Inter 600, 12 / 16.
    Title,
    /// The verdict, first lines of Welcome. 13 / 20.
    Lead,
    /// Titles of the ways to start. Inter 500, 13 / 20.
    LeadStrong,
    /// At most once per pane: the verdict, a block's size, the change. Inter 600, 22 / 28.
    Display,
    /// Numbers, axes, status bar, locations, code. JetBrains Mono 11 / 16.
    Mono,
    /// Addresses, frame names, a setting as a title. JetBrains Mono 12 / 16.
    MonoStrong,
    /// Key caps only. JetBrains Mono 10 / 14.
    Key,
    /// The OOM flag only. Inter 600, 10 / 14.
    Flag,
}

impl Type {
    pub fn font(self) -> FontId {
        match self {
            Self::Caption => FontId::new(11.0, fonts::regular()),
            Self::Column => FontId::new(11.0, fonts::medium()),
            Self::Body => FontId::new(12.0, fonts::regular()),
            Self::Strong => FontId::new(12.0, fonts::medium()),
            Self::Title => FontId::new(12.0, fonts::semibold()),
            Self::Lead => FontId::new(13.0, fonts::regular()),
            Self::LeadStrong => FontId::new(13.0, fonts::medium()),
            Self::Display => FontId::new(22.0, fonts::semibold()),
            Self::Mono => FontId::new(11.0, fonts::mono()),
            Self::MonoStrong => FontId::new(12.0, fonts::mono()),
            Self::Key => FontId::new(10.0, fonts::mono()),
            Self::Flag => FontId::new(10.0, fonts::semibold()),
        }
    }

    pub fn line(self) -> f32 {
        match self {
            Self::Lead | Self::LeadStrong => 20.0,
            Self::Display => 28.0,
            Self::Key | Self::Flag => 14.0,
            _ => 16.0,
        }
    }

    pub fn text(self, text: impl Into<String>) -> RichText {
        RichText::new(text).font(self.font()).line_height(Some(self.line()))
    }
}

/// Maps egui's own text styles to ours, so that plain `ui.label` and `ui.monospace` match.
pub fn install(style: &mut Style) {
    style.text_styles = [
        (TextStyle::Small, Type::Caption),
        (TextStyle::Body, Type::Body),
        (TextStyle::Button, Type::Strong),
        (TextStyle::Heading, Type::Title),
        (TextStyle::Monospace, Type::Mono),
    ]
    .into_iter()
    .map(|(style, kind)| (style, kind.font()))
    .collect();
    style.drag_value_text_style = TextStyle::Monospace;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_keys_and_the_flag_goes_under_11_px() {
        use Type::*;
        for kind in [Caption, Column, Body, Strong, Title, Lead, LeadStrong, Display, Mono, MonoStrong] {
            assert!(kind.font().size >= 11.0 && kind.line() >= kind.font().size);
        }
        assert_eq!(Key.font().size, 10.0);
    }
}
