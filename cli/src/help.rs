//! The reference of all commands, from their own help.

use clap::Command;
use std::fmt::Write as _;

/// Returns the help of each command as Markdown, for docs/agentctl.md.
pub fn reference(mut command: Command) -> String {
    command.build();
    let mut text = String::new();
    section(&mut text, &mut command, "agentctl");
    text
}

fn section(text: &mut String, command: &mut Command, name: &str) {
    // The options of every command are in the help of `agentctl` itself.
    if name != "agentctl" {
        let is_common = |arg: &clap::Arg| arg.is_global_set() || arg.get_id() == "help";
        *command = command.clone().mut_args(|arg| if is_common(&arg) { arg.hide(true) } else { arg });
    }
    let help = command.render_long_help().to_string();
    let help = help.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let _ = write!(text, "\n### {name}\n\n```\n{}\n```\n", help.trim_end());
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for sub in names.into_iter().filter(|name| name != "help") {
        if let Some(command) = command.find_subcommand_mut(&sub) {
            section(text, command, &format!("{name} {sub}"));
        }
    }
}
