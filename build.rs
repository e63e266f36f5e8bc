//! Compiles the few messages under `proto/` that sluice speaks, without `protoc`.
// Cargo reads a build script's directives from its standard output.
#![allow(clippy::print_stdout)]

use std::error::Error;

const FILES: [&str; 2] =
    ["envoy/service/discovery/v3/discovery.proto", "envoy/config/cluster/v3/cluster.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=proto/envoy");
    println!("cargo:rerun-if-changed=proto/google");
    let descriptors = protox::compile(FILES, ["proto"])?;
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        .compile_well_known_types()
        .include_file("proto.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
