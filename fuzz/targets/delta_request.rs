#![no_main]

sluice_fuzz::target!("delta_request");
