//! `sluice plugin build`.

use std::path::Path;

use super::print;

pub(super) fn run(folder: &Path) -> anyhow::Result<()> {
    let built = gateway_kit::build(folder)?;
    let schema = if built.has_schema { "schema.json inside" } else { "no schema.json" };
    print(&format!("{}: {} bytes, {schema}, made by {}", built.component.display(), built.bytes, built.toolchain))
}
