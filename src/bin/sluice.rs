//! The command line: arguments in, exit codes out.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the one place that talks to a terminal")]

mod bootstrap;
mod host;
mod init;
mod manual;

use std::io::{BufWriter, IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::bootstrap::{Client, print_bootstrap};
use self::host::hostname;
use self::init::Init;
use clap::{Args, CommandFactory, Parser, Subcommand};
use sluice::app::{ConfigFile, Faults, Start};
use sluice::command::Operate;
use sluice::command::classes::{ClassCommand, ClassesArguments};
use sluice::command::console::Console;
use sluice::command::ledger::{InitArguments, LedgerCommand};
use sluice::command::outcome::Failure;
use sluice::config::xds_relay::{Migrated, Migration};
use sluice::config::{self, Config, ConfigError, Loaded, LogFormat};
use sluice::dev_certs::{self, DevCertsError};
use sluice_identity::Identity;

#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// An xDS aggregating relay: many Envoy and gRPC clients on one side, one control-plane stream on the other.
#[derive(Parser)]
#[command(version, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: SluiceCommand,
}

const AFTER_HELP: &str = "\
Quick start: `sluice serve` relays a directory of example files; `sluice bootstrap envoy > envoy.yaml && envoy -c \
envoy.yaml` starts an Envoy that connects to the relay.

Exit codes: 0 success; 64 invalid arguments or configuration; 69 the relay cannot start, for example because an \
address is in use, or no relay answers; 70 internal error. Commands towards a running relay also have: 1 a difference, \
or not yet in sync; 3 some of the relays are silent; 75 a wait timed out.";

const CONFIG_HELP: &str = "Configuration file: YAML, or JSON if the name ends in .json [default: the quickstart, \
config/sluice.yaml here or beside the executable]";

#[derive(Subcommand)]
enum SluiceCommand {
    /// Run the relay.
    Serve {
        #[arg(long, value_name = "FILE", help = CONFIG_HELP)]
        config: Option<PathBuf>,
    },
    /// Check a configuration and report its errors, without starting the relay.
    ///
    /// Looks at the files and directories that `serve` needs, too. Binds no address, and asks no server.
    Check {
        /// Configuration file: YAML, or JSON if the name ends in .json.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Check the file alone, and list everything that only the relay's host can know.
        #[arg(long)]
        offline: bool,
        /// Also print the classes of the node in this file: a core.v3.Node in JSON.
        #[arg(long, value_name = "FILE")]
        node: Option<PathBuf>,
        #[command(flatten)]
        asks: Asks,
    },
    /// Write a configuration for a control plane, with comments.
    Init(Init),
    /// Print a client's bootstrap configuration for the relay.
    Bootstrap {
        #[command(subcommand)]
        client: Client,
    },
    /// Translate the configuration of another relay to stdout, and name on stderr everything that cannot be
    /// translated.
    Migrate {
        #[command(subcommand)]
        from: Other,
    },
    /// Write certificates for trying out TLS: an authority, and pairs for the relay and for a client.
    DevCerts {
        /// Directory for the files; created if missing.
        directory: PathBuf,
        /// DNS name or IP address of the relay, besides localhost and the loopback addresses.
        #[arg(long = "host", value_name = "NAME")]
        hosts: Vec<String>,
        /// SPIFFE ID of the client.
        #[arg(long, value_name = "URI", default_value = "spiffe://dev.example/ns/default/sa/client")]
        client_id: String,
        /// Keep the private key of the authority too, and issue by it the next time.
        #[arg(long)]
        keep_authority: bool,
    },
    /// Print a completion script: `source <(sluice completion bash)`.
    Completion {
        #[arg(value_name = "SHELL")]
        shell: manual::Shell,
    },
    /// Print the JSON Schema (draft-07) of the configuration file, for editors and linters.
    Schema,
    /// Write the manual pages, one for each command.
    Man {
        /// Directory for the pages; created if missing.
        directory: PathBuf,
    },
    #[command(flatten)]
    Operate(Box<Operate>),
}

/// A client for the rules of `authorization`.
#[derive(Args)]
struct Asks {
    /// Also print the rule and the grant of a client with this identity: spiffe://…, dns:NAME,
    /// trust_domain:NAME, unix:UID or anonymous.
    #[arg(long, value_name = "ID")]
    identity: Option<String>,
    /// Name of the client's listener [default: the first].
    #[arg(long, value_name = "NAME", requires = "identity")]
    listener: Option<String>,
    /// A type that the client asks for, as a full message name.
    #[arg(long = "type", value_name = "TYPE", requires = "identity")]
    type_name: Option<String>,
    /// A name of this type that the client asks for; without it, all of them.
    #[arg(long, value_name = "NAME", requires = "type_name")]
    name: Option<String>,
}

#[derive(Subcommand)]
enum Other {
    /// xds-relay: its aggregation rules, its bootstrap, or both. Exit code 1: something cannot be translated.
    XdsRelay {
        /// Files in YAML.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout. If stdout is closed, there is nothing left to do.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    run(cli.command).unwrap_or_else(|failure| {
        if let Some(text) = failure.text() {
            eprintln!("sluice: {text}");
        }
        ExitCode::from(failure.code())
    })
}

fn run(command: SluiceCommand) -> Result<ExitCode, Failure> {
    match command {
        SluiceCommand::Serve { config } => start(config)?,
        SluiceCommand::Check { config, offline, node, asks } => {
            check(&config, offline, node.as_deref(), &asks)?
        }
        SluiceCommand::Migrate { from: Other::XdsRelay { files } } => return migrate_xds_relay(&files),
        SluiceCommand::Init(init) => init.run()?,
        SluiceCommand::Bootstrap { client } => print_bootstrap(client)?,
        SluiceCommand::DevCerts { directory, hosts, client_id, keep_authority } => {
            write_dev_certs(&directory, &hosts, &client_id, keep_authority)?;
        }
        SluiceCommand::Completion { shell } => {
            printed(manual::completion(shell, Cli::command(), &mut stdout()))?;
        }
        SluiceCommand::Schema => printed(writeln!(stdout(), "{:#}", config::schema()))?,
        SluiceCommand::Man { directory } => write_pages(&directory)?,
        SluiceCommand::Operate(command) => return operate(*command),
    }
    Ok(ExitCode::SUCCESS)
}

fn operate(command: Operate) -> Result<ExitCode, Failure> {
    // The only one of these commands that asks a control plane.
    if let Operate::Classes(ClassesArguments { command: Some(ClassCommand::Learn(learn)), .. }) = &command
        && learn.nodes.is_some()
    {
        let mut out = BufWriter::new(stdout());
        let learned = sluice::app::learn(learn, &hostname(), &mut out, &mut stderr());
        return printed(out.flush()).and(learned).map(|()| ExitCode::SUCCESS);
    }
    // No relay is asked either.
    if let Operate::Ledger { ledger: LedgerCommand::Init(InitArguments { config: Some(file), .. }) } =
        &command
    {
        let done = sluice::app::forget_ledger(&load(file)?)?;
        return printed(writeln!(stdout(), "{done}")).map(|()| ExitCode::SUCCESS);
    }
    let is_terminal = stdout().is_terminal();
    // https://no-color.org
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let (mut out, mut err) = (BufWriter::new(stdout()), stderr());
    let has_colour = is_terminal && !is_plain;
    let mut console = Console { out: &mut out, err: &mut err, is_terminal, has_colour };
    command.run(&mut console).map(|outcome| ExitCode::from(outcome.code()))
}

fn start(file: Option<PathBuf>) -> Result<(), Failure> {
    let (start, refusal) =
        Start::of_environment().map_err(|error| Failure::Unavailable(error.to_string()))?;
    serve(file, start).inspect_err(|failure| failure.text().into_iter().for_each(|text| refusal.tell(text)))
}

fn serve(file: Option<PathBuf>, start: Start) -> Result<(), Failure> {
    let file = file_or_quickstart(file)?;
    let loaded = read_file(&file).map_err(|error| Failure::Usage(error.in_file(&file)))?;
    // The log has its form from here on, and its reader may take no other.
    if loaded.config.log.format == LogFormat::Text {
        print_warnings(&file, &loaded);
    }
    let config = sluice::app::with_collector(loaded.config).map_err(Failure::Usage)?;
    check_files(&config)?;
    let file = ConfigFile::new(absolute(&file), hostname());
    sluice::app::serve(Loaded { config, ..loaded }, file, start).map_err(|error| {
        // Sockets and files belong to the host; any other error is a bug in sluice.
        let is_host = error.chain().any(|cause| cause.is::<std::io::Error>());
        let message = format!("{error:#}");
        if is_host { Failure::Unavailable(message) } else { Failure::Internal(message) }
    })
}

fn check(file: &Path, offline: bool, node: Option<&Path>, asks: &Asks) -> Result<(), Failure> {
    let config = match load_with(file, offline)? {
        Ok(config) => config,
        Err(variables) => {
            if node.is_some() || asks.identity.is_some() {
                let text = format!("{}: --node and --identity need {}", file.display(), variables.join(", "));
                return Err(Failure::Usage(text));
            }
            println!("{} is valid as far as its variables tell", file.display());
            print_needs(&variables);
            return Ok(());
        }
    };
    if !offline {
        check_host(&config)?;
    }
    println!("{} is a valid configuration", file.display());
    if offline {
        print_needs(&sluice::app::needs_of_host(&config));
    }
    print!("{}", config::explain_unbound(&config));
    let node = node.map(read_node).transpose()?;
    let identity = asks.identity.as_deref().map(read_identity).transpose()?;
    if let Some(node) = &node {
        let claimed = identity.as_ref().unwrap_or(&Identity::Anonymous);
        let classes = sluice::app::explain_classes(&config, node, claimed, !offline);
        print!("{}", classes.map_err(Failure::Usage)?);
        print!("{}", config::explain_servers(&config.servers));
    }
    if let Some(identity) = identity {
        let listener = config::find_listener(&config, asks.listener.as_deref()).map_err(Failure::Usage)?;
        let ask = asks.type_name.as_deref().map(|type_name| (type_name, asks.name.as_deref()));
        print!("{}", config::explain_decision(&config, listener, identity, node.as_ref(), ask));
    }
    Ok(())
}

fn read_identity(text: &str) -> Result<Identity, Failure> {
    config::parse_identity(text).ok_or_else(|| {
        Failure::Usage(format!(
            "--identity: {text} is no spiffe://…, dns:NAME, trust_domain:NAME, unix:UID or anonymous"
        ))
    })
}

fn print_needs(needs: &[String]) {
    println!("not checked, because only the relay's host can know:");
    needs.iter().for_each(|need| println!("  {need}"));
}

/// Looks at everything on this host that `serve` needs, with the same exit codes.
fn check_host(config: &Config) -> Result<(), Failure> {
    let Faults { files, host } = sluice::app::check_host(config);
    let has_files = !files.is_empty();
    let all = [files, host].concat();
    if all.is_empty() {
        return Ok(());
    }
    let noun = if all.len() == 1 { "error" } else { "errors" };
    let text = format!("{} {noun} on this host:\n  {}", all.len(), all.join("\n  "));
    Err(if has_files { Failure::Usage(text) } else { Failure::Unavailable(text) })
}

fn migrate_xds_relay(files: &[PathBuf]) -> Result<ExitCode, Failure> {
    let mut migration = Migration::default();
    let mut is_whole = true;
    for file in files {
        let unreadable = |error| ConfigError::Unreadable { path: file.clone(), error };
        let added = std::fs::read_to_string(file).map_err(unreadable).and_then(|text| migration.add(&text));
        let lost = added.map_err(|error| Failure::Usage(error.in_file(file)))?;
        is_whole &= lost.is_empty();
        lost.iter().for_each(|lost| eprintln!("sluice: {}:{lost}", file.display()));
    }
    let Migrated { yaml, lost } = migration.finish();
    is_whole &= lost.is_empty();
    lost.iter().for_each(|lost| eprintln!("sluice: {lost}"));
    print!("{yaml}");
    Ok(ExitCode::from(u8::from(!is_whole)))
}

/// Reads the files with certificates, keys, tokens and facts, as `serve` would.
fn check_files(config: &Config) -> Result<(), Failure> {
    sluice::app::check_files(config).map_err(|faults| {
        let noun = if faults.len() == 1 { "error" } else { "errors" };
        Failure::Usage(format!(
            "{} {noun} in files with certificates, tokens or facts:\n  {}",
            faults.len(),
            faults.join("\n  ")
        ))
    })
}

fn read_node(file: &Path) -> Result<sluice_xds::Node, Failure> {
    let at = |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| at(&error))?;
    config::parse_client_node(&text).map_err(|error| at(&error))
}

fn write_dev_certs(
    directory: &Path,
    hosts: &[String],
    client_id: &str,
    keep_authority: bool,
) -> Result<(), Failure> {
    let files =
        dev_certs::write(directory, hosts, client_id, keep_authority).map_err(|error| match error {
            DevCertsError::Io(error) => Failure::Unavailable(format!("{}: {error}", directory.display())),
            DevCertsError::Name(error) => Failure::Usage(error),
        })?;
    println!(
        "These certificates are for trying out only: anyone who can read {} can pose as the relay or as a client.",
        directory.display()
    );
    for (path, about) in files {
        println!("  {:<28} {about}", path.display());
    }
    Ok(())
}

fn write_pages(directory: &Path) -> Result<(), Failure> {
    let names = manual::pages(Cli::command(), directory)
        .map_err(|error| Failure::Unavailable(format!("{}: {error}", directory.display())))?;
    printed(names.iter().try_for_each(|name| writeln!(stdout(), "{}", directory.join(name).display())))
}

fn printed(done: std::io::Result<()>) -> Result<(), Failure> {
    done.map_err(|error| Failure::Unavailable(format!("cannot print: {error}")))
}

fn load_or_quickstart(file: Option<PathBuf>) -> Result<Config, Failure> {
    load(&file_or_quickstart(file)?)
}

fn file_or_quickstart(file: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(file) = file {
        return Ok(file);
    }
    let file = quickstart()?;
    eprintln!("sluice: no --config given; using the quickstart, {}", file.display());
    Ok(file)
}

/// The quickstart's configuration: in the working directory of a checkout, or beside an installed executable.
fn quickstart() -> Result<PathBuf, Failure> {
    let here = Path::new("config").join("sluice.yaml");
    let executable = std::env::current_exe().ok();
    let beside = executable.as_deref().and_then(Path::parent).map(|directory| directory.join(&here));
    [Some(here), beside].into_iter().flatten().find(|file| file.is_file()).ok_or_else(|| {
        let help = "no config/sluice.yaml here or beside the executable; \
                    pass --config FILE, or run in a checkout of sluice";
        Failure::Usage(help.into())
    })
}

fn load(file: &Path) -> Result<Config, Failure> {
    let loaded = read_file(file).map_err(|error| Failure::Usage(error.in_file(file)))?;
    print_warnings(file, &loaded);
    Ok(loaded.config)
}

/// Loads a file. With `offline`, unset variables are no error: the inner error has the variables and their
/// keys.
fn load_with(file: &Path, offline: bool) -> Result<Result<Config, Vec<String>>, Failure> {
    match read_file(file) {
        Ok(loaded) => {
            print_warnings(file, &loaded);
            Ok(Ok(loaded.config))
        }
        Err(error) => match error.only_unset().filter(|_| offline) {
            Some(variables) => Ok(Err(variables)),
            None => Err(Failure::Usage(error.in_file(file))),
        },
    }
}

/// Bootstraps contain socket paths for clients elsewhere, so relative paths must become absolute.
fn absolute(file: &Path) -> PathBuf {
    std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf())
}

fn read_file(file: &Path) -> Result<Loaded, ConfigError> {
    config::load(&absolute(file), &hostname())
}

/// Prints the warnings of a file for the operator to stderr.
fn print_warnings(file: &Path, loaded: &Loaded) {
    for warning in &loaded.warnings {
        eprintln!("sluice: warning: {}:{warning}", file.display());
    }
}
