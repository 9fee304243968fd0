//! Lists that policies look keys up in, replaced on every node.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use gateway_core::ports::Table;
use serde_json::{Value, json};

use crate::admin::plugins::{Who, refused};
use crate::admin::{Answer, Refused, body, instants, operator};
use crate::node::Node;
use crate::rollouts::lists::LIST_BYTES_MAX;
use crate::rollouts::record::ListRecord;

/// `GET /admin/lists`: which there are.
pub(super) async fn list(State(node): State<Arc<Node>>) -> Answer {
    let mut lists: BTreeMap<String, Value> = BTreeMap::new();
    for (name, entries) in &node.config.lists {
        lists.insert(name.clone(), json!({ "name": name, "entries": entries.len(), "from": "configuration" }));
    }
    for record in node.ports.registry.all(Table::Lists).await? {
        if let Ok(list) = serde_json::from_slice::<ListRecord>(&record.value) {
            lists.insert(record.key.clone(), describe(&record.key, record.revision, &list));
        }
    }
    Ok((StatusCode::OK, axum::Json(json!({ "lists": lists.into_values().collect::<Vec<_>>() }))))
}

/// `GET /admin/lists/{name}`: its entries, one a line.
pub(super) async fn show(State(node): State<Arc<Node>>, Path(name): Path<String>) -> Result<Response, Refused> {
    check(&name)?;
    let known = match node.ports.registry.read(Table::Lists, &name).await {
        Ok(record) => record.and_then(|record| serde_json::from_slice::<ListRecord>(&record.value).ok()),
        Err(error) => Some(node.rollouts.seen_list(&name).ok_or(error)?),
    };
    let text = match known {
        Some(list) => node.rollouts.blob(&list.digest).await?.ok_or_else(|| Refused::missing("the registry has lost its entries"))?,
        None => match node.config.lists.get(&name) {
            Some(entries) => entries.iter().flat_map(|entry| [entry.as_str(), "\n"]).collect::<String>().into(),
            None => return Err(Refused::missing(format!("there is no list {name:?}"))),
        },
    };
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

/// `PUT /admin/lists/{name}` with the entries as the body, one a line.
pub(super) async fn replace(State(node): State<Arc<Node>>, Path(name): Path<String>, who: Query<Who>, entries: Body) -> Answer {
    check(&name)?;
    let by = operator(who.0.by)?;
    let text = body::read(entries, LIST_BYTES_MAX).await?;
    let changed = node.rollouts.push_list(&name, text, &by).await.map_err(|error| refused(error, "BAD_LIST"))?;
    if changed.happened {
        tracing::info!(list = name, entries = changed.record.entries, by, "a list was pushed");
    }
    let mut answer = describe(&name, changed.revision, &changed.record);
    answer["new"] = changed.happened.into();
    Ok((StatusCode::OK, axum::Json(answer)))
}

fn describe(name: &str, revision: u64, list: &ListRecord) -> Value {
    json!({
        "name": name, "entries": list.entries, "digest": list.digest, "revision": revision,
        "pushed": instants::write(list.at), "by": list.by, "from": "registry",
    })
}

fn check(name: &str) -> Result<(), Refused> {
    let fits = (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    fits.then_some(()).ok_or_else(|| Refused::bad("a list's name is 1 to 64 of A-Z, a-z, 0-9, - and _"))
}
