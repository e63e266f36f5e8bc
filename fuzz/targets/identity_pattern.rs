#![no_main]

sluice_fuzz::target!("identity_pattern");
