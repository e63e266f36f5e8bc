#![no_main]

sluice_fuzz::target!("stream_script");
