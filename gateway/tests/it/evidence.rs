//! What is left behind of a request: its decision record, and a recording without secrets that can be replayed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::chat_socket::ChatSocket;
use crate::dev::Dev;
use crate::edge::{Answer, Edge};
use crate::process::run;
use crate::settings::{self, CLOSED};
use crate::tokens;
use crate::upstream::{Conduct, Upstream};
use crate::wait::{SOON, until};

/// A recording of everything, of jwt-auth and conformance in front of an upstream.
fn recorded(upstream: &Upstream, file: &Path) -> String {
    format!(
        "recording.file = \"{}\"\nrecording.permille = 1000\n\
         [upstreams.all]\npeers = [{{ addr = \"{}\" }}]\n[[routes]]\nname = \"shop\"\nprefix = \"/api\"\nupstream = \"all\"\n\
         [[policies]]\nname = \"who\"\nplugin = \"jwt-auth\"\ntimeout_ms = 2000\nprefixes = [\"/api/\", \"/im/\"]\nfail = {CLOSED}\n\
         [[policies]]\nname = \"rule\"\nplugin = \"conformance\"\ntimeout_ms = 2000\nprefixes = [\"/api/\"]\nfail = {CLOSED}\n",
        file.display(),
        upstream.address
    )
}

/// The lines of a recording, once there are `count`.
async fn lines(file: &Path, count: usize) -> Vec<Value> {
    until(format!("{count} lines are recorded"), SOON, async || {
        let lines: Vec<Value> = fs::read_to_string(file)?.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok((lines.len() >= count).then_some(lines))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_holds_questions_and_answers_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.jsonl");
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let dev = Dev::start(&recorded(&upstream, &file)).await.unwrap();
    let edge = Edge::new().unwrap();
    let (token, expired) = (tokens::user("u1"), tokens::sign(&tokens::claims("u2", "user", -60)));
    let ask = async |path: &str, token: &str| {
        let request = edge.http.get(format!("http://{}{path}", dev.edge)).bearer_auth(token);
        Answer::of(request.header("cookie", "sid=a-secret-cookie").header("x-api-key", "a-secret-key").header("user-agent", "curl"))
            .await
            .unwrap()
    };
    assert_eq!(ask("/api/x?token=a-secret-in-the-query&a=b", &token).await.status, 200);
    assert_eq!(ask("/api/x", &expired).await.status, 401);
    // Two policies of the first request, one of them about its response too; one of the second, and that one's response.
    let lines = lines(&file, 5).await;
    let text = fs::read_to_string(&file).unwrap();
    for secret in [token.as_str(), expired.as_str(), "a-secret-cookie", "a-secret-key", "a-secret-in-the-query"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let who: Vec<&Value> = lines.iter().filter(|line| line["policy"] == "who").collect();
    let [good, bad] = who.as_slice() else { panic!("{who:#?}") };
    let mark = good["request"]["headers"].as_array().unwrap().iter().find(|field| field[0] == "authorization").unwrap()[1].clone();
    let mark = mark.as_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
    assert_eq!((&good["plugin"], &good["phase"], &good["side"]), (&json!("jwt-auth"), &json!("request"), &json!("live")), "{good}");
    assert_eq!(good["tokens"][&mark]["principal"]["id"], "u1", "{good}");
    assert_eq!(good["verdict"]["proceed"]["principal"]["id"], "u1", "{good}");
    assert_eq!(good["version"], dev.admin.policy_version("who").await.unwrap());
    let errors: Vec<_> = bad["tokens"].as_object().unwrap().values().map(|token| token["error"].clone()).collect();
    assert_eq!((errors, &bad["verdict"]["refuse"]["status"]), (vec![json!("expired")], &json!(401)), "{bad}");
    let response = lines.iter().find(|line| line["phase"] == "response").unwrap();
    assert_eq!(response["principal"]["id"], "u1", "{response}");
    assert_eq!(response["verdict"]["proceed"]["setHeaders"], json!([["x-status", "200"]]), "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_asked_what_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.jsonl");
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let dev = Dev::start(&recorded(&upstream, &file)).await.unwrap();
    let edge = Edge::new().unwrap();
    let (user, agent) = (tokens::user("u1"), tokens::agent("a1", 7));
    let expired = tokens::sign(&tokens::claims("u2", "user", -60));
    let mut traces = Vec::new();
    for (token, word, status) in
        [(&user, "allow", 200), (&agent, "header", 200), (&expired, "allow", 401), (&user, "refuse", 429), (&user, "trap", 503)]
    {
        let request = edge.http.get(format!("http://{}/api/x", dev.edge)).bearer_auth(token).header("x-conformance", word);
        let answer = Answer::of(request).await.unwrap();
        assert_eq!(answer.status, status, "{word}: {}", answer.body);
        traces.push(answer.headers["x-trace-id"].to_str().unwrap().to_owned());
    }
    // Five of jwt-auth; of conformance four about requests and five about responses.
    lines(&file, 14).await;
    let replay = async |plugin: &str, more: &[&str]| {
        let component = settings::plugins().unwrap().join(plugin).with_extension("wasm").display().to_string();
        let recording = file.display().to_string();
        let output = run(&[&["plugin", "replay", &component, "--recording", &recording][..], more].concat()).await.unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    };
    let (code, told) = replay("jwt-auth", &[]).await;
    assert_eq!((code, told.as_str()), (0, "5 asked, 0 changed; 9 of other policies, 0 unreadable\n"));

    let stricter = folder.path().join("stricter.json");
    fs::write(&stricter, r#"{ "rules": [{ "path": "/api/", "roles": ["agent"] }] }"#).unwrap();
    let (code, told) = replay("jwt-auth", &["--config", &stricter.display().to_string()]).await;
    assert_eq!(code, 1, "{told}");
    assert!(
        told.contains(&format!("{} who request: refuses", traces[0])) && !told.contains(&traces[1]) && !told.contains(&traces[2]),
        "{told}"
    );
    assert!(told.contains("5 asked, 3 changed (refuses 3)"), "{told}");

    let (code, told) = replay("conformance", &["--policy", "who", "--json"]).await;
    assert_eq!(code, 1, "{told}");
    let last: Value = told.lines().filter_map(|line| serde_json::from_str(line).ok()).next_back().unwrap();
    // It knows nobody and refuses who says so: the two users and the agent are not proved, the expired token passes.
    assert_eq!((&last["summary"]["asked"], &last["summary"]["others"]), (&json!(5), &json!(9)), "{told}");

    let (code, told) = replay("conformance", &[]).await;
    assert_eq!(code, 0, "traps are recorded and come again: {told}");
    let (code, told) = replay("rate-limit", &[]).await;
    assert!(code == 1 && told.contains("asks nothing of the plugin rate-limit"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_recorded_as_it_was_judged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.jsonl");
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let dev = Dev::start(&recorded(&upstream, &file).replace("[\"/api/\"", "[\"/ws/\"").replace("\"/im/\"", "\"/ws/\"")).await.unwrap();
    let token = tokens::user("u1");
    let mut socket = ChatSocket::connect(dev.edge, &token, "").await.unwrap();
    socket.expect("hello").await.unwrap();
    let opened = socket.ask(json!({ "type": "open", "subject": "x", "shopId": "1" })).await.unwrap();
    let frame = json!({ "type": "text", "sessionId": opened["sessionId"], "content": "replace", "clientMsgId": "m1" });
    socket.send(frame).await.unwrap();
    socket.expect("accepted").await.unwrap();
    // Both policies are asked about the handshake, conformance about its answer and the message.
    let lines = lines(&file, 4).await;
    let message = lines.iter().find(|line| line["phase"] == "message").unwrap();
    assert_eq!((&message["message"]["content"], &message["principal"]["id"]), (&json!("replace"), &json!("u1")), "{message}");
    assert_eq!(message["verdict"], json!({ "proceed": { "replace": "***" } }), "{message}");
    assert_eq!(message["traceId"], lines[0]["traceId"], "under the trace of the socket");
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains(&token) && text.contains("chat.v1.json, bearer.sealed-"), "{text}");
    let component = settings::plugins().unwrap().join("conformance.wasm").display().to_string();
    let output = run(&["plugin", "replay", &component, "--recording", &file.display().to_string()]).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_recorded_that_is_not_in_the_sample() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("recording.jsonl");
    let upstream = Upstream::start(Conduct::Answer("fine")).await.unwrap();
    let config = recorded(&upstream, &file).replace("permille = 1000", "permille = 500");
    let dev = Dev::start(&config).await.unwrap();
    let edge = Edge::new().unwrap();
    for number in 0..40 {
        let trace = format!("00-{:032x}-b7ad6b7169203331-01", 0x0af7_6519_16cd_43dd_u128 << 64 | number);
        // Asked twice: a trace is in the sample or is not.
        for _ in 0..2 {
            let request = edge.http.get(format!("http://{}/api/x", dev.edge)).bearer_auth(tokens::user("u1"));
            assert_eq!(Answer::of(request.header("traceparent", trace.as_str())).await.unwrap().status, 200);
        }
    }
    let kept = lines(&file, 6).await;
    let traces: std::collections::BTreeMap<&str, usize> = kept.iter().fold(Default::default(), |mut traces, line| {
        *traces.entry(line["traceId"].as_str().unwrap()).or_default() += 1;
        traces
    });
    assert!((1..40).contains(&traces.len()), "{traces:?}");
}
