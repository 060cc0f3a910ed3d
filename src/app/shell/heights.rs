//! Heights of the bars around the views.

pub(super) const MENU_BAR: f32 = 32.0;
pub(super) const TAB_BAR: f32 = 32.0;
pub(super) const STATUS_BAR: f32 = 24.0;
pub(super) const PANE_HEADER: f32 = 28.0;
