//! The anatomy of small programs made by hand. Real ones are in `tests/analysis/anatomy.rs`.
