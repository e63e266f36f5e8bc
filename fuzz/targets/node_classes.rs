#![no_main]

sluice_fuzz::target!("node_classes");
