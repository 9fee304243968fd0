//! What a component's bytes say before anybody compiles them: what it imports, and the schema of its configuration.
//!
//! Compiling is the expensive part of loading and the part with the largest attack surface, so what has no business here is
//! turned away first. What never happens here: validating code; the compiler does that.

use wasmparser::{ComponentTypeRef, Encoding, Parser, Payload, TypeBounds};

use gateway_core::policy::bundle::COMPONENT_BYTES_MAX;

/// The interfaces of our world. A component that wants anything else, be it a clock, must not even be compiled.
const INTERFACES: [&str; 4] = ["sluice:policy/types", "sluice:policy/identity", "sluice:policy/lists", "sluice:policy/telemetry"];

/// The published versions of the world whose guests this host can answer. A later one may only add functions.
const VERSIONS: [&str; 2] = ["0.1.0", "0.1.1"];

/// The custom section that holds the JSON Schema of the configuration.
const SCHEMA_SECTION: &str = "sluice:config-schema";

/// Largest schema.
const SCHEMA_BYTES_MAX: usize = 64 << 10;

/// Most parts, from sections to function bodies, of one component; an engine for a scripting language has about 20,000.
const PARTS_MAX: usize = 500_000;

/// Most imports; ours have four interfaces and a name for each type of the world's functions.
const IMPORTS_MAX: usize = 64;

/// What bytes that may be a policy say of themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component<'a> {
    /// The interfaces it imports, with their versions, in order.
    pub imports: Vec<&'a str>,
    /// The JSON Schema of its configuration, as text.
    pub schema: Option<&'a str>,
}

/// Reads `bytes` and refuses what cannot be a policy: no component, too large, foreign imports.
///
/// # Errors
/// One line for the operator.
pub fn inspect(bytes: &[u8]) -> Result<Component<'_>, String> {
    if bytes.len() > COMPONENT_BYTES_MAX {
        return Err(format!("the component has more than {COMPONENT_BYTES_MAX} bytes"));
    }
    let mut found = Component { imports: Vec::new(), schema: None };
    let mut foreign = Vec::new();
    let mut imports = 0;
    // How many modules we are inside of: a module's own imports are the component's affair.
    let mut depth = 0_usize;
    for (number, payload) in Parser::new(0).parse_all(bytes).enumerate() {
        if number >= PARTS_MAX {
            return Err(format!("the component has more than {PARTS_MAX} parts"));
        }
        match payload.map_err(|error| format!("not a component: {}", printable(&error.to_string())))? {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                return Err("not a component: this is a core module; `sluice plugin build` makes a component of it".to_owned());
            }
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentSection { .. } => {
                return Err("it contains other components; a policy is one component around its modules".to_owned());
            }
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import.map_err(|error| format!("not a component: {}", printable(&error.to_string())))?;
                    let name = import.name.name;
                    imports += 1;
                    if imports > IMPORTS_MAX {
                        return Err(format!("it has more than {IMPORTS_MAX} imports"));
                    }
                    match import.ty {
                        // A name for a type that another import brings: nothing can be done with it.
                        ComponentTypeRef::Type(TypeBounds::Eq(_)) => {}
                        ComponentTypeRef::Instance(_) if is_ours(name) => found.imports.push(name),
                        _ => foreign.push(printable(name)),
                    }
                }
            }
            Payload::CustomSection(section) if depth == 1 && section.name() == SCHEMA_SECTION => {
                if found.schema.is_some() {
                    return Err("it has two schemas of its configuration".to_owned());
                }
                if section.data().len() > SCHEMA_BYTES_MAX {
                    return Err(format!("the schema of its configuration has more than {SCHEMA_BYTES_MAX} bytes"));
                }
                let text = std::str::from_utf8(section.data()).map_err(|_| "the schema of its configuration is not UTF-8".to_owned())?;
                found.schema = Some(text);
            }
            _ => {}
        }
    }
    if foreign.is_empty() {
        return Ok(found);
    }
    Err(format!(
        "it imports {}, and a policy may import nothing but {} at {}",
        foreign.join(", "),
        INTERFACES.join(", "),
        VERSIONS.join(" or ")
    ))
}

fn is_ours(name: &str) -> bool {
    name.rsplit_once('@').is_some_and(|(interface, version)| INTERFACES.contains(&interface) && VERSIONS.contains(&version))
}

/// The start of a foreign sentence, on one line.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(300).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &[u8] = b"\0asm\x0d\0\x01\0";

    fn section(id: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![id];
        let mut length = body.len();
        while length >= 0x80 {
            bytes.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        bytes.push(u8::try_from(length).unwrap());
        bytes.extend(body);
        bytes
    }

    fn schema(text: &[u8]) -> Vec<u8> {
        let name = [&[u8::try_from(SCHEMA_SECTION.len()).unwrap()], SCHEMA_SECTION.as_bytes()].concat();
        section(0, &[&name, text].concat())
    }

    fn refused(bytes: &[u8]) -> String {
        let refusal = inspect(bytes).unwrap_err();
        assert!(refusal.lines().count() == 1 && refusal.len() < 1_000, "{refusal}");
        refusal
    }

    #[test]
    fn finds_the_schema_of_the_component_and_not_of_a_module_in_it() {
        let with = [EMPTY, &schema(b"{}")].concat();
        assert_eq!(inspect(&with).unwrap().schema, Some("{}"));
        let module = [&b"\0asm\x01\0\0\0"[..], &schema(b"{}")].concat();
        assert_eq!(inspect(&[EMPTY, &section(1, &module)].concat()).unwrap().schema, None);
    }

    #[test]
    fn a_schema_is_one_short_text() {
        assert!(refused(&[EMPTY, &schema(b"{}"), &schema(b"{}")].concat()).contains("two schemas"));
        assert!(refused(&[EMPTY, &schema(&vec![b' '; SCHEMA_BYTES_MAX + 1])].concat()).contains("more than 65536 bytes"));
        assert!(refused(&[EMPTY, &schema(b"\xff")].concat()).contains("UTF-8"));
    }

    #[test]
    fn refuses_what_is_not_one_component() {
        assert!(refused(b"").starts_with("not a component"));
        assert!(refused(b"\0asm").starts_with("not a component"));
        assert!(refused(b"not wasm\nat all").starts_with("not a component"));
        assert!(refused(b"\0asm\x01\0\0\0").contains("core module"));
        assert!(refused(&[EMPTY, &section(4, EMPTY)].concat()).contains("other components"));
        assert!(refused(&vec![0; COMPONENT_BYTES_MAX + 1]).contains("more than"));
    }

    #[test]
    fn a_section_that_claims_more_than_there_is_costs_nothing() {
        // An import section of four billion entries, and a section longer than the file.
        assert!(refused(&[EMPTY, &section(10, b"\xff\xff\xff\xff\x0f")].concat()).starts_with("not a component"));
        assert!(refused(&[EMPTY, b"\x0a\xff\xff\xff\xff\x0f"].concat()).starts_with("not a component"));
        let many = [EMPTY, &section(0, b"\x01x").repeat(PARTS_MAX + 1)].concat();
        assert!(refused(&many).contains("parts"));
    }

    #[test]
    fn refuses_every_import_that_is_not_of_our_world() {
        let importing = |name: &str, kind: &[u8]| {
            let import = [&[1, 0, u8::try_from(name.len()).unwrap()], name.as_bytes(), kind].concat();
            [EMPTY, &section(7, &[1, 0x42, 0]), &section(10, &import)].concat()
        };
        for name in ["sluice:policy/lists@0.1.0", "sluice:policy/lists@0.1.1"] {
            assert_eq!(inspect(&importing(name, &[5, 0])).unwrap().imports, [name]);
        }
        for name in
            ["wasi:clocks/wall-clock@0.2.0", "sluice:policy/lists@0.2.0", "sluice:policy/lists", "sluice:policy/clock@0.1.0", "evil\nline"]
        {
            assert!(refused(&importing(name, &[5, 0])).starts_with(&format!("it imports {}, ", printable(name))));
        }
        assert!(refused(&importing("sluice:policy/lists@0.1.0", &[0, 0x11, 0])).contains("it imports"), "a module under our name");
    }
}
