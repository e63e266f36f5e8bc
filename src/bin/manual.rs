//! Scripts and pages about the command line, made from its own definition.

use std::io::{self, Write};
use std::path::Path;

use clap::{Command, ValueEnum};
use clap_complete::aot::{Bash, Fish, Generator, Zsh};
use clap_mangen::Man;

/// The shells with a completion script.
#[derive(Clone, Copy, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Prints the completion script of a shell.
pub fn completion(shell: Shell, mut command: Command, out: &mut dyn Write) -> io::Result<()> {
    command.set_bin_name("sluice");
    command.build();
    match shell {
        Shell::Bash => Bash.try_generate(&command, out),
        Shell::Zsh => Zsh.try_generate(&command, out),
        Shell::Fish => Fish.try_generate(&command, out),
    }
}

/// Writes a page for the program, and one for each command: `sluice.1`, `sluice-serve.1`.
pub fn pages(command: Command, directory: &Path) -> io::Result<Vec<String>> {
    std::fs::create_dir_all(directory)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut names = Vec::new();
    page(&command, directory, &mut names)?;
    Ok(names)
}

fn page(command: &Command, directory: &Path, names: &mut Vec<String>) -> io::Result<()> {
    let man = Man::new(command.clone());
    let name = man.get_filename();
    let mut text = Vec::new();
    man.render(&mut text)?;
    std::fs::write(directory.join(&name), with_title(&String::from_utf8_lossy(&text), &name))?;
    names.push(name);
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.into_iter().try_for_each(|command| page(command, directory, names))
}

/// A title without a date, so that a page does not depend on the day of its making. The generator would leave
/// an empty field out, and move the others.
fn with_title(text: &str, name: &str) -> String {
    let title = name.trim_end_matches(".1").to_uppercase();
    let line = |line: &str| match line.starts_with(".TH ") {
        true => format!(".TH {title} 1 \"\" \"sluice {}\" \"\"\n", env!("CARGO_PKG_VERSION")),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}
