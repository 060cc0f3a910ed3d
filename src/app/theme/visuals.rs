//! Visuals, spacing and interaction of egui's own widgets in both themes.

use super::text;
use super::tokens::Tokens;
use egui::epaint::FontColorTransferFunction;
use egui::style::{NumericColorSpace, ScrollStyle, TextCursorStyle, WidgetVisuals};
use egui::{CornerRadius, Margin, Shadow, Stroke, Theme, Visuals, vec2};

/// Radius of controls and code wells.
pub const RADIUS_CONTROL: u8 = 4;
pub const RADIUS_POPUP: u8 = 6;
/// Radius of chips and key caps.
pub const RADIUS_CHIP: u8 = 3;
pub const HEADER_HEIGHT: f32 = 28.0;
pub const ROW_DENSE: f32 = 20.0;
/// Height of a table row, and of a table's header.
pub const ROW: f32 = 24.0;
pub const PAD_PANE: f32 = 16.0;
/// Padding inside a list row and a pane's header.
pub const PAD_ROW: f32 = 12.0;
/// Seconds before a tooltip shows.
pub const TOOLTIP_DELAY: f32 = 0.12;
/// Seconds a popup takes to fade in.
pub const FADE: f32 = 0.08;

pub fn visuals(theme: Theme) -> Visuals {
    let t = Tokens::of_theme(theme);
    let shadow = Shadow { offset: [0, 4], blur: 16, spread: 0, color: t.shadow };
    let radius = CornerRadius::same(RADIUS_CONTROL);
    let widget = |fill, stroke, text| WidgetVisuals {
        bg_fill: fill,
        weak_bg_fill: fill,
        bg_stroke: stroke,
        corner_radius: radius,
        fg_stroke: Stroke::new(1.0, text),
        expansion: 0.0,
    };
    let mut v = theme.default_visuals();
    v.panel_fill = t.s1;
    v.window_fill = t.s3;
    v.window_stroke = Stroke::new(1.0, t.line2);
    v.window_corner_radius = CornerRadius::same(RADIUS_POPUP);
    v.menu_corner_radius = CornerRadius::same(RADIUS_POPUP);
    v.window_shadow = shadow;
    v.popup_shadow = shadow;
    v.window_highlight_topmost = false;
    v.extreme_bg_color = t.s0;
    v.faint_bg_color = t.s2;
    v.text_edit_bg_color = Some(t.s1);
    v.code_bg_color = if t.dark { t.s0 } else { t.s2 };
    v.hyperlink_color = t.accent;
    v.warn_fg_color = t.amber;
    v.error_fg_color = t.red;
    v.weak_text_color = Some(t.text3);
    v.selection.bg_fill = t.accentbg;
    v.selection.stroke = Stroke::new(1.0, t.accent);
    v.widgets.noninteractive = widget(t.s1, Stroke::new(1.0, t.line), t.text2);
    v.widgets.inactive = widget(t.s3, Stroke::NONE, t.text1);
    v.widgets.hovered = widget(t.s4, Stroke::NONE, t.text1);
    v.widgets.active = widget(t.s4, Stroke::new(1.0, t.accent), t.text1);
    v.widgets.open = widget(t.s4, Stroke::NONE, t.text1);
    v.text_cursor = TextCursorStyle { stroke: Stroke::new(1.5, t.accent), ..v.text_cursor };
    if t.dark {
        // egui's default function for dark themes makes Inter look a weight heavier. This one keeps 400, 500 and 600 apart.
        v.text_options.color_transfer_function = FontColorTransferFunction::Gamma(0.8);
    }
    v.striped = false;
    v.indent_has_left_vline = false;
    v.numeric_color_space = NumericColorSpace::GammaByte;
    v
}

/// Applies visuals, spacing and type of both themes to a context.
pub fn install(ctx: &egui::Context) {
    for theme in [Theme::Dark, Theme::Light] {
        ctx.style_mut_of(theme, |style| {
            style.visuals = visuals(theme);
            text::install(style);
            let s = &mut style.spacing;
            s.item_spacing = vec2(8.0, 0.0);
            s.button_padding = vec2(10.0, 4.0);
            s.menu_margin = Margin::symmetric(4, 4);
            s.window_margin = Margin::same(12);
            s.interact_size = vec2(24.0, 24.0);
            s.icon_width = 14.0;
            s.icon_width_inner = 8.0;
            s.icon_spacing = 6.0;
            s.indent = 16.0;
            s.tooltip_width = 420.0;
            // A faint scroll bar always shows when there is more than fits, because users do not scroll what does not look cut.
            s.scroll =
                ScrollStyle { bar_width: 8.0, floating_width: 4.0, dormant_handle_opacity: 0.35, ..ScrollStyle::floating() };
            let i = &mut style.interaction;
            i.tooltip_delay = TOOLTIP_DELAY;
            i.show_tooltips_only_when_still = false;
            // Text is copied with buttons and context menus. A text cursor over every word would hide what can be clicked.
            i.selectable_labels = false;
            style.animation_time = FADE;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_themes_take_their_own_tokens() {
        let ctx = egui::Context::default();
        install(&ctx);
        for theme in [Theme::Dark, Theme::Light] {
            let style = ctx.style_of(theme);
            let t = Tokens::of_theme(theme);
            assert_eq!(style.visuals.panel_fill, t.s1);
            assert_eq!(style.visuals.dark_mode, t.dark);
            assert_eq!(style.visuals.error_fg_color, t.red);
            assert_eq!(style.spacing.item_spacing, vec2(8.0, 0.0));
        }
    }
}
