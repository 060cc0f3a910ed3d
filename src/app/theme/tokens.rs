//! Every colour of the window, named by its purpose. Only this file has colour literals.
//!
//! Red is reserved for out of memory and leaks. Free memory has no hue. The accent marks controls and list selections.
//! Categorical colours have a contrast of at least 3 : 1 against `s1` and are distinguishable for colour-blind readers.

use egui::{Color32, Theme};
use vramscope_core::model::StackId;

#[derive(Debug, PartialEq)]
pub struct Tokens {
    pub dark: bool,
    /// Surface 0: gaps, tab bar, code wells.
    pub s0: Color32,
    /// Surface 1: pane bodies, fields.
    pub s1: Color32,
    /// Surface 2: pane headers, menu and status bar, the open finding.
    pub s2: Color32,
    /// Surface 3: chips, buttons, popups.
    pub s3: Color32,
    /// Surface 4: pressed segments, cursor readout.
    pub s4: Color32,
    /// Lines between panes and rows.
    pub line: Color32,
    /// Stronger lines: outlined controls, hole outlines.
    pub line2: Color32,
    /// Grid lines inside plots.
    pub grid: Color32,
    pub text1: Color32,
    pub text2: Color32,
    /// Axis labels, captions, icons at rest.
    pub text3: Color32,
    /// Controls and list selections.
    pub accent: Color32,
    /// Fill of a selected list row.
    pub accentbg: Color32,
    /// Text on an accent fill.
    pub onaccent: Color32,
    /// Out of memory and leaks only.
    pub red: Color32,
    /// Fill of the open out-of-memory finding when another row is selected.
    pub redbg: Color32,
    /// Text on a red fill: the OOM flag.
    pub onred: Color32,
    /// Warnings of the load report; text and icons only.
    pub amber: Color32,
    /// Hatch lines over free memory.
    pub hatch: Color32,
    /// Hatch lines over large plot areas, where `hatch` would be too strong.
    pub hatch_large: Color32,
    /// Folded classes, driver, other processes, mixed content.
    pub other: Color32,
    /// Driver and firmware in stacked charts: the darker of the two greys.
    pub driver: Color32,
    /// Names (stacks, categories, settings), by fixed slot: 0 allocated and parameters, 1 gradients and outside PyTorch, 2
    /// activations, 3 optimizer state, 4 inputs, 5 temporaries, 6 autograd detail, 7 custom.
    pub categorical: [Color32; 8],
    /// Ordered amounts (size, age, lifetime), little to much. More contrast to the surface means more.
    pub size: [Color32; 8],
    /// Occupancy, empty to full; the first is the surface colour.
    pub heat: [Color32; 6],
    pub shadow: Color32,
}

/// A token in the dark and in the light theme.
const fn pick(dark: bool, in_dark: u32, in_light: u32) -> Color32 {
    let rgb = if dark { in_dark } else { in_light };
    Color32::from_rgb((rgb >> 16) as u8, (rgb >> 8) as u8, rgb as u8)
}

pub static DARK: Tokens = tokens(true);
pub static LIGHT: Tokens = tokens(false);

const fn tokens(dark: bool) -> Tokens {
    Tokens {
        dark,
        s0: pick(dark, 0x0D0F12, 0xE9EBEE),
        s1: pick(dark, 0x14171B, 0xFFFFFF),
        s2: pick(dark, 0x1A1E23, 0xF5F6F8),
        s3: pick(dark, 0x22272E, 0xECEEF1),
        s4: pick(dark, 0x2C333B, 0xDFE3E8),
        line: pick(dark, 0x262B32, 0xDDE0E5),
        line2: pick(dark, 0x39414B, 0xBFC5CD),
        grid: pick(dark, 0x1E2228, 0xEFF1F3),
        text1: pick(dark, 0xE7EAEE, 0x15181C),
        text2: pick(dark, 0xAAB2BD, 0x48515C),
        text3: pick(dark, 0x818B98, 0x69727E),
        accent: pick(dark, 0x6EA8FE, 0x1F66D0),
        accentbg: pick(dark, 0x1B2A40, 0xE3EDFC),
        onaccent: pick(dark, 0x0D0F12, 0xFFFFFF),
        red: pick(dark, 0xF4545C, 0xC8202B),
        redbg: pick(dark, 0x341A1E, 0xFCE9EA),
        onred: pick(dark, 0x0D0F12, 0xFFFFFF),
        amber: pick(dark, 0xD9A441, 0x9A6700),
        hatch: pick(dark, 0x566070, 0x9BA4AF),
        hatch_large: pick(dark, 0x333A43, 0xD0D5DB),
        other: pick(dark, 0x5A6470, 0x9AA3AE),
        driver: pick(dark, 0x383F48, 0xC6CCD3),
        categorical: [
            pick(dark, 0x3F8FC2, 0x1D4A87),
            pick(dark, 0xE69E5C, 0xC57502),
            pick(dark, 0x26C1B0, 0x0C7766),
            pick(dark, 0xB1A1FC, 0x835BAC),
            pick(dark, 0xCBDA74, 0x383D02),
            pick(dark, 0xA55682, 0x7A1853),
            pick(dark, 0x99DBF9, 0x2D9CD8),
            pick(dark, 0x698A27, 0x7C966A),
        ],
        size: [
            pick(dark, 0x5A4C9E, 0xE2C65A),
            pick(dark, 0x5165B2, 0xB5C667),
            pick(dark, 0x4A82B8, 0x83BA86),
            pick(dark, 0x489AB2, 0x57A79C),
            pick(dark, 0x55AC9D, 0x3F8FAA),
            pick(dark, 0x7ABB8A, 0x4375AE),
            pick(dark, 0xA8C780, 0x5159A0),
            pick(dark, 0xD7CF8A, 0x5C4090),
        ],
        heat: [
            pick(dark, 0x14171B, 0xFFFFFF),
            pick(dark, 0x1C2B35, 0xE0EAEE),
            pick(dark, 0x274554, 0xB9D0D9),
            pick(dark, 0x386475, 0x8CB3C1),
            pick(dark, 0x538799, 0x5F93A6),
            pick(dark, 0x7CAABA, 0x3A7288),
        ],
        shadow: Color32::from_black_alpha(if dark { 102 } else { 46 }),
    }
}

impl Tokens {
    /// The tokens of the active theme. Takes a `&Ui` or `&mut Ui` as well as a context.
    pub fn of(ctx: &egui::Context) -> &'static Self {
        Self::of_theme(ctx.theme())
    }

    pub fn of_theme(theme: Theme) -> &'static Self {
        match theme {
            Theme::Dark => &DARK,
            Theme::Light => &LIGHT,
        }
    }

    /// The colour of a categorical slot. Slots from 8 on are [`Self::other`].
    pub fn slot(&self, slot: usize) -> Color32 {
        self.categorical.get(slot).copied().unwrap_or(self.other)
    }

    /// The colour of memory that a trace's total counts but its blocks do not: held before profiling, or grown during it. The
    /// second is closer to the text colour, so that both can be told apart where they touch.
    pub fn beyond(&self, part: StackId) -> Color32 {
        if part == StackId::GREW { Self::over(self.text1, self.other, 0.55) } else { self.other }
    }

    pub fn at(colour: Color32, opacity: f32) -> Color32 {
        colour.gamma_multiply(opacity.clamp(0.0, 1.0))
    }

    /// `colour` mixed over `surface` at `opacity` into an opaque colour, for textures and for text contrast.
    pub fn over(colour: Color32, surface: Color32, opacity: f32) -> Color32 {
        super::ramps::mix(surface, colour, opacity)
    }

    /// A readable text colour for a solid fill of `colour`: the darkest or the lightest surface.
    pub fn ink_on(colour: Color32) -> Color32 {
        if contrast(colour, DARK.s0) >= contrast(colour, LIGHT.s1) { DARK.s0 } else { LIGHT.s1 }
    }
}

/// Relative luminance (WCAG 2) of an opaque colour, 0 to 1.
pub fn luminance(colour: Color32) -> f32 {
    let channel = |v: u8| {
        let v = f32::from(v) / 255.0;
        if v <= 0.040_45 { v / 12.92 } else { ((v + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(colour.r()) + 0.7152 * channel(colour.g()) + 0.0722 * channel(colour.b())
}

/// Contrast ratio (WCAG 2) of two opaque colours, 1 to 21.
pub fn contrast(a: Color32, b: Color32) -> f32 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_on_the_surfaces_it_stands_on() {
        for t in [&DARK, &LIGHT] {
            for text in [t.text1, t.text2, t.text3] {
                assert!(contrast(text, t.s1) >= 4.5 && contrast(text, t.s2) >= 4.5, "dark {}: {text:?}", t.dark);
            }
            assert!(contrast(t.red, t.s1) >= 4.5 && contrast(t.accent, t.s1) >= 4.5 && contrast(t.amber, t.s1) >= 4.5);
            assert!(contrast(t.onaccent, t.accent) >= 4.5 && contrast(t.onred, t.red) >= 4.5);
            for c in t.categorical {
                assert!(contrast(c, t.s1) >= 3.0, "dark {}: {c:?} {}", t.dark, contrast(c, t.s1));
                assert!(contrast(Tokens::ink_on(c), c) >= 4.0, "ink on {c:?}: {}", contrast(Tokens::ink_on(c), c));
            }
        }
    }

    #[test]
    fn empty_is_the_surface_and_slots_past_eight_fold() {
        for t in [&DARK, &LIGHT] {
            assert_eq!(t.heat[0], t.s1);
            assert_eq!(t.slot(0), t.categorical[0]);
            assert_eq!(t.slot(8), t.other);
        }
    }
}
