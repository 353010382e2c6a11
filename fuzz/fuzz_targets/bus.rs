#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| weir_fuzz::bus::run(input));
