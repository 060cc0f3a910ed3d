//! What views draw with: plots' gestures, axes, meshes, pane furniture, little pictures.

pub mod mesh;
pub mod viewport;
