//! TLS at the edge: HTTP/2 for those who offer it, HTTP/1.1 for the others, chat through it, and a clear refusal to start with a
//! certificate that is none.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::{Certificate, Version};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::chat_socket::{ChatSocket, request};
use crate::dev::Dev;
use crate::http::{builder, choose_provider};
use crate::settings::{self, base};
use crate::tokens;
use crate::upstream::{Conduct, Upstream};
use crate::wait::soon;

/// A certificate for this machine alone, in files.
struct Identity {
    folder: TempDir,
    certificate: CertificateDer<'static>,
}

fn identity() -> Identity {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    Identity { folder, certificate: made.cert.der().clone() }
}

impl Identity {
    fn settings(&self, key: &str) -> String {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        format!("edge.tls = {{ cert = \"{}\", key = \"{}\" }}\n", file("cert.pem"), file(key))
    }

    async fn connect(&self, edge: SocketAddr, protocols: &[&[u8]]) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let stream = TcpStream::connect(edge).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        soon("TLS handshake", TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_2_is_spoken_with_those_who_offer_it() {
    choose_provider();
    let identity = identity();
    let upstream = Upstream::start(Conduct::Answer("over TLS")).await.unwrap();
    let dev = Dev::start(&format!(
        "{}[upstreams.shop]\npeers = [{{ addr = \"{}\" }}]\n[[routes]]\nname = \"shop\"\nprefix = \"/shop\"\nupstream = \"shop\"\n{}",
        identity.settings("key.pem"),
        upstream.address,
        settings::chain()
    ))
    .await
    .unwrap();
    for (protocols, chosen) in
        [(&[b"h2".as_slice(), b"http/1.1"][..], Some(b"h2".as_slice())), (&[b"http/1.1"], Some(b"http/1.1")), (&[], None)]
    {
        let stream = identity.connect(dev.edge, protocols).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
    }
    let root = Certificate::from_der(&identity.certificate).unwrap();
    let builder = || builder().tls_certs_only([root.clone()]);
    for (client, version) in [(builder().build().unwrap(), Version::HTTP_2), (builder().http1_only().build().unwrap(), Version::HTTP_11)] {
        let url = format!("https://localhost:{}/shop/x", dev.edge.port());
        // Several on one connection, bodies included.
        for _ in 0..5 {
            let response = client.post(&url).body("x".repeat(50_000)).send().await.unwrap();
            assert_eq!((response.version(), response.status().as_u16()), (version, 200));
            assert_eq!(response.text().await.unwrap(), "over TLS");
        }
        let refused = client.get(format!("https://localhost:{}/api/nothing", dev.edge.port())).send().await.unwrap();
        assert_eq!(refused.status(), 401, "policies judge {version:?} as well");
        let large = client.post(&url).header("x-large", "x".repeat(40_000)).send().await;
        assert!(large.is_err() || large.is_ok_and(|answer| answer.status() == 431), "a head above the limit");
    }
    assert_eq!(upstream.arrived().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_runs_through_tls() {
    choose_provider();
    let identity = identity();
    let dev = Dev::start(&(identity.settings("key.pem") + &settings::chain())).await.unwrap();
    let stream = identity.connect(dev.edge, &[b"http/1.1"]).await;
    let handshake = request(dev.edge, &tokens::user("somebody"), "").unwrap();
    let mut socket = ChatSocket::handshake(Box::new(stream), handshake).await.unwrap();
    socket.expect("hello").await.unwrap();
    socket.assert_quiet().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_a_bad_certificate_names_the_file() {
    let identity = identity();
    std::fs::write(identity.folder.path().join("nonsense.pem"), "no key").unwrap();
    for (key, told) in [("missing.pem", "missing.pem"), ("nonsense.pem", "nonsense.pem")] {
        let file = identity.folder.path().join(format!("{key}.toml"));
        std::fs::write(&file, base().unwrap() + &identity.settings(key)).unwrap();
        let output = crate::process::run(&["dev", "--config", &file.display().to_string()]).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(told), "{said}");
        assert!(!said.contains("\"listening\""), "nothing was started: {said}");
    }
}
