//! From bytes to a generation: schema, hostile bytes, and code that was compiled before.

use std::fs;

use gateway_policy::{HostError, Settings};
use tempfile::TempDir;

use crate::support::{Rig, component, conformance, place, policy, variant, word};

/// The conformance guest with a schema of its configuration.
fn with_schema(schema: &str) -> Vec<u8> {
    let name = b"sluice:config-schema";
    let body = [&[u8::try_from(name.len()).unwrap()], &name[..], schema.as_bytes()].concat();
    let length = u8::try_from(body.len()).unwrap();
    assert!(length < 128, "one byte of LEB128");
    [&component("conformance"), &[0, length][..], &body].concat()
}

#[tokio::test]
async fn a_configuration_that_does_not_fit_the_schema_is_refused_with_its_place() {
    let schema = r#"{"type":"object","properties":{"limit":{"minimum":1},"name":{"type":"string"}}}"#;
    for (config, places) in [("{}", &[][..]), (r#"{"limit": 0, "name": 7}"#, &["/limit: 0 is less", "/name: 7 is not of type"][..])] {
        let rig = Rig::new(vec![policy("p", "conformance", config)]);
        let loaded = rig.install("conformance", &with_schema(schema)).await;
        assert_eq!(loaded.is_ok(), places.is_empty(), "{config}");
        for place in places {
            assert!(loaded.as_ref().is_err_and(|problem| problem.contains(place)), "{place}: {loaded:?}");
        }
    }
    let rig = Rig::new(vec![conformance("p")]);
    let broken = rig.install("conformance", &with_schema(r#"{"type": 7}"#)).await.unwrap_err();
    assert!(broken.starts_with("the schema of its configuration is broken"), "{broken}");
}

#[tokio::test]
async fn a_component_cut_or_changed_anywhere_is_refused_or_harmless() {
    let rig = Rig::new(vec![conformance("p")]);
    let good = component("conformance");
    for part in 0..24 {
        let place = good.len() * part / 24;
        let cut = rig.install("conformance", &good[..place]).await;
        assert!(cut.is_err_and(|problem| problem.lines().count() == 1), "cut at {place}");
        let mut changed = good.clone();
        changed[place] ^= 0x55;
        // Some bytes are data: then it loads, and answers or fails as any guest.
        if let Err(problem) = rig.install("conformance", &changed).await {
            assert_eq!(problem.lines().count(), 1, "{problem}");
        }
    }
    rig.install("conformance", &good).await.unwrap();
    assert_eq!(word(&rig.behave("p", "allow").await.outcome), "proceed");
}

#[tokio::test]
async fn code_that_was_compiled_before_is_not_compiled_again() {
    let cache = TempDir::new().unwrap();
    let start = || {
        let dir = TempDir::new().unwrap();
        place(dir.path(), "conformance", &variant(&component("conformance"), 99));
        let settings = Settings {
            dir: dir.path().to_owned(),
            policies: vec![conformance("p")],
            instances_max: 8,
            cache_dir: Some(cache.path().join("code")),
        };
        Rig::start(dir, settings)
    };
    let loads = |rig: &Rig| (rig.host.loads().compiled, rig.host.loads().configured);
    assert_eq!(loads(&start()), (1, 1));
    let again = start();
    assert_eq!(loads(&again), (0, 1));
    assert_eq!(word(&again.behave("p", "allow").await.outcome), "proceed");

    let code = fs::read_dir(cache.path().join("code")).unwrap().map(|file| file.unwrap().path());
    let code = code.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "code")).unwrap();
    let mut bytes = fs::read(&code).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&code, bytes).unwrap();
    assert_eq!(loads(&start()), (1, 1), "damaged code is ignored");
    assert_eq!(loads(&start()), (0, 1), "and written anew");
}

#[test]
fn a_cache_that_others_may_write_to_stops_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = TempDir::new().unwrap();
    let cache = dir.path().join("code");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let settings = Settings { dir: dir.path().to_owned(), policies: vec![conformance("p")], instances_max: 8, cache_dir: Some(cache) };
    assert!(matches!(Rig::try_start(settings), Err(HostError::Cache { .. })));
}
