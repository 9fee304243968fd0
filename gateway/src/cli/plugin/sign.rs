//! `sluice plugin sign`.

use std::path::PathBuf;

use clap::Args;
use gateway_kit::{Plugin, sign};

use super::{Folder, print};

#[derive(Debug, Args)]
pub(in crate::cli) struct Options {
    #[command(flatten)]
    folder: Folder,
    /// The secret key. Without it .sluice/signing.key, which is made at its first use.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let signed = sign::run(&Plugin::open(&options.folder.folder)?, options.key.as_deref())?;
    if let Some(public) = &signed.new_key {
        print(&format!(
            "made a new key {} in {}; nodes accept its bundles once {} lies in their plugins.keys_dir",
            signed.signer,
            sign::KEY_FOLDER,
            public.display()
        ))?;
    }
    print(&format!(
        "{}: {} {} ({}), signed by {}",
        signed.bundle.display(),
        signed.label.plugin,
        signed.label.version,
        signed.label.component.short(),
        signed.signer
    ))
}
