//! What a component may want from the host.

use crate::support::{Rig, conformance};

/// A component that imports the instance `name` and does nothing else.
fn importing(name: &str) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    // Type section: one instance type without declarations.
    bytes.extend([7, 3, 1, 0x42, 0]);
    // Import section: one plain name, an instance of type 0.
    let length = u8::try_from(name.len()).unwrap();
    bytes.extend([10, length + 5, 1, 0, length]);
    bytes.extend(name.as_bytes());
    bytes.extend([5, 0]);
    bytes
}

#[tokio::test]
async fn refuses_a_component_that_wants_more_than_the_world_has() {
    let rig = Rig::new(vec![conformance("p")]);
    for name in [
        "wasi:clocks/wall-clock@0.2.0",
        "wasi:sockets/tcp@0.2.0",
        "wasi:random/random@0.2.0",
        "sluice:policy/lists@0.2.0",
        "sluice:policy/secrets@0.1.0",
        "evil",
    ] {
        let refused = rig.install("conformance", &importing(name)).await.unwrap_err();
        assert!(refused.starts_with(&format!("it imports {name}, and a policy may import nothing but ")), "{refused}");
    }
    assert_eq!(rig.status("p").version, Rig::new(vec![conformance("p")]).status("p").version);
}
