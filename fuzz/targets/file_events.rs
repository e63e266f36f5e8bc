#![no_main]

sluice_fuzz::target!("file_events");
