#![no_main]

sluice_fuzz::target!("sotw_against_delta");
