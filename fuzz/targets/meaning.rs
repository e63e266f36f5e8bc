#![no_main]

sluice_fuzz::target!("meaning");
