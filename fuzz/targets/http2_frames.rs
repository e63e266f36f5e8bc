#![no_main]

sluice_fuzz::target!("http2_frames");
