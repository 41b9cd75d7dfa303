//! The `iowhy` command.
fn main() {}
