#![no_main]

sluice_fuzz::target!("pem_generation");
