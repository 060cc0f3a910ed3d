//! The theme: every colour, font and measure of the window, dark and light.
//!
//! Only [`tokens`] has colour literals; everything else names a token. Call [`install`] once per [`egui::Context`] before its
//! first pass; then [`Tokens::of`] returns the colours of the active theme.

pub mod fonts;
pub mod ramps;
pub mod text;
pub mod tokens;
pub mod visuals;

pub use ramps::Ramp;
pub use text::Type;
pub use tokens::Tokens;

/// Applies fonts, colours and spacing of both themes to a context.
///
/// Call it before the first pass, because fonts take effect at the start of the next one.
pub fn install(ctx: &egui::Context) {
    fonts::install(ctx);
    visuals::install(ctx);
}
