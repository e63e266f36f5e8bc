//! Makes `proto/envoy-v3.binpb.zst`: the descriptors of all v3 types of Envoy, with which resources are read from
//! JSON and YAML. Run it (`cargo run -p descriptors -- CHECKOUT...`) after changing the version of `envoy-types` in its
//! `Cargo.toml`, or a commit in [`BESIDE`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use prost::Message;
use prost_types::FileDescriptorProto;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

const OUTPUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto/envoy-v3.binpb.zst");

/// The protos that the crate lacks (ADR 58): folders of public repositories, at a commit. The arguments are checkouts of all three, and
/// any folder with the same content will do.
const BESIDE: [(&str, &str, &[&str]); 3] = [
    ("cncf/xds", "5cf4b19495289a9e992ce5e2c3ffb08f2cf387be", &["xds/", "udpa/"]),
    ("envoyproxy/data-plane-api", "84e84367f2560cdb47b9bb78fd3e615feb80c3e4", &["contrib/"]),
    ("grpc/grpc-proto", "99135b19189588fcc787acb84cff27991787473d", &["grpc/lookup/"]),
];

const ZSTD_LEVEL: i32 = 19;

/// The message with its files as bytes. Generated types would drop options that they do not know, such as
/// Envoy's `sensitive`.
#[derive(Clone, PartialEq, Message)]
struct FileDescriptorSet {
    #[prost(bytes = "vec", repeated, tag = "1")]
    file: Vec<Vec<u8>>,
}

impl FileDescriptorSet {
    fn names(&self) -> Result<impl Iterator<Item = String>> {
        let names = self
            .file
            .iter()
            .map(|file| FileDescriptorProto::decode(&**file)?.name.context("a file without a name"));
        Ok(names.collect::<Result<Vec<_>>>()?.into_iter())
    }
}

/// Where the trees of protos lie within the crate. All v3 files of the first two are wanted, of the others what
/// these import.
const TREES: [&str; 8] = [
    "data-plane-api",
    "xds",
    "protoc-gen-validate",
    "googleapis",
    "opentelemetry-proto",
    "cel-spec/proto",
    "client_model",
    "ratelimit",
];
const ROOT_TREES: usize = 2;

fn main() -> Result<()> {
    let checkouts: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let descriptors = descriptors(&proto_tree()?, &checkouts)?;
    let names: BTreeSet<_> = descriptors.names()?.collect();
    for (repository, commit, folders) in BESIDE {
        let has_all = folders.iter().all(|folder| names.iter().any(|name| name.starts_with(folder)));
        ensure!(has_all, "no checkout of {repository} at {commit} among the arguments");
    }
    let compressed = zstd::bulk::compress(&descriptors.encode_to_vec(), ZSTD_LEVEL)?;
    std::fs::write(OUTPUT, compressed).with_context(|| format!("writing {OUTPUT}"))
}

/// The `proto` directory of `envoy-types`, of the version in the lock file.
fn proto_tree() -> Result<PathBuf> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version=1", "--locked", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .context("running cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let manifest = metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["name"] == "envoy-types"))
        .and_then(|package| package["manifest_path"].as_str())
        .context("cargo metadata knows no envoy-types")?;
    Ok(Path::new(manifest).with_file_name("proto"))
}

/// The descriptors of all files, imports before what imports them, with custom options and without comments.
///
/// Each file is compiled on its own and the results are merged: protox lets packages of files that a file does
/// not import shadow the relative names in it (prost-reflect#126), of which Envoy has many.
fn descriptors(tree: &Path, checkouts: &[PathBuf]) -> Result<FileDescriptorSet> {
    let mut merged = FileDescriptorSet::default();
    let mut seen = BTreeSet::new();
    for root in roots(tree, checkouts)? {
        // As an import of another root, with all that the file imports itself.
        if seen.contains(&root) {
            continue;
        }
        let mut compiler = protox::Compiler::with_file_resolver(resolver(tree, checkouts));
        compiler.include_imports(true).open_file(&root).with_context(|| format!("compiling {root}"))?;
        let compiled = FileDescriptorSet::decode(&*compiler.encode_file_descriptor_set())?;
        for file in compiled.file {
            let name = FileDescriptorProto::decode(&*file)?.name.context("a file without a name")?;
            if seen.insert(name) {
                merged.file.push(file);
            }
        }
    }
    Ok(merged)
}

fn resolver(tree: &Path, checkouts: &[PathBuf]) -> ChainFileResolver {
    let mut chain = ChainFileResolver::new();
    chain.add(Overlay { tree: tree.to_owned() });
    let includes = TREES.iter().map(|include| tree.join(include));
    for include in includes.chain(checkouts.iter().cloned()) {
        chain.add(IncludeFileResolver::new(include));
    }
    chain.add(GoogleFileResolver::new());
    chain
}

/// The one file that meets its own package's neighbours even when it is compiled alone: a relative name in it is
/// made absolute.
struct Overlay {
    tree: PathBuf,
}

impl Overlay {
    const FILE: &str = "envoy/extensions/clusters/dynamic_forward_proxy/v3/cluster.proto";
    const RELATIVE: &str = " common.dynamic_forward_proxy.v3.DnsCacheConfig ";
    const ABSOLUTE: &str = " .envoy.extensions.common.dynamic_forward_proxy.v3.DnsCacheConfig ";
}

impl FileResolver for Overlay {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if name != Overlay::FILE {
            return Err(protox::Error::file_not_found(name));
        }
        let path = self.tree.join(TREES[0]).join(name);
        let source = std::fs::read_to_string(path).map_err(protox::Error::new)?;
        File::from_source(name, &source.replace(Overlay::RELATIVE, Overlay::ABSOLUTE))
    }
}

/// The v3 files to compile, as imports name them, sorted.
fn roots(tree: &Path, checkouts: &[PathBuf]) -> Result<BTreeSet<String>> {
    let mut roots = BTreeSet::new();
    for checkout in checkouts {
        let is_wanted = |name: &String| {
            let folders = BESIDE.iter().flat_map(|(_, _, folders)| *folders);
            let is_in_crate = TREES.iter().any(|include| tree.join(include).join(name).exists());
            folders.clone().any(|folder| name.starts_with(folder)) && !is_in_crate
        };
        roots.extend(protos(checkout)?.into_iter().filter(is_wanted));
    }
    for include in &TREES[..ROOT_TREES] {
        let is_v3 = |name: &String| name.split('/').any(|component| component == "v3");
        roots.extend(protos(&tree.join(include))?.into_iter().filter(is_v3));
    }
    Ok(roots)
}

/// All protos below a directory, as imports name them.
fn protos(top: &Path) -> Result<Vec<String>> {
    let (mut names, mut directories) = (Vec::new(), vec![top.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "proto") {
                let name = path.strip_prefix(top)?.to_str().context("a path that is not UTF-8")?;
                names.push(name.to_owned());
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use super::*;

    /// The files of the crate are compared byte for byte. The others need checkouts, which a test has not.
    #[test]
    fn the_committed_descriptors_are_current() {
        let committed = zstd::decode_all(&*std::fs::read(OUTPUT).unwrap()).unwrap();
        let set = FileDescriptorSet::decode(&*committed).unwrap();
        let files: BTreeMap<_, _> = set.names().unwrap().zip(&set.file).collect();
        assert_eq!(files.len(), set.file.len(), "each file once");
        let current = descriptors(&proto_tree().unwrap(), &[]).unwrap();
        let current: BTreeMap<_, _> = current.names().unwrap().zip(&current.file).collect();
        assert!(current.len() > 500, "only {} files", current.len());
        for (name, file) in &current {
            assert!(
                files.get(name) == Some(file),
                "{name}: run `cargo run -p descriptors` and commit the result"
            );
        }
        let beside: Vec<_> = files.keys().filter(|name| !current.contains_key(*name)).collect();
        for (repository, _, folders) in BESIDE {
            let is_of = |name: &&String| folders.iter().any(|folder| name.starts_with(folder));
            assert!(beside.iter().any(is_of), "no file of {repository}");
        }
        let all = BESIDE.iter().flat_map(|(_, _, folders)| *folders);
        for name in beside {
            assert!(all.clone().any(|folder| name.starts_with(folder)), "{name} is of no repository");
        }
        // The key of the option, and `true`.
        let sensitive = [0xb8, 0xb7, 0x8b, 0xa4, 0x02, 0x01];
        let marks = committed.windows(sensitive.len()).filter(|bytes| *bytes == sensitive).count();
        assert!(marks >= 25, "only {marks} fields have Envoy's mark of secrets");
    }
}
