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
