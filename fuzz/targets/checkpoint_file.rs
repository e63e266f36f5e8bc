#![no_main]

sluice_fuzz::target!("checkpoint_file");
