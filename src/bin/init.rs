//! `sluice init`: the shipped configurations, to start from.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write, stdout};
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{Failure, printed};

/// A control plane with a configuration of its own.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Recipe {
    /// istiod, with a class for each proxy: right for every mesh
    Istio,
    /// istiod, shared by what the relay reads of Pods and Nodes
    IstioKubernetes,
    /// Envoy Gateway: all Envoys of a gateway are one client
    EnvoyGateway,
    /// A control plane built on go-control-plane, or one that is not here: a class for each proxy
    GoControlPlane,
    /// A directory of files, without a control plane
    Directory,
}

impl Recipe {
    fn text(self) -> &'static str {
        match self {
            Recipe::Istio => include_str!("../../config/istio.yaml"),
            Recipe::IstioKubernetes => include_str!("../../config/istio-kubernetes.yaml"),
            Recipe::EnvoyGateway => include_str!("../../config/envoy-gateway.yaml"),
            Recipe::GoControlPlane => include_str!("../../config/go-control-plane.yaml"),
            Recipe::Directory => include_str!("../../config/directory.yaml"),
        }
    }
}

#[derive(Args)]
pub struct Init {
    /// The control plane.
    #[arg(value_name = "CONTROL-PLANE")]
    recipe: Recipe,
    /// The file to write; `-` for stdout. An existing file stays.
    #[arg(value_name = "FILE", default_value = "sluice.yaml")]
    file: PathBuf,
}

impl Init {
    pub fn run(&self) -> Result<(), Failure> {
        let text = self.recipe.text();
        if self.file.as_os_str() == "-" {
            return printed(stdout().write_all(text.as_bytes()));
        }
        let name = self.file.display();
        let opened = OpenOptions::new().write(true).create_new(true).open(&self.file);
        opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Failure::Usage(format!("{name} exists; pass another FILE, or `-`")),
            _ => Failure::Unavailable(format!("{name}: {error}")),
        })?;
        println!(
            "{name} is written; its comments say what to change, and `sluice check --config {name}` checks it"
        );
        Ok(())
    }
}
