//! From a core module to a component that says which configuration it takes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use wasm_encoder::{ComponentSection as _, CustomSection};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, SourceMap};

/// The custom section that holds the JSON Schema of a plugin's configuration.
pub const SCHEMA_SECTION: &str = "sluice:config-schema";

/// The world guests are made for: file names and texts.
pub const WIT: [(&str, &str); 2] =
    [("policy.wit", include_str!("../../../wit/policy.wit")), ("world.wit", include_str!("../../../wit/world.wit"))];

const WORLD: &str = "policy";

/// Where bindings generators put the world a module was made for; its name goes on with theirs.
const WORLD_SECTION: &[u8] = b"component-type";

/// The first bytes of a core module and of a component.
const MODULE: &[u8] = b"\0asm\x01\0\0\0";
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// A component of `wasm`, a core module or already a component, with `schema`, a JSON text, inside it. A module that does not
/// say which world it was made for, such as one in plain C, was made for ours.
///
/// # Errors
/// What does not fit the world; that `schema` is no JSON object.
pub fn component(wasm: &[u8], schema: Option<&str>) -> Result<Vec<u8>> {
    let mut component = if wasm.starts_with(COMPONENT) {
        wasm.to_owned()
    } else {
        ensure!(wasm.starts_with(MODULE), "neither a core module nor a component");
        let mut module = wasm.to_owned();
        if !module.windows(WORLD_SECTION.len()).any(|bytes| bytes == WORLD_SECTION) {
            embed_world(&mut module)?;
        }
        ComponentEncoder::default().module(&module)?.validate(true).encode()?
    };
    if let Some(schema) = schema {
        let document: serde_json::Value = serde_json::from_str(schema).context("schema.json")?;
        ensure!(document.is_object(), "schema.json: not a JSON object");
        CustomSection { name: SCHEMA_SECTION.into(), data: document.to_string().into_bytes().into() }.append_to_component(&mut component);
    }
    Ok(component)
}

fn embed_world(module: &mut Vec<u8>) -> Result<()> {
    let mut sources = SourceMap::new();
    for (name, text) in WIT {
        sources.push(Path::new(name), text);
    }
    let mut resolve = Resolve::default();
    let group = sources.parse().map_err(|(_, error)| error).context("wit/")?;
    let package = resolve.push_group(group)?;
    let world = resolve.select_world(&[package], Some(WORLD))?;
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8, false)
}

/// Writes `bytes` to `path` so that the file appears whole: a gateway may be watching the folder.
///
/// # Errors
/// When the system refuses.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path)).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty component.
    const EMPTY: &[u8] = COMPONENT;

    #[test]
    fn a_schema_is_the_last_section() {
        let with = component(EMPTY, Some("{ \"type\": \"object\" }")).unwrap();
        let section = [SCHEMA_SECTION.as_bytes(), br#"{"type":"object"}"#].concat();
        assert!(with.starts_with(EMPTY) && with.ends_with(&section));
        assert_eq!(component(EMPTY, None).unwrap(), EMPTY);
    }

    #[test]
    fn refuses_what_is_no_guest() {
        assert!(component(b"#!/bin/sh", None).is_err());
        assert!(component(EMPTY, Some("[]")).is_err());
        assert!(component(EMPTY, Some("{")).is_err());
        // An empty module exports nothing of the world.
        assert!(component(MODULE, None).is_err());
    }
}
