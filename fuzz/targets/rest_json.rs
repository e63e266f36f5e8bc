#![no_main]

sluice_fuzz::target!("rest_json");
