//! What several views compute from a device: its tables, the meaning of block colours, the comparison of A and B.

pub mod colours;
pub mod compare;
pub mod device;
#[cfg(test)]
pub(crate) mod samples;
