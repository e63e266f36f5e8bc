#![no_main]

sluice_fuzz::target!("leaf_identity");
