#![no_main]

sluice_fuzz::target!("spiffe_id");
