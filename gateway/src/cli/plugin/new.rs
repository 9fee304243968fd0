//! `sluice plugin new`.

use std::path::Path;

use clap::Args;

use super::print;

#[derive(Debug, Args)]
pub(in crate::cli) struct Options {
    /// The plugin's name and its folder's: [a-z][a-z0-9-]{0,39}.
    name: String,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let name = &options.name;
    gateway_kit::scaffold::new(Path::new(""), name)?;
    print(&format!(
        "{name}/ is a plugin that works: it refuses clients on a list. Its rule is {name}/src/lib.rs, what it has to answer is\n\
         {name}/vectors.yaml.\n\n  sluice plugin build {name}\n  sluice plugin test {name}"
    ))
}
