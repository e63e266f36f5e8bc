#![no_main]

sluice_fuzz::target!("authorization_file");
