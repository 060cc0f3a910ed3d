//! What is worked out of a device and drawn by several views: its tables, what block colours mean, what A and B differ in.

pub mod colours;
pub mod compare;
pub mod device;
