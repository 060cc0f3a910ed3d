//! The `vramscope` program.

fn main() {}
