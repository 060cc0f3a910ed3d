//! The built-in fonts: Inter in three weights and JetBrains Mono.
//!
//! Inter is the proportional family, JetBrains Mono the monospace one. egui's own fonts follow as fallbacks for glyphs that
//! neither has. The files under `assets/fonts` are subsets (Latin, Greek, punctuation, arrows, boxes).

use egui::{FontData, FontDefinitions, FontFamily};
use std::sync::{Arc, LazyLock};

static MEDIUM: LazyLock<FontFamily> = LazyLock::new(|| FontFamily::Name("inter-medium".into()));
static SEMIBOLD: LazyLock<FontFamily> = LazyLock::new(|| FontFamily::Name("inter-semibold".into()));

pub fn regular() -> FontFamily {
    FontFamily::Proportional
}

pub fn medium() -> FontFamily {
    MEDIUM.clone()
}

pub fn semibold() -> FontFamily {
    SEMIBOLD.clone()
}

pub fn mono() -> FontFamily {
    FontFamily::Monospace
}

/// The font definitions, for contexts that add more fonts.
pub fn definitions() -> FontDefinitions {
    let mut fonts = FontDefinitions::default();
    let faces: [(&str, &'static [u8], FontFamily); 4] = [
        ("Inter Regular", include_bytes!("../../../assets/fonts/Inter-Regular.otf"), regular()),
        ("Inter Medium", include_bytes!("../../../assets/fonts/Inter-Medium.otf"), medium()),
        ("Inter SemiBold", include_bytes!("../../../assets/fonts/Inter-SemiBold.otf"), semibold()),
        ("JetBrains Mono", include_bytes!("../../../assets/fonts/JetBrainsMono-Regular.ttf"), mono()),
    ];
    let fallback = fonts.families.get(&FontFamily::Proportional).cloned().unwrap_or_default();
    for (name, bytes, family) in faces {
        fonts.font_data.insert(name.into(), Arc::new(FontData::from_static(bytes)));
        fonts.families.entry(family).or_insert_with(|| fallback.clone()).insert(0, name.into());
    }
    // JetBrains Mono is the first fallback for boxes and blocks that Inter lacks.
    for family in [regular(), medium(), semibold()] {
        fonts.families.entry(family).or_default().insert(1, "JetBrains Mono".into());
    }
    fonts
}

/// Fonts take effect at the next pass.
pub fn install(ctx: &egui::Context) {
    ctx.set_fonts(definitions());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_starts_with_its_face() {
        let fonts = definitions();
        for (family, face) in
            [(regular(), "Inter Regular"), (medium(), "Inter Medium"), (semibold(), "Inter SemiBold"), (mono(), "JetBrains Mono")]
        {
            assert_eq!(fonts.families[&family].first().map(String::as_str), Some(face));
            assert!(fonts.families[&family].iter().all(|name| fonts.font_data.contains_key(name)));
        }
    }
}
