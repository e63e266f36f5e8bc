#![no_main]

sluice_fuzz::target!("token_expiry");
