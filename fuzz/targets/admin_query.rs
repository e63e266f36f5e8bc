#![no_main]

sluice_fuzz::target!("admin_query");
