//! Building blocks of views: gestures, axes, meshes, tables, labels, small pictures.

pub mod anchor;
pub mod axis;
pub mod bar;
pub mod button;
pub mod chip;
pub mod code;
pub mod cut;
pub mod field;
pub mod how;
pub mod icons;
pub mod keys;
pub mod label;
pub mod legend;
pub mod mesh;
pub mod pane;
pub mod row;
pub mod rows;
pub mod sparkline;
pub mod table;
pub mod term;
pub mod texture;
pub mod tooltip;
pub mod viewport;

pub use axis::{Ticks, UnitAt, byte_scale, byte_ticks, byte_unit, event_ticks, most_across, most_down, spread, time_ticks};
pub use bar::Bar;
pub use button::{
    Push, external_link, icon_button, icon_button_sized, link_with, menu_entry, menu_item, push_over, segmented, select,
    selector, selector_button,
};
pub use chip::{
    Swatch, best_room, paint_best, paint_chip, paint_chip_in, paint_flag, paint_key_cap, paint_marker_label, paint_square,
};
pub use code::CodeWell;
pub use cut::Cut;
pub use field::Field;
pub use how::{how_to_record, record_links, recorded_by};
pub use icons::{Icon, paint_logo};
pub use legend::{LegendEntry, legend_row, paint_ramp};
pub use mesh::{Batch, DASH_LIMIT, DASH_MARKER, PixelColumn, paint_zoom_box};
pub use pane::{PaneHeader, empty_state, empty_with, explanation, padded, progress_line, rule, section};
pub use row::{KeyValue, ListRow, key_value, told_at};
pub use rows::RowList;
pub use sparkline::Sparkline;
pub use table::{Cell, Column, Sort, Table, TableOutput, Width};
pub use term::{Figures, Term};
pub use texture::{LARGEST_SIDE, PixelTexture};
pub use tooltip::{Rest, Tip};
pub use viewport::{BOX_LEAST, ByteWheel, Gesture, Intent, PanZoom, Scale, box_within, lets_go_of_drawing};
