//! The operations whose instructions `make instructions` counts under callgrind, all in one program so that it is built once.
//!
//! `weir-counted fanout`, `requests` or `turns [SCENES]` runs one of them.

mod fanout;
mod requests;
mod turns;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("fanout") => fanout::run(),
        Some("requests") => requests::run(),
        Some("turns") => turns::run(arguments.next().as_deref()),
        _ => Err("expected fanout, requests or turns".into()),
    }
}
