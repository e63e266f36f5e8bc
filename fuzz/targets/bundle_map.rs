#![no_main]

sluice_fuzz::target!("bundle_map");
