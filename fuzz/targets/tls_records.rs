#![no_main]

sluice_fuzz::target!("tls_records");
