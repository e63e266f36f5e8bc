#![no_main]

sluice_fuzz::target!("xdstp_name");
