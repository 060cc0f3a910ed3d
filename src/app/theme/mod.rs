//! The look: every colour, face and measure of the window, in both themes.
//!
//! [`tokens`] is the only place with colour literals; everything else names a token. Call [`install`] once per
//! [`egui::Context`], before its first pass; then [`Tokens::of`] gives the colours of the theme in force.

pub mod fonts;
pub mod ramps;
pub mod text;
pub mod tokens;
pub mod visuals;

pub use ramps::Ramp;
pub use text::Type;
pub use tokens::Tokens;

/// Makes a context look like vramscope: faces, colours and spacing of both themes.
///
/// Call it before the first pass (fonts take effect at the start of the next one).
pub fn install(ctx: &egui::Context) {
    fonts::install(ctx);
    visuals::install(ctx);
}
