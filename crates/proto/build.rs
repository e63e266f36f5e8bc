//! Compiles the few messages under `proto/` that sluice speaks, without `protoc`.
// Cargo reads a build script's directives from its standard output.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;

const PROTOS: &str = "../../proto";

const FILES: [&str; 5] = [
    "envoy/service/discovery/v3/discovery.proto",
    "envoy/service/load_stats/v3/lrs.proto",
    "envoy/config/cluster/v3/cluster.proto",
    "etcd/etcd.proto",
    CLIENT_STATUS,
];

/// The only service that tonic serves. Its messages are generated with all others.
const CLIENT_STATUS: &str = "envoy/service/status/v3/csds.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={PROTOS}/envoy");
    println!("cargo:rerun-if-changed={PROTOS}/etcd");
    println!("cargo:rerun-if-changed={PROTOS}/google");
    let mut descriptors = protox::compile(FILES, [PROTOS])?;
    prost_build::Config::new()
        .bytes(["."])
        .btree_map(["."])
        .compile_well_known_types()
        .include_file("proto.rs")
        .compile_fds(descriptors.clone())?;
    let services = PathBuf::from(std::env::var("OUT_DIR")?).join("services");
    std::fs::create_dir_all(&services)?;
    descriptors.file.retain(|file| file.name() == CLIENT_STATUS);
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .out_dir(services)
        .extern_path(".envoy.service.status.v3", "crate::csds")
        .compile_fds(descriptors)?;
    Ok(())
}
