#![no_main]

sluice_fuzz::target!("revocation_list");
